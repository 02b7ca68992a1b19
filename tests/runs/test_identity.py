"""Fingerprints: equal exactly for equal runs, in every process; an edited function changes them."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from problems.cases import INPUTS, pseudo_huber
from runs.cases import halving

import entroplay as ep
from entroplay.runs.identity import fingerprint

SLOPE = 2.0


def helper(x):
    return x * SLOPE


class Callable:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x

    def method(self, theta, x):
        return self(theta[0] * x)


def capturing(add, multiply, loss, table, scale):
    return lambda theta, x: (
        scale(add(theta[0], x)) * table[1] if (multiply is not None, loss) else x
    )


class Pair(NamedTuple):
    first: float
    second: object


def features_by(h):
    return ep.FunctionFeatures(h, INPUTS, dim=1)


def run(**changes):
    """The fingerprint of a run that differs from a standard one in what is named."""
    standard = {
        "X": INPUTS[:, None],
        "y": np.sin(INPUTS),
        "weights": 1 + INPUTS**2,
        "activation": "tanh",
        "scale": 1.0,
        "bias": False,
        "features": None,
        "loss": None,
        "temperature": 0.05,
        "l2": 0.05,
        "solver": ep.EFP(0.1, ep.ULA(0.01, steps=3)),
        "m": 10,
        "seed": 0,
    }
    given = standard | changes
    features = given["features"] or ep.Neurons(
        given["X"], given["activation"], given["bias"], scale=given["scale"]
    )
    loss = given["loss"] or ep.Squared(given["y"])
    problem = ep.FiniteSum(
        features,
        loss,
        temperature=given["temperature"],
        l2=given["l2"],
        weights=given["weights"],
    )
    return fingerprint(problem, given["solver"], given["m"], given["seed"])


def quartic(power, constant=1.0):
    class Power(ep.Loss):
        power: int
        factor: ClassVar[float] = constant

        def value(self, moments):
            return self.factor * moments**self.power

    return Power(power)


def edited_quartic():
    class Power(ep.Loss):
        power: int
        factor: ClassVar[float] = 1.0

        def value(self, moments):
            return 2 * moments**self.power

    Power.__qualname__ = "quartic.<locals>.Power"
    return Power(4)


def nudge(array):
    array = np.array(array, np.float32)
    array.flat[5] = np.nextafter(array.flat[5], np.float32(9))
    return array


RUNS = {
    "the standard": lambda: run(),
    "data": lambda: run(X=nudge(INPUTS[:, None])),
    "target": lambda: run(y=nudge(np.sin(INPUTS))),
    "weights": lambda: run(weights=None),
    "activation": lambda: run(activation="erf"),
    "scale": lambda: run(scale=1.1),
    "bias": lambda: run(bias=True),
    "temperature": lambda: run(temperature=np.nextafter(0.05, 1)),
    "l2": lambda: run(l2=0.051),
    "m": lambda: run(m=11),
    "seed": lambda: run(seed=1),
    "loss": lambda: run(loss=ep.Logistic(np.sign(INPUTS))),
    "loss scale": lambda: run(loss=ep.Squared(np.sin(INPUTS), scale=2.0)),
    "own loss": lambda: run(loss=ep.FunctionLoss(pseudo_huber, np.sin(INPUTS))),
    "own class of loss": lambda: run(loss=quartic(4)),
    "own class, another field": lambda: run(loss=quartic(6)),
    "own class, another constant": lambda: run(loss=quartic(4, constant=3.0)),
    "own class, edited": lambda: run(loss=edited_quartic()),
    "solver": lambda: run(solver=ep.NaiveEFP(0.1, ep.ULA(0.01, steps=3))),
    "rate": lambda: run(solver=ep.EFP(0.2, ep.ULA(0.01, steps=3))),
    "steps": lambda: run(solver=ep.EFP(0.1, ep.ULA(0.01, steps=4))),
    "step_size": lambda: run(solver=ep.EFP(0.1, ep.ULA(0.02, steps=3))),
    "sampler": lambda: run(solver=ep.EFP(0.1, ep.MALA(step_size=0.01, steps=3))),
    "schedule": lambda: run(solver=ep.EFP(optax.exponential_decay(0.1, 10, 0.5))),
    "schedule, another parameter": lambda: run(
        solver=ep.EFP(optax.exponential_decay(0.1, 10, 0.6))
    ),
    "schedules joined": lambda: run(
        solver=ep.EFP(optax.join_schedules([halving, optax.constant_schedule(0.1)], [5]))
    ),
    "schedules joined later": lambda: run(
        solver=ep.EFP(optax.join_schedules([halving, optax.constant_schedule(0.1)], [6]))
    ),
    "function": lambda: run(features=features_by(lambda theta, x: jnp.tanh(theta[0] * x))),
    "function, another name called": lambda: run(
        features=features_by(lambda theta, x: jnp.sin(theta[0] * x))
    ),
    "function, another constant": lambda: run(
        features=features_by(lambda theta, x: jnp.tanh(3 * theta[0] * x))
    ),
    "function, a set": lambda: run(
        features=features_by(lambda t, x: t[0] * x if "a" in {"a", "b", "c", "d"} else x)
    ),
    "function inside a function": lambda: run(
        features=features_by(lambda theta, x: (lambda z: z + 5)(theta[0] * x))
    ),
    "another function inside": lambda: run(
        features=features_by(lambda theta, x: (lambda z: z + 6)(theta[0] * x))
    ),
    "helper": lambda: run(features=features_by(lambda theta, x: helper(theta[0] * x))),
    "default": lambda: run(features=features_by(lambda theta, x, c=2: c * theta[0] * x)),
    "default, another value": lambda: run(
        features=features_by(lambda theta, x, c=3: c * theta[0] * x)
    ),
    "partial": lambda: run(
        features=features_by(functools.partial(lambda c, theta, x: c * theta[0] * x, 2.0))
    ),
    "partial, another value": lambda: run(
        features=features_by(functools.partial(lambda c, theta, x: c * theta[0] * x, 3.0))
    ),
    "captured objects": lambda: run(
        features=features_by(capturing(jnp.add, np.multiply, ep.Squared, {1: 2.0}, Callable(3)))
    ),
    "other captured objects": lambda: run(
        features=features_by(capturing(jnp.add, np.multiply, ep.Squared, {1: 2.0}, Callable(4)))
    ),
    "another ufunc captured": lambda: run(
        features=features_by(capturing(jnp.add, np.add, ep.Squared, {1: 2.0}, Callable(3)))
    ),
    "another table captured": lambda: run(
        features=features_by(capturing(jnp.add, np.add, ep.Squared, {1: 3.0}, Callable(3)))
    ),
    "another jax ufunc": lambda: run(
        features=features_by(capturing(jnp.subtract, np.add, ep.Squared, {1: 3.0}, Callable(3)))
    ),
    **{
        f"captured {value!r}": lambda value=value: run(
            features=features_by(capturing(jnp.add, value, 0, {1: 3.0}, Callable(3)))
        )
        for value in (
            b"1",
            b"2",
            1j,
            2j,
            {"a", "b", "c"},
            {"a", "b", "d"},
            Pair(1.0, "x"),
            Pair(2.0, "x"),
            (1, [2, None]),
            {"k": 1},
        )
    },
    "a captured key": lambda: run(
        features=features_by(capturing(jnp.add, jax.random.key(0), 0, {1: 3.0}, Callable(3)))
    ),
    "another captured key": lambda: run(
        features=features_by(capturing(jnp.add, jax.random.key(1), 0, {1: 3.0}, Callable(3)))
    ),
    "a method": lambda: run(features=features_by(Callable(3).method)),
    "another object's method": lambda: run(features=features_by(Callable(4).method)),
    "compiled": lambda: run(features=features_by(jax.jit(lambda theta, x: 7 * theta[0] * x))),
    "compiled, another constant": lambda: run(
        features=features_by(jax.jit(lambda theta, x: 8 * theta[0] * x))
    ),
}


def test_fingerprints_agree_exactly_when_the_runs_do():
    first, again = ({name: make() for name, make in RUNS.items()} for _ in range(2))
    assert first == again
    assert len(set(first.values())) == len(first)
    assert all(len(value) == 64 for value in first.values())
    with jax.enable_x64(True):
        assert RUNS["the standard"]() != first["the standard"]


def test_a_value_captured_or_global_is_a_part_of_the_function(monkeypatch):
    def scaled_by(array):
        return lambda theta, x: theta[0] * x * array.sum()

    one, other = (
        run(features=features_by(scaled_by(jnp.asarray(values))))
        for values in ([1.0, 2.0], [1.0, 2.5])
    )
    assert one != other
    assert one == run(features=features_by(scaled_by(jnp.asarray([1.0, 2.0]))))
    before = RUNS["helper"]()
    monkeypatch.setitem(helper.__globals__, "SLOPE", 2.5)
    assert RUNS["helper"]() != before


def test_a_function_that_was_used_is_still_the_same():
    """CPython rewrites the byte code of a busy function in place; JAX keeps caches about it."""
    before = run(features=features_by(halved))
    for i in range(100):
        halved(np.ones(1), i)
    solution = ep.solve(
        ep.FiniteSum(features_by(halved), ep.Squared(INPUTS), temperature=0.1, l2=0.1),
        ep.MFLD(),
        particles=2,
        iterations=1,
    )
    assert solution.status == "iterations"
    assert run(features=features_by(halved)) == before


def halved(theta, x):
    return helper(theta[0] * x) / 4


def test_fingerprints_outlive_the_process():
    """Another process, with another order of sets and other addresses, finds the same."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from runs.test_identity import RUNS\n"
        "print([make() for make in RUNS.values()])"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parents[1])]
    outputs = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "JAX_PLATFORMS": "cpu"}
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, timeout=120
        )
        outputs.add(result.stdout)
    assert len(outputs) == 1
