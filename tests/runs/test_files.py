"""`save` and `load`: functions are asked for by name, and training rows may be left out."""

import dataclasses
import inspect

import jax
import numpy as np
import optax
import pytest
from problems.cases import FUNCTIONS, PROBLEMS, cross_entropy, elsewhere, squared, two_channels
from runs.cases import MARKER, assert_same, halving, solution_of

import entroplay as ep
from entroplay.runs.files import FileFormatError, MissingFunctionError, read_record


def test_a_loaded_solution_prints_the_same_and_goes_on(path):
    solution = ep.solve(squared(), ep.EFP(0.1, ep.ULA()), particles=8, iterations=2)
    ep.save(solution, path)
    loaded = ep.load(path)
    assert_same(solution, loaded)
    assert repr(loaded) == repr(solution)
    further = [
        ep.solve(s.problem, s.solver, particles=8, iterations=2, start=s)
        for s in (solution, loaded)
    ]
    assert_same(further[0].particles, further[1].particles)


def test_functions_are_asked_for_by_name(path):
    ep.save(solution_of(cross_entropy()), path)
    with pytest.raises(
        MissingFunctionError,
        match=r"'h' of FunctionFeatures was \S*\.two_channels.*functions=\{'h': \.\.\.\}",
    ) as e:
        ep.load(path)
    assert f"{two_channels.__module__}.two_channels" in str(e.value)
    assert isinstance(e.value, ValueError)
    assert not isinstance(e.value, FileFormatError)
    with pytest.raises(ValueError, match=r"'functions' parameter of load must be .*'g'"):
        ep.load(path, functions={"h": two_channels, "g": two_channels})
    with pytest.raises(ValueError, match=r"'functions' parameter of load must be .*'two_channels'"):
        inspect.unwrap(read_record)(path, functions={"h": "two_channels"})


def test_schedules_are_asked_for_by_name_and_by_owner(path):
    schedule = optax.exponential_decay(0.1, 10, 0.5)
    solution = solution_of(squared(), ep.EFP(rate=schedule, sampler=ep.ULA(step_size=halving)))
    ep.save(solution, path)
    with pytest.raises(ValueError, match=r"'rate' of EFP was optax\..*exponential_decay.*schedule"):
        ep.load(path)
    with pytest.raises(ValueError, match=r"'step_size' of ULA was \S*halving"):
        ep.load(path, functions={"rate": schedule})
    assert_same(solution, ep.load(path, functions={"rate": schedule, "ULA.step_size": halving}))


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_a_file_without_data_predicts(name, path):
    solution = solution_of(PROBLEMS[name]())
    ep.save(solution, path, data=False)
    loaded = ep.load(path, functions=FUNCTIONS.get(name))
    rows = elsewhere(solution.problem.features)
    assert_same(solution.predict(rows), loaded.predict(rows))
    lengths = [
        loaded.moments.shape[0],
        loaded.dual.shape[0],
        loaded.path.shape[1],
        loaded.problem.weights.shape[0],
    ]
    assert lengths == [0, 0, 0, 0]
    assert loaded.path.shape[0] == 2
    assert "n=0" in repr(loaded.problem)
    for verb in (ep.certify, lambda s: ep.solve(s.problem, particles=5, start=s)):
        with pytest.raises(ValueError, match="saved without its data"):
            verb(loaded)


@pytest.mark.parametrize("double", [False, True])
def test_a_file_without_data_holds_no_row(path, double):
    rows = np.full((4, 3), MARKER) * np.arange(1, 5)[:, None]
    targets, weights = MARKER + np.arange(4), MARKER * np.array([5, 1, 1, 1])
    with jax.enable_x64(double):
        problem = ep.FiniteSum(
            ep.Neurons(rows), ep.Squared(targets), temperature=0.1, l2=0.1, weights=weights
        )
        solution = solution_of(problem, m=4)
    secrets = [
        problem.features.rows,
        problem.loss.y,
        problem.weights,
        solution.moments,
        solution.dual,
        solution.path[1],
    ]
    for data in (True, False):
        ep.save(solution, path, data=data)
        raw = path.read_bytes()
        for array in secrets:
            for number in np.asarray(array).ravel():
                assert (number.tobytes() in raw) == data


def test_every_array_of_a_solution_is_known_to_hold_data_or_not():
    """A new field of Solution: does it have one entry per training row?

    Then `Solution.without_rows` must empty it, and its name belongs to the second set.
    """
    without_rows = {
        "solver",
        "particles",
        "weights",
        "history",
        "status",
        "seed",
        "iterate",
        "compression",
    }
    with_rows = {"problem", "moments", "dual", "path"}
    fields = {field.name for field in dataclasses.fields(ep.Solution)}
    assert fields == without_rows | with_rows
    solution = solution_of(squared())
    bare = solution.without_rows()
    for name in without_rows:
        assert_same(*(jax.tree.leaves(getattr(s, name)) for s in (solution, bare)), name)
    for name in with_rows:
        arrays = jax.tree.leaves(getattr(bare, name))
        assert 0 in {size for array in arrays for size in np.shape(array)}, name
