"""Records become JSON and arrays, and come back bit for bit; what cannot is refused by name."""

import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from problems.cases import FUNCTIONS, PROBLEMS, elsewhere, squared
from runs.cases import STORED_SOLVERS, altered, assert_same, solution_of

import entroplay as ep
from entroplay.base.registry import HOMES, RECORDS, load_home
from entroplay.problems.features.smoothed import SmoothedMap


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_every_problem_comes_back_bit_for_bit(name, double, path):
    with jax.enable_x64(double):
        solution = solution_of(PROBLEMS[name]())
    ep.save(solution, path)
    loaded = ep.load(path, functions=FUNCTIONS.get(name))
    assert_same(solution, loaded)
    assert loaded.particles.dtype == (np.float64 if double else np.float32)
    rows = elsewhere(solution.problem.features)
    assert_same(solution.predict(rows), loaded.predict(rows))


@pytest.mark.parametrize("name", list(STORED_SOLVERS))
def test_every_solver_comes_back(name, path):
    solution = solution_of(squared(), STORED_SOLVERS[name])
    ep.save(solution, path)
    assert_same(solution, ep.load(path))


def shipped(cls):
    """Whether a file of the package defines a class, and not an example in a docstring."""
    module = sys.modules.get(cls.__module__)
    return cls.__module__.startswith("entroplay.") and getattr(module, cls.__name__, None) is cls


def test_the_list_of_records_is_complete_and_every_one_is_tried():
    for kind in HOMES:
        load_home(kind)

    def descendants(cls):
        return {s for c in cls.__subclasses__() for s in {c} | descendants(c) if shipped(s)}

    families = (ep.Loss, ep.FeatureMap, ep.Sampler, ep.Solver)
    found = set().union(*(descendants(base) for base in families))
    # Private and smoothed maps are steps inside a computation and never reach a file.
    concrete = {
        cls.__name__
        for cls in found
        if not cls.__abstractmethods__
        and not cls.__name__.startswith("_")
        and not issubclass(cls, SmoothedMap)
    }
    forgotten = concrete - RECORDS.keys()
    assert not forgotten, f"write @storable above {forgotten}"
    tried = [PROBLEMS[name]() for name in PROBLEMS] + list(STORED_SOLVERS.values())
    seen = {type(part).__name__ for record in tried for part in (record, *vars(record).values())}
    results = {"Solution", "Status", "Checkpoint", "Compression"}
    tried_in_painting = {"Painting", "Film", "TrianglePainter", "CosineSteps"}
    tried_in_sklearn = {"Model", "Certificate", "Columns", "NumberColumn"}
    tried_in_sklearn |= {"CategoryColumn", "DateColumn", "IgnoredColumn"}
    elsewhere = results | tried_in_painting | tried_in_sklearn
    registered = {name for name, cls in RECORDS.items() if shipped(cls)}
    untried = registered - seen - elsewhere
    assert not untried, f"add a problem or a solver with {untried} to tests/runs/cases.py"
    assert elsewhere <= registered


def test_floats_and_strange_arrays_survive(path, small):
    history = {
        "strided": np.arange(12.0).reshape(3, 4)[::-1, ::2],
        "transposed": np.arange(6).reshape(2, 3).T,
        "scalar": np.array(0.1),
        "empty": np.zeros((0, 3), np.float16),
        "flags": np.array([True, False]),
        "special": np.array([np.inf, -0.0, np.nan]),
    }
    odd = altered(small, weights=jnp.asarray([0.1, 1e-45], jnp.float32), history=history)
    for l2 in (0.1, 1 / 3, 5e-324, 1.7976931348623157e308):
        problem = altered(small.problem, l2=l2)
        ep.save(altered(odd, problem=problem, seed=np.int64(2**32 - 1)), path)
        loaded = ep.load(path)
        assert loaded.problem.l2 == l2
        assert loaded.seed == 2**32 - 1
        assert_same(np.ascontiguousarray(history["strided"]), loaded.history["strided"])
        for name, array in odd.history.items():
            np.testing.assert_array_equal(array, loaded.history[name], strict=True)
    loaded.history["flags"][0] = False  # an array that owns its memory, not a view of the file


def test_the_same_solution_makes_the_same_file(path, tmp_path, small):
    ep.save(small, path)
    ep.save(small, tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()
    assert set(safetensors.numpy.load(path.read_bytes())) >= {
        "particles",
        "problem.features.rows",
        "problem.loss.y",
        "history.gap",
    }


def test_classes_of_the_user_are_refused_and_nothing_is_written(path, small):
    class Quartic(ep.Loss):
        def value(self, moments):
            return moments**4 / 4

    class Squared(ep.Squared):  # not ours, in spite of its name
        pass

    for loss in (Quartic(), Squared([0.5, 0.1])):
        solution = altered(small, problem=altered(small.problem, loss=loss))
        with pytest.raises(ValueError, match=rf"{type(loss).__name__} is a class of your own"):
            ep.save(solution, path)
    with pytest.raises(
        ValueError, match=r"history\.z is of type builtins\.object, which no file can hold"
    ):
        ep.save(altered(small, history={"z": object()}), path)
    with pytest.raises(ValueError, match=r"seed of Solution must be .*int.*, not str"):
        ep.save(altered(small, seed="7"), path)
    with pytest.raises(ValueError, match=r"weights of Solution must be .*Float.*, not ndarray"):
        ep.save(altered(small, weights=np.asarray(small.weights)), path)
    with pytest.raises(ValueError, match=r"history\.z is an array of complex128"):
        ep.save(altered(small, history={"z": np.ones(2, complex)}), path)
    with pytest.raises(ValueError, match="'solution' parameter of save must be a Solution"):
        inspect.unwrap(ep.save)(small.problem, path)
    with pytest.raises(ValueError, match="do not fit its problem"):
        ep.save(altered(small, weights=small.weights[:1]), path)
    assert list(path.parent.iterdir()) == []
