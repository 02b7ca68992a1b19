"""Files: what is loaded is what was saved, or the file is refused with a sentence; a crash never costs the old one."""

import dataclasses
import functools
import inspect
import json
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
from problems.cases import ALL, INPUTS, cross_entropy, squared, two_channels

import entroplay as ep
from entroplay.runs import files as storage
from entroplay.runs.checkpoints import fingerprint
from entroplay.runs.files import FileFormatError, load, read_checkpoint, save, write_checkpoint
from entroplay.runs.solution import Reason

MARKER = 0.123456789
"""A training datum that no computation leaves behind by chance."""


def halving(t):
    return 0.4 * 0.5**t


def pseudo_huber(z, y):
    return jnp.sqrt(1 + (z - y) ** 2) - 1


def altered(record, **fields):
    """A copy with other values in some fields, whatever the constructor would say."""
    copy = object.__new__(type(record))
    for name, value in {**vars(record), **fields}.items():
        object.__setattr__(copy, name, value)
    return copy


def solution_of(problem, solver=None, m=5):
    """A Solution with every field filled, without a run: fast, and independent of the solvers."""
    with jax.enable_x64(problem.dtype == jnp.float64):
        rng = np.random.default_rng(0)
        particles = jnp.asarray(rng.normal(size=(m, problem.dim)), problem.dtype)
        moments = problem.features.average(particles)
        dual = problem.slope(moments)
        history = {
            "iteration": np.arange(1, 4),
            "gap": np.array([np.nan, 0.1, 1 / 3]),
            "seconds": np.arange(3.0),
        }
        return ep.Solution(
            problem=problem, solver=solver or ep.EFP(0.1), particles=particles, moments=moments, dual=dual,
            weights=jnp.asarray(rng.normal(size=m), problem.dtype), history=history, path=jnp.stack([0 * dual, dual]),
            status=ep.Status(Reason.ITERATIONS, "all 3 iterations done, naïvely “quoted”."), seed=7,
        )  # fmt: skip


def assert_same(a, b, place="solution"):
    """Equal to the last bit, in value, type, precision and kind of array."""
    assert type(a) is type(b), place
    if isinstance(a, np.ndarray | jax.Array):
        assert a.dtype == b.dtype, place
        assert a.shape == b.shape, place
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), place
    elif isinstance(a, dict):
        assert list(a) == list(b), place
        for key in a:
            assert_same(a[key], b[key], f"{place}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), place
        for i, pair in enumerate(zip(a, b, strict=True)):
            assert_same(*pair, f"{place}.{i}")
    elif dataclasses.is_dataclass(a):
        assert_same(dict(sorted(vars(a).items())), dict(sorted(vars(b).items())), place)
    else:
        assert a == b, place


X2 = np.stack([INPUTS, INPUTS**2], axis=1)
Y2 = np.stack([np.sin(INPUTS), np.cos(INPUTS)], axis=1)
PROBLEMS = {
    **ALL,
    "two outputs": lambda: ep.FiniteSum(
        ep.Neurons(X2, activation="erf", bias=True, output_weight=True, outputs=2, scale=0.1), ep.Squared(Y2, scale=3.7),
        temperature=0.1, l2=1 / 3,
    ),
    "planar density": lambda: ep.FiniteSum(ep.GaussianKernel(X2, bandwidth=[0.3, 0.7]), ep.NegLog(), temperature=0.02, l2=0.1),
    "huber": lambda: ep.FiniteSum(ep.Neurons(X2), ep.Huber(INPUTS, delta=0.7), temperature=0.1, l2=0.1),
    "own loss": lambda: ep.FiniteSum(ep.Neurons(X2), ep.FunctionLoss(pseudo_huber, INPUTS), temperature=0.1, l2=0.1),
}  # fmt: skip
FUNCTIONS = {"cross_entropy": {"h": two_channels}, "own loss": {"function": pseudo_huber}}
SOLVERS = {
    "NewtonEFP": ep.NewtonEFP(), "EFP with ULA": ep.EFP(0.1, ep.ULA(0.003, steps=3, fresh=True)),
    "NaiveEFP": ep.NaiveEFP(0.25, ep.MALA(steps=4, step_size=0.1)), "MFLD": ep.MFLD(1 / 3),
    "PDA": ep.PDA(), "PSDCA": ep.PSDCA(batch=3, half_range=2.5),
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "solution.safetensors"


@pytest.fixture(scope="module")
def small():
    features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, MARKER])
    return solution_of(ep.FiniteSum(features, loss, temperature=0.01, l2=0.01), m=2)


