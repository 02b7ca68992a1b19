"""Bad arguments are refused by one kind of message.

It is a ValueError that names the parameter, what it must be and what it got.
"""

import numpy as np
import pytest
from problems.cases import squared

import entroplay as ep

X, Y = np.ones((4, 2)), np.ones(4)
NAN, INF = np.array([[1.0, np.nan]]), np.array([[1.0, np.inf]])


def finite_sum(**changes):
    arguments = {"temperature": 0.1, "l2": 0.1} | changes
    return ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), **arguments)


CASES = {
    "NaN in X": (lambda: ep.Neurons(NAN), "'X' parameter of Neurons", "finite", "nan at [0, 1]"),
    "inf in X": (
        lambda: ep.GaussianKernel(INF, 1.0),
        "'X' parameter of GaussianKernel",
        "finite",
        "inf at [0, 1]",
    ),
    "NaN in function X": (
        lambda: ep.FunctionFeatures(lambda t, x: t[0], NAN, dim=1),
        "'X'",
        "finite",
        "nan",
    ),
    "too large for float32": (
        lambda: ep.Neurons([[1e300]]),
        "'X'",
        "representable in float32",
        "1e+300",
    ),
    "text": (lambda: ep.Neurons([["a"]]), "'X'", "real numbers", "'a'"),
    "X of one dimension": (lambda: ep.Neurons(Y), "'X'", "2-dimensional", "(4,)"),
    "empty X": (lambda: ep.Neurons(np.ones((0, 2))), "'X'", "non-empty", "(0, 2)"),
    "NaN in y": (
        lambda: ep.Squared([1.0, np.nan]),
        "'y' parameter of Squared",
        "finite",
        "nan at [1]",
    ),
    "scale": (lambda: ep.Squared(Y, scale=0.0), "'scale' parameter of Squared", "positive", "0.0"),
    "logistic labels": (
        lambda: ep.Logistic([0, 1]),
        "'y' parameter of Logistic",
        "-1 or +1",
        "0.0",
    ),
    "labels too large": (
        lambda: ep.CrossEntropy([0, 3], classes=3),
        "'labels' parameter of CrossEntropy",
        "classes - 1 = 2",
        "3",
    ),
    "labels fractional": (lambda: ep.CrossEntropy([0, 0.5]), "'labels'", "whole numbers", "0.5"),
    "labels negative": (
        lambda: ep.CrossEntropy([0, -1]),
        "'labels'",
        "whole numbers from 0",
        "-1.0",
    ),
    "one class": (lambda: ep.CrossEntropy([0, 0], classes=1), "'classes'", ">= 2", "1"),
    "activation": (
        lambda: ep.Neurons(X, activation="softsign"),
        "'activation' parameter of Neurons",
        "'tanh'",
        "'softsign'",
    ),
    "outputs": (lambda: ep.Neurons(X, outputs=2), "'output_weight'", "several outputs", "False"),
    "zero outputs": (lambda: ep.Neurons(X, outputs=0), "'outputs'", ">= 1", "0"),
    "bandwidth": (lambda: ep.GaussianKernel(X, bandwidth=-1.0), "'bandwidth'", "positive", "-1.0"),
    "bandwidths": (
        lambda: ep.GaussianKernel(X, bandwidth=[1.0, 1.0, 1.0]),
        "'bandwidth'",
        "one per coordinate",
        "[1.0, 1.0, 1.0]",
    ),
    "matrix": (
        lambda: ep.FunctionFeatures(lambda t, x: t[:, None] * x[None], X, dim=2),
        "'h'",
        "number or a vector",
        "(2, 2)",
    ),
    "dim": (lambda: ep.FunctionFeatures(lambda t, x: t[0], X, dim=0), "'dim'", ">= 1", "0"),
    "temperature": (
        lambda: finite_sum(temperature=0.0),
        "'temperature' parameter of FiniteSum",
        "positive",
        "0.0",
    ),
    "negative temperature": (
        lambda: finite_sum(temperature=-1.0),
        "'temperature'",
        "positive",
        "-1.0",
    ),
    "NaN temperature": (
        lambda: finite_sum(temperature=float("nan")),
        "'temperature'",
        "finite",
        "nan",
    ),
    "l2": (lambda: finite_sum(l2=0.0), "'l2' parameter of FiniteSum", "positive", "0.0"),
    "infinite l2": (lambda: finite_sum(l2=float("inf")), "'l2'", "finite", "inf"),
    "negative weights": (
        lambda: finite_sum(weights=[1, 1, 1, -1]),
        "'weights'",
        "4 non-negative",
        "-1",
    ),
    "zero weights": (
        lambda: finite_sum(weights=[0, 0, 0, 0]),
        "'weights'",
        "not all zero",
        "[0, 0, 0, 0]",
    ),
    "weights of wrong length": (
        lambda: finite_sum(weights=[1, 1]),
        "'weights'",
        "4 non-negative",
        "[1, 1]",
    ),
    "lengths": (
        lambda: ep.FiniteSum(ep.Neurons(X), ep.Squared(np.ones(5)), temperature=0.1, l2=0.1),
        "'loss'",
        "(4,)",
        "(5,)",
    ),
    "channels": (
        lambda: ep.FiniteSum(ep.Neurons(X), ep.CrossEntropy([0, 1, 1, 0]), temperature=0.1, l2=0.1),
        "'loss'",
        "(4,)",
        "(4, 2)",
    ),
    "rate zero": (lambda: ep.EFP(rate=0.0), "'rate' parameter of EFP", "(0, 1]", "0.0"),
    "rate above one": (
        lambda: ep.NaiveEFP(rate=1.5),
        "'rate' parameter of NaiveEFP",
        "(0, 1]",
        "1.5",
    ),
    "step": (lambda: ep.ULA(step_size=-0.1), "'step_size' parameter of ULA", "positive", "-0.1"),
    "MALA's step": (
        lambda: ep.MALA(step_size="fast"),
        "'step_size' parameter of MALA",
        "positive number or a schedule",
        "'fast'",
    ),
    "steps": (lambda: ep.MALA(steps=0), "'steps' parameter of MALA", ">= 1", "0"),
    "MFLD's step": (
        lambda: ep.MFLD(step_size=0.0),
        "'step_size' parameter of MFLD",
        "positive",
        "0.0",
    ),
    "no particles": (
        lambda: ep.solve(squared(), particles=0),
        "'particles' parameter of solve",
        ">= 1",
        "0",
    ),
    "no iterations": (
        lambda: ep.solve(squared(), iterations=0),
        "'iterations' parameter of solve",
        ">= 1",
        "0",
    ),
    "seed": (
        lambda: ep.solve(squared(), seed=2**32),
        "'seed' parameter of solve",
        "2**32 - 1",
        "4294967296",
    ),
    "negative seed": (lambda: ep.solve(squared(), seed=-1), "'seed'", ">= 0", "-1"),
    "tolerance": (lambda: ep.solve(squared(), tolerance=0.0), "'tolerance'", "positive", "0.0"),
    "grid points": (lambda: ep.grid.solve(squared(), points=2), "'points'", ">= 5", "2"),
    "plot axis": (
        lambda: ep.plot.convergence({}, against="time"),
        "'against'",
        "'pulls'",
        "'time'",
    ),
}
"""For each bad input a call, and parts of the message that it must raise."""


@pytest.mark.parametrize("name", list(CASES))
def test_bad_input(name):
    action, *parts = CASES[name]
    with pytest.raises(
        ValueError, match=r"The '\w+' parameter of [\w.]+ must be .*\. Got .* instead\."
    ) as caught:
        action()
    for part in parts:
        assert part in str(caught.value)


def test_a_grid_too_large_for_memory_is_refused():
    problem = ep.FiniteSum(
        ep.Neurons(np.ones((2000, 2))), ep.Squared(np.ones(2000)), temperature=0.1, l2=0.1
    )
    with pytest.raises(ValueError, match="fewer 'points'"):
        ep.grid.solve(problem, points=1001)