# Round trips ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_every_problem_comes_back_bit_for_bit(name, double, path):
    with jax.enable_x64(double):
        solution = solution_of(PROBLEMS[name]())
    save(solution, path)
    loaded = load(path, functions=FUNCTIONS.get(name))
    assert_same(solution, loaded)
    assert loaded.particles.dtype == (np.float64 if double else np.float32)
    rows = np.asarray(solution.problem.features.rows)[:3] + 0.25
    assert_same(solution.predict(rows), loaded.predict(rows))


@pytest.mark.parametrize("name", list(SOLVERS))
def test_every_solver_comes_back(name, path):
    solution = solution_of(squared(), SOLVERS[name])
    save(solution, path)
    assert_same(solution, load(path))


def test_a_loaded_solution_prints_the_same_and_goes_on(path):
    solution = ep.solve(squared(), ep.EFP(0.1, ep.ULA()), particles=8, iterations=2)
    save(solution, path)
    loaded = load(path)
    assert_same(solution, loaded)
    assert repr(loaded) == repr(solution)
    further = [
        ep.solve(s.problem, s.solver, particles=8, iterations=2, start=s)
        for s in (solution, loaded)
    ]
    assert_same(further[0].particles, further[1].particles)


def test_the_list_of_records_is_complete_and_every_one_is_tried():
    def belongs(cls):
        """Defined in a file of the package, and not by an example in one of its docstrings."""
        return (
            cls.__module__.startswith("entroplay.")
            and getattr(sys.modules[cls.__module__], cls.__name__, None) is cls
        )

    def descendants(cls):
        return {s for c in cls.__subclasses__() for s in {c} | descendants(c) if belongs(s)}

    shipped = set().union(
        *(descendants(base) for base in (ep.Loss, ep.FeatureMap, ep.Sampler, ep.Solver))
    )
    # A private map is a step inside a computation and never reaches a file.
    concrete = {
        cls.__name__
        for cls in shipped
        if not cls.__abstractmethods__ and not cls.__name__.startswith("_")
    }
    forgotten = concrete - storage.RECORDS.keys()
    assert not forgotten, f"add to RECORDS in storage.py, and to the round trips here: {forgotten}"
    tried = [PROBLEMS[name]() for name in PROBLEMS] + list(SOLVERS.values())
    seen = {type(part).__name__ for record in tried for part in (record, *vars(record).values())}
    results = {"Solution", "Status", "Checkpoint", "Compression"}
    in_test_paint = {"Painting", "Film", "Triangles", "TrianglePainter", "CosineSteps"}
    in_test_estimators = {"Model", "Certificate"}
    assert storage.RECORDS.keys() - seen <= results | in_test_paint | in_test_estimators


def test_every_array_of_a_solution_is_known_to_hold_data_or_not():
    """A new array in Solution: does it have one entry per training row? Then data=False must empty it (ROW_AXES)."""
    fields = {field.name for field in dataclasses.fields(ep.Solution)}
    without_rows = {
        "problem",
        "solver",
        "particles",
        "weights",
        "history",
        "status",
        "seed",
        "iterate",
        "compression",
    }
    assert fields - without_rows == {name for name in storage.ROW_AXES if "." not in name}


def test_floats_and_strange_arrays_survive(path, small):
    odd = altered(small, weights=jnp.asarray([0.1, 1e-45], jnp.float32), history={
        "strided": np.arange(12.0).reshape(3, 4)[::-1, ::2], "transposed": np.arange(6).reshape(2, 3).T, "scalar": np.array(0.1),
        "empty": np.zeros((0, 3), np.float16), "flags": np.array([True, False]), "special": np.array([np.inf, -0.0, np.nan]),
    })  # fmt: skip
    for l2 in (0.1, 1 / 3, 5e-324, 1.7976931348623157e308):
        problem = altered(small.problem, l2=l2)
        save(altered(odd, problem=problem, seed=np.int64(2**32 - 1)), path)
        loaded = load(path)
        assert loaded.problem.l2 == l2
        assert loaded.seed == 2**32 - 1
        assert_same(
            {k: np.ascontiguousarray(v) for k, v in odd.history.items()}["strided"],
            loaded.history["strided"],
        )
        for name, array in odd.history.items():
            np.testing.assert_array_equal(array, loaded.history[name], strict=True)
    loaded.history["flags"][0] = False  # an array of one's own, not a view of the file


def test_the_same_solution_makes_the_same_file(path, tmp_path, small):
    save(small, path)
    save(small, tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()
    assert set(safetensors.numpy.load(path.read_bytes())) >= {
        "particles",
        "problem.features.rows",
        "problem.loss.y",
        "history.gap",
    }


# Functions and classes of the user ------------------------------------------------------------------------------------------


def test_functions_are_asked_for_by_name(path):
    save(solution_of(cross_entropy()), path)
    with pytest.raises(
        ValueError,
        match=r"'h' of FunctionFeatures was \S*problems\.two_channels.*functions=\{'h': \.\.\.\}",
    ) as e:
        load(path)
    assert not isinstance(e.value, FileFormatError)
    with pytest.raises(ValueError, match=r"'functions' parameter of load must be .*'g'"):
        load(path, functions={"h": two_channels, "g": two_channels})
    with pytest.raises(ValueError, match=r"'functions' parameter of load must be .*'two_channels'"):
        inspect.unwrap(load)(path, functions={"h": "two_channels"})


def test_schedules_are_asked_for_by_name_and_by_owner(path):
    schedule = optax.exponential_decay(0.1, 10, 0.5)
    solution = solution_of(squared(), ep.EFP(rate=schedule, sampler=ep.ULA(step_size=halving)))
    save(solution, path)
    with pytest.raises(ValueError, match=r"'rate' of EFP was optax\..*exponential_decay.*schedule"):
        load(path)
    with pytest.raises(ValueError, match=r"'step_size' of ULA was \S*halving"):
        load(path, functions={"rate": schedule})
    assert_same(solution, load(path, functions={"rate": schedule, "ULA.step_size": halving}))


def test_classes_of_the_user_are_refused_and_nothing_is_written(path, small):
    class Quartic(ep.Loss):
        def value(self, moments):
            return moments**4 / 4

    class Squared(ep.Squared):  # not ours, in spite of its name
        pass

    for loss in (Quartic(), Squared([0.5, 0.1])):
        solution = altered(small, problem=altered(small.problem, loss=loss))
        with pytest.raises(ValueError, match=rf"{type(loss).__name__} is a class of your own"):
            save(solution, path)
    with pytest.raises(
        ValueError, match=r"history\.z is of type builtins\.object, which no file can hold"
    ):
        save(altered(small, history={"z": object()}), path)
    with pytest.raises(ValueError, match=r"seed of Solution must be .*int.*, not str"):
        save(altered(small, seed="7"), path)
    with pytest.raises(ValueError, match=r"weights of Solution must be .*Float.*, not ndarray"):
        save(altered(small, weights=np.asarray(small.weights)), path)
    with pytest.raises(ValueError, match=r"history\.z is an array of complex128"):
        save(altered(small, history={"z": np.ones(2, complex)}), path)
    with pytest.raises(ValueError, match="'solution' parameter of save must be a Solution"):
        inspect.unwrap(save)(small.problem, path)
    with pytest.raises(ValueError, match="do not fit its problem"):
        save(altered(small, weights=small.weights[:1]), path)
    assert list(path.parent.iterdir()) == []


# Without the data -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_a_file_without_data_predicts(name, path):
    solution = solution_of(PROBLEMS[name]())
    save(solution, path, data=False)
    loaded = load(path, functions=FUNCTIONS.get(name))
    rows = np.asarray(solution.problem.features.rows)[:3] + 0.25
    assert_same(solution.predict(rows), loaded.predict(rows))
    assert (
        loaded.moments.shape[0]
        == loaded.dual.shape[0]
        == loaded.path.shape[1]
        == loaded.problem.weights.shape[0]
        == 0
    )
    assert loaded.path.shape[0] == 2
    assert "n=0" in repr(loaded.problem)


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
        save(solution, path, data=data)
        raw = path.read_bytes()
        for array in secrets:
            for number in np.asarray(array).ravel():
                assert (number.tobytes() in raw) == data


# Damage ---------------------------------------------------------------------------------------------------------------------


def test_a_file_cut_anywhere_is_refused(path, small):
    save(small, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"solution\.safetensors"):
            load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(FileFormatError, match="damaged"):
        load(path)


def flip(raw, bit):
    raw = bytearray(raw)
    raw[bit // 8] ^= 1 << bit % 8
    return bytes(raw)


@pytest.mark.parametrize(
    "flips", [500, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_flipped_bit_is_found(path, small, flips):
    save(small, path)
    whole = path.read_bytes()
    bits = (
        range(8 * len(whole))
        if flips is None
        else random.Random(0).sample(range(8 * len(whole)), flips)
    )
    for bit in bits:
        path.write_bytes(flip(whole, bit))
        with pytest.raises(FileFormatError, match=r"solution\.safetensors"):
            load(path)


def test_random_bytes_are_refused(path):
    rng = random.Random(0)
    for length in [0, 1, 7, 8, 9, *range(10, 400, 13)]:
        path.write_bytes(rng.randbytes(length))
        with pytest.raises(FileFormatError):
            load(path)
        path.write_bytes(length.to_bytes(8, "little") + b"[" * length)  # JSON as deep as it is long
        with pytest.raises(FileFormatError):
            load(path)
    path.write_bytes((10**5).to_bytes(8, "little") + b"[" * 10**5)
    with pytest.raises(FileFormatError):
        load(path)


def forge(path, change, *, kind="solution", schema=storage.SCHEMA):
    """Rewrite a file with other content and a right digest, as a forger can."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(json.loads(raw[8:end])["__metadata__"]["entroplay"])
    content, tensors = header["content"], safetensors.numpy.load(raw)
    change(content["fields"], tensors)
    digest = storage.digest(kind, content, tensors)
    text = storage._json({"schema": schema, "kind": kind, "content": content, "sha256": digest})
    path.write_bytes(safetensors.numpy.save(tensors, {"entroplay": text}))


def nest(fields, tensors):
    for _ in range(400):
        fields["seed"] = {"list": [fields["seed"]]}


def put(where, value):
    def change(fields, tensors):
        *parents, last = where.split(".")
        node = functools.reduce(lambda node, name: node[name]["fields"], parents, fields)
        node[last] = value

    return change


def array(name, value):
    return lambda fields, tensors: tensors.update({name: value})


FORGERIES = {
    "nothing": (lambda fields, tensors: None, None),
    "NaN among the particles": (
        array("particles", np.array([[1.0], [np.nan]], np.float32)),
        r"particles\[1, 0\] is nan",
    ),
    "infinite data": (
        array("problem.loss.y", np.array([np.inf, 0], np.float32)),
        r"problem\.loss\.y\[0\] is inf",
    ),
    "a text for a number": (put("problem.temperature", "hot"), "temperature of FiniteSum must be"),
    "a negative temperature": (put("problem.temperature", -1.0), "'temperature'"),
    "a NaN temperature": (put("problem.temperature", float("nan")), "'temperature'"),
    "a loss for a solver": (put("solver", {"class": "NegLog", "fields": {}}), "solver of Solution"),
    "a class that is not listed": (put("solver", {"class": "Popen", "fields": {}}), "Popen"),
    "a base class": (put("solver", {"class": "Solver", "fields": {}}), "Solver"),
    "a field that is not declared": (put("__class__", 1), "__class__"),
    "a property for a field": (put("problem.features.dim", 1), "dim"),
    "a reason that is none": (put("status.reason", {"reason": "bored"}), "bored"),
    "a node that is none": (put("status.reason", {"eval": "1"}), "no known kind"),
    "an array that is not there": (put("seed", {"array": "numpy"}), "seed"),
    "an array too many": (array("extra", np.ones(1)), "no arrays besides"),
    "a NumPy array for a JAX one": (put("moments", {"array": "numpy"}), "moments of Solution"),
    "whole numbers for particles": (
        array("particles", np.ones((2, 1), np.int32)),
        "particles of Solution",
    ),
    "a wrong rank": (array("particles", np.ones(2, np.float32)), "particles of Solution"),
    "particles of another dimension": (
        array("particles", np.ones((2, 3), np.float32)),
        "do not fit",
    ),
    "too few weights": (array("weights", np.ones(1, np.float32)), "do not fit"),
    "too many moments": (array("moments", np.ones(3, np.float32)), "do not fit"),
    "a field too few": (lambda fields, tensors: fields.pop("seed"), "seed"),
    "a well": (nest, "RecursionError"),
}


@pytest.mark.parametrize("name", list(FORGERIES))
def test_forged_content_is_refused(name, path, small):
    change, message = FORGERIES[name]
    save(small, path)
    forge(path, change)
    if message is None:
        assert_same(small, load(path))
        return
    with pytest.raises(FileFormatError, match=message):
        load(path)


def test_other_versions_kinds_and_files_are_told_apart(path, small):
    def keep(fields, tensors):
        pass

    with pytest.raises(FileNotFoundError):
        load(path)
    save(small, path)
    forge(path, keep, schema=2)
    with pytest.raises(
        FileFormatError, match="written by a newer version of entroplay: schema 2, this one reads 1"
    ):
        load(path)
    for schema in (0, "1", None, True, 1.5, [1]):
        save(small, path)
        forge(path, keep, schema=schema)
        with pytest.raises(FileFormatError):
            load(path)
    save(small, path)
    with pytest.raises(FileFormatError, match="holds a solution, not a checkpoint"):
        read_checkpoint(path)
    forge(path, keep, kind="checkpoint")
    with pytest.raises(FileFormatError, match="a Checkpoint was expected"):
        read_checkpoint(path)
    write_checkpoint(path, fingerprint="", iteration=0, leaves=[], history={})
    with pytest.raises(FileFormatError, match="holds a checkpoint, not a solution"):
        load(path)
    safetensors.numpy.save_file({"weights": np.ones(3)}, path)
    with pytest.raises(
        FileFormatError, match="a safetensors file, but not one that entroplay wrote"
    ):
        load(path)


def test_a_file_too_large_is_refused_unread(path, small, monkeypatch):
    save(small, path)
    size = path.stat().st_size
    assert_same(small, load(path, max_bytes=size))
    with pytest.raises(FileFormatError, match=rf"{size} bytes, more than max_bytes={size - 1}"):
        load(path, max_bytes=size - 1)
    with open(path, "r+b") as file:
        file.truncate(storage.MAX_BYTES + 1)  # sparse: takes no room
    with pytest.raises(FileFormatError, match="more than max_bytes"):
        load(path)
    for length in (2**63, 2**64 - 1, storage.MAX_HEADER + 1):  # of the header, says the file
        path.write_bytes(length.to_bytes(8, "little") + b"{}" * 100)
        with pytest.raises(FileFormatError, match="cut short"):
            load(path)


def test_memory_that_does_not_suffice_is_told_as_such(path, small, monkeypatch):
    def fail(raw):
        raise MemoryError

    save(small, path)
    monkeypatch.setattr(storage.safetensors.numpy, "load", fail)
    with pytest.raises(FileFormatError, match="MemoryError"):
        load(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["particles", "moments", "dual", "weights", "path"])
def test_what_is_not_finite_is_not_written(path, small, field, bad):
    save(small, path)
    before = path.read_bytes()
    array = getattr(small, field)
    with pytest.raises(ValueError, match=rf"^{field}\[.*\] is {bad}"):
        save(altered(small, **{field: array.at[-1].set(bad)}), path)
    loss = altered(small.problem.loss, y=small.problem.loss.y.at[0].set(bad))
    with pytest.raises(ValueError, match=rf"problem\.loss\.y\[0\] is {bad}"):
        save(altered(small, problem=altered(small.problem, loss=loss)), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# Writing --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fsync", "replace", "open", "write"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(
    path, small, monkeypatch, where, error
):
    save(small, path)

    def fail(*args, **kwargs):
        raise error

    class FullDisk:
        def __init__(self, *args):
            self.file = open(*args)  # noqa: SIM115

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self.file.close()

        def write(self, raw):
            self.file.write(raw[: len(raw) // 2])
            raise error

    with monkeypatch.context() as patch:
        if where in ("fsync", "replace"):
            patch.setattr(storage.os, where, fail)
        else:
            patch.setattr(storage, "open", fail if where == "open" else FullDisk, raising=False)
        with pytest.raises(type(error)):
            save(altered(small, seed=8), path)
    assert_same(small, load(path))
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_forced_to_the_disk_is_no_failure(path, small, monkeypatch):
    fsync = os.fsync

    def only_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(storage.os, "fsync", only_files)
    save(small, path)
    assert_same(small, load(path))


def test_modes_links_and_folders(path, tmp_path, small):
    before = os.umask(0o027)
    try:
        save(small, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / "link"
    link.symlink_to(path)
    save(altered(small, seed=8), str(link))
    assert link.is_symlink()
    assert load(path).seed == 8
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere.*make it first"):
        save(small, tmp_path / "nowhere" / "file")


KILLED = textwrap.dedent("""
    import os, sys
    import entroplay  # before the forks, so that it is imported once
    from entroplay.runs.files import load, save
    folder = sys.argv[1]
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            pair = load(folder + "/a"), load(folder + "/b")
            print(os.getpid(), flush=True)
            while True:
                for solution in pair:
                    save(solution, folder + "/target")
        os.waitpid(child, 0)
        print("dead", flush=True)
""")


@pytest.mark.parametrize("kills", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_a_process_killed_while_saving_leaves_a_whole_file(tmp_path, small, kills):
    pair = [
        altered(small, particles=jnp.full((m, 1), m, jnp.float32), weights=jnp.ones(m))
        for m in (200_000, 300_000)
    ]
    for name, solution in zip("ab", pair, strict=True):
        save(solution, tmp_path / name)
    target, rng, seen = tmp_path / "target", random.Random(0), set()
    save(small, target)
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        for kill in range(kills):
            print("go", file=parent.stdin, flush=True)
            child = int(parent.stdout.readline())
            try:
                parent.wait(rng.uniform(0, 0.08))
            except subprocess.TimeoutExpired:
                while kill % 2 and not list(tmp_path.glob(f".entroplay-{child}-*")):
                    pass  # every other one in the middle of a write
                os.kill(child, signal.SIGKILL)
            assert parent.stdout.readline() == "dead\n"
            loaded = load(target)
            seen.add(loaded.particles.shape[0])
            assert_same(
                loaded,
                {solution.particles.shape[0]: solution for solution in (small, *pair)}[
                    loaded.particles.shape[0]
                ],
            )
        parent.stdin.close()
    assert seen & {200_000, 300_000}, (
        "no save was ever completed: the kills came too early to prove anything"
    )
    unfinished = set(tmp_path.glob(".entroplay-*.tmp"))
    assert unfinished or kills < 25, "no kill fell into a write: nothing is proved"
    assert set(tmp_path.iterdir()) - unfinished == {tmp_path / "a", tmp_path / "b", target}


# Checkpoints ----------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back(path):
    assert read_checkpoint(path) is None
    with jax.enable_x64(True):
        leaves = [
            jnp.arange(3.0),
            jnp.ones((2, 2), jnp.float32),
            np.array(0.1),
            jnp.asarray(7, jnp.int32),
            jnp.zeros((0, 4)),
        ]
        leaves += [jax.random.key_data(jax.random.key(1))]
    history = {"gap": np.array([np.nan, np.inf, 0.1]), "iteration": np.arange(3)}
    write_checkpoint(path, fingerprint="abc", iteration=3, leaves=leaves, history=history)
    checkpoint = read_checkpoint(path)
    assert (checkpoint.fingerprint, checkpoint.iteration) == ("abc", 3)
    assert_same(leaves, checkpoint.leaves)
    assert_same(history, checkpoint.history)
    with pytest.raises(dataclasses.FrozenInstanceError):
        checkpoint.iteration = 4


def test_a_checkpoint_holds_many_leaves_in_order(path):
    leaves = [np.full(2, float(i)) for i in range(23)]
    write_checkpoint(path, fingerprint="", iteration=0, leaves=leaves, history={})
    assert_same(leaves, read_checkpoint(path).leaves)


def test_a_bad_checkpoint_is_neither_written_nor_read(path):
    def write(**changes):
        arguments = {
            "fingerprint": "f",
            "iteration": 1,
            "leaves": [np.ones(2)],
            "history": {"gap": np.ones(1)},
        } | changes
        write_checkpoint(path, **arguments)

    with pytest.raises(ValueError, match=r"leaves\.1\[1\] is nan"):
        write(leaves=[np.ones(1), np.array([1, np.nan])])
    with pytest.raises(ValueError, match=r"leaves\.0 is an array of key<"):
        write(leaves=[jax.random.key(0)])
    with pytest.raises(ValueError, match="'iteration' parameter of write_checkpoint"):
        write(iteration=-1)
    assert list(path.parent.iterdir()) == []
    write()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError):
            read_checkpoint(path)
    for bit in random.Random(1).sample(range(8 * len(whole)), 200):
        path.write_bytes(flip(whole, bit))
        with pytest.raises(FileFormatError):
            read_checkpoint(path)
    path.write_bytes(whole)
    with pytest.raises(FileFormatError, match="max_bytes"):
        read_checkpoint(path, max_bytes=10)


# Fingerprints ---------------------------------------------------------------------------------------------------------------

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
    given = {
        "X": INPUTS[:, None], "y": np.sin(INPUTS), "weights": 1 + INPUTS**2, "activation": "tanh", "scale": 1.0, "bias": False,
        "features": None, "loss": None, "temperature": 0.05, "l2": 0.05, "solver": ep.EFP(0.1, ep.ULA(0.01, steps=3)), "m": 10,
        "seed": 0,
    } | changes  # fmt: skip
    features = given["features"] or ep.Neurons(
        given["X"], given["activation"], given["bias"], scale=given["scale"]
    )
    loss = given["loss"] or ep.Squared(given["y"])
    weights = None if given["weights"] is None else given["weights"]
    problem = ep.FiniteSum(
        features, loss, temperature=given["temperature"], l2=given["l2"], weights=weights
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
    script = "import sys; sys.path.insert(0, sys.argv[1]); from test_storage import RUNS; print([make() for make in RUNS.values()])"
    outputs = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", script, str(Path(__file__).parents[1])]
        outputs.add(
            subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment
            ).stdout
        )
    assert len(outputs) == 1
