"""Files that are safe to keep and safe to open: solutions, and checkpoints of runs under way.

A file is in the safetensors format: arrays as raw bytes, each named by its place ("problem.features.rows"), and one JSON text
that says which records they belong to. Nothing in it is ever executed (no pickle): reading fills the declared fields of the
records in `RECORDS` with values of the declared types. A SHA-256 digest covers everything, so that what can be opened is what
was saved. It finds accidents, not forgers, who can compute one too: hence the checks of types, shapes and finiteness.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from ..base.arguments import flag, invalid, positive, whole
from ..methods.samplers.base import MALA, ULA, Sampler
from ..methods.solvers import EFP, MFLD, PDA, PSDCA, NaiveEFP, NewtonEFP, Solver
from ..painting.painting import Film, Painting
from ..painting.triangle_painter import CosineSteps, TrianglePainter
from ..problems.features.base import FeatureMap, FunctionFeatures, GaussianKernel
from ..problems.features.neurons import Neurons
from ..problems.features.triangles import Triangles
from ..problems.losses.base import (
    CrossEntropy,
    FunctionLoss,
    Huber,
    Logistic,
    Loss,
    NegLog,
    Squared,
)
from ..problems.problem import FiniteSum
from ..verbs.certify import Certificate
from .model import Model
from .solution import Compression, History, Reason, Solution, Status

SCHEMA = 1
"""The version of the format, raised whenever an older reader would misread a newer file."""
MAX_BYTES = 2**34
"""A larger file (16 GiB) is not read unless asked for."""
MAX_HEADER = 2**24
"""No file of ours describes itself in more bytes: a longer header is a damaged or forged one."""
ROW_AXES = {"problem.features.rows": 0, "problem.weights": 0, "moments": 0, "dual": 0, "path": 1}
"""Arrays with one entry per training row, and along which axis; those of the loss are such too."""
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
FilePath = str | os.PathLike[str]


class FileFormatError(ValueError):
    """The file is damaged, or not one that this version of entroplay reads."""


class MissingFunctionError(ValueError):
    """The file names a function that was not given to `load`."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A run under way: whose it is, how far it has come, the leaves of its state, and the history so far."""

    fingerprint: str
    iteration: int
    leaves: list[Any]
    history: History


_FEATURES = (Neurons, GaussianKernel, FunctionFeatures, Triangles)
_LOSSES = (Squared, Huber, Logistic, CrossEntropy, NegLog, FunctionLoss)
_METHODS = (NewtonEFP, EFP, NaiveEFP, MFLD, PDA, PSDCA, TrianglePainter, ULA, MALA, CosineSteps)
_RESULTS = (Solution, Status, Compression, Checkpoint, Painting, Film, Model, Certificate)
RECORDS: dict[str, type] = {
    r.__name__: r for r in (*_RESULTS, FiniteSum, *_FEATURES, *_LOSSES, *_METHODS)
}
"""All that a file may hold, by name. A new loss, feature map, sampler or solver is added here."""


def save(solution: Solution | Painting | Any, path: FilePath, *, data: bool = True) -> None:
    """Write a solution, a painting or a fitted estimator of `entroplay.sklearn` to a file, in place of what was there: after a
    crash it is the old one or the new one, whole.

    Functions (h, a loss's function, schedules) are stored by name only and given again to `load`. Classes of your own and
    numbers that are not finite are refused. A process that is killed may leave a file ".entroplay-*.tmp" behind.

    `data=False` leaves out the training rows, targets and sample weights, and what has one entry for each of them (moments,
    dual, path). Such a file predicts, but can be neither certified nor continued.

    >>> import tempfile, entroplay as ep
    >>> from entroplay.runs.files import load, save
    >>> problem = ep.FiniteSum(ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8]), temperature=0.01, l2=0.01)
    >>> solution = ep.solve(problem, ep.EFP(rate=0.1), particles=20, iterations=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(solution, f"{folder}/network.safetensors")
    ...     same = load(f"{folder}/network.safetensors")
    >>> bool((same.predict([[1.5]]) == solution.predict([[1.5]])).all())
    True
    """
    to_model = getattr(solution, "to_model", None)
    solution = solution if to_model is None else to_model()
    if not isinstance(solution, Solution | Painting | Model):
        raise invalid(
            "save",
            "solution",
            "a Solution, a Painting or an estimator of entroplay.sklearn",
            solution,
        )
    _check_parts(solution)
    encoder = Encoder()
    content = encoder(solution)
    if not flag("save", "data", data):
        if isinstance(solution, Painting):
            raise invalid("save", "data", "True for a painting, whose data are the picture", data)
        for full_name, array in encoder.tensors.items():
            name = full_name.removeprefix("solution.")
            axis = 0 if name.startswith("problem.loss.") and array.ndim else ROW_AXES.get(name)
            encoder.tensors[full_name] = (
                array if axis is None else np.take(array, np.arange(0), axis)
            )
    _write(path, _KINDS[type(solution)], content, encoder.tensors)


_KINDS: dict[type, str] = {
    Solution: "solution",
    Painting: "painting",
    Model: "model",
    Checkpoint: "checkpoint",
}


def load(
    path: FilePath,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read what `save` wrote: a `Solution` or a `Painting` in the precision in which it was solved, or an estimator.

    Args:
        path: the file; `FileFormatError` says why one cannot be read.
        functions: those that the file names, by the field that held them, `{"h": h}`, or with the owner's name where several
            records have such a field, `{"ULA.step_size": f}`.
        max_bytes: a larger file is refused before it is read.
    """
    functions = dict(functions or {})
    if not all(map(callable, functions.values())):
        raise invalid("load", "functions", "a dictionary of functions", functions)
    with _refused(path):
        kind, content, tensors = _read(path, (Solution, Painting, Model), max_bytes)
        decoder = _Decoder(content, tensors, functions)
        solution = decoder.result(kind)
        _check_parts(solution)
        result = _estimator(solution) if isinstance(solution, Model) else solution
    if unused := functions.keys() - decoder.used:
        raise invalid(
            "load", "functions", f"a dictionary of functions that {path} asks for", sorted(unused)
        )
    return result


def _estimator(model: Model) -> Any:
    from ..sklearn.storable import (
        estimator_of,
    )  # only here: scikit-learn is not needed for anything else

    return estimator_of(model)


def write_checkpoint(
    path: FilePath,
    *,
    fingerprint: str,
    iteration: int,
    leaves: Sequence[Any],
    history: Mapping[str, np.ndarray],
) -> None:
    """Write the state of a run as `save` writes a solution. Floating leaves must be finite, the history need not be."""
    encoder = Encoder()
    iteration = whole("write_checkpoint", "iteration", iteration, least=0)
    _write(
        path,
        _KINDS[Checkpoint],
        encoder(Checkpoint(fingerprint, iteration, list(leaves), dict(history))),
        encoder.tensors,
    )


def read_checkpoint(path: FilePath, *, max_bytes: int = MAX_BYTES) -> Checkpoint | None:
    """What `write_checkpoint` wrote, each leaf a JAX or a NumPy array as it was; None where there is no file."""
    with suppress(FileNotFoundError), _refused(path):
        kind, content, tensors = _read(path, (Checkpoint,), max_bytes)
        return _Decoder(content, tensors, {}).result(kind)


def _check_parts(solution: Solution | Painting | Model) -> None:
    """Refuse parts that do not fit each other; the training rows may be missing."""
    if isinstance(solution, Model):
        return _check_parts(solution.solution)
    if isinstance(solution, Painting):
        _check_parts(solution.solution)
        film, cloud = solution.film, solution.solution.particles.shape
        fit = (
            solution.running_mean.shape == solution.shape
            and solution.background.shape == solution.shape[2:]
        )
        if (
            not fit
            or film.particles.shape != (len(film.iterations), *cloud)
            or len(film.iterations) == 0
        ):
            raise ValueError(
                "The shapes of the painting's arrays do not fit each other: store it as paint returned it."
            )
        return
    problem, moments, m = solution.problem, solution.moments.shape, solution.weights.shape[0]
    shapes = (problem.features.shape, (0, *problem.features.channels))
    fit = solution.particles.shape == (m, problem.dim) and moments in shapes
    fit = fit and moments == solution.dual.shape == solution.path.shape[1:]
    if (
        not fit
        or problem.weights.shape != moments[:1]
        or problem.loss.data_shape not in (None, *shapes)
    ):
        raise ValueError(
            "The shapes of the solution's arrays do not fit its problem: store it as solve returned it."
        )
    positive("FiniteSum", "temperature", problem.temperature)
    l2 = np.asarray(problem.l2)
    if l2.shape not in ((), (problem.dim,)) or not (l2 > 0).all():
        raise ValueError(
            "The l2 of the solution's problem does not fit it: store it as solve returned it."
        )


def _json(value: object) -> str:
    """One text for one value, so that a file's text can be held against it character by character."""
    return json.dumps(value, separators=(",", ":"))


def digest(kind: str, content: object, tensors: Mapping[str, np.ndarray]) -> str:
    """Of the description, with every array's name, type and shape, and then of all bytes."""
    names = sorted(tensors)
    outline = [[name, tensors[name].dtype.name, tensors[name].shape] for name in names]
    sha = hashlib.sha256(_json([SCHEMA, kind, content, outline]).encode())
    for name in names:
        sha.update(tensors[name].ravel().view(np.uint8).data)
    return sha.hexdigest()


def _check_finite(tensors: Mapping[str, np.ndarray]) -> None:
    """Only the history, from which nothing is computed, may hold NaN: methods without a gap of their own record it."""
    for name, array in tensors.items():
        if (
            array.dtype.kind == "f"
            and "history" not in name.split(".")
            and not np.isfinite(array).all()
        ):
            index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
            raise ValueError(
                f"{name}{list(index)} is {array[index]}; only finite numbers are stored. Has the run diverged?"
            )


def _write(path: FilePath, kind: str, content: object, tensors: dict[str, np.ndarray]) -> None:
    """Write beside the old file, force it to the disk, put it in the old one's place."""
    _check_finite(tensors)
    header = {
        "schema": SCHEMA,
        "kind": kind,
        "content": content,
        "sha256": digest(kind, content, tensors),
    }
    raw = safetensors.numpy.save(tensors, {"entroplay": _json(header)})
    target = Path(os.path.realpath(path))  # a link stays a link
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {target.parent} to write to: make it first.")
    temporary = target.parent / f".entroplay-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with suppress(
        OSError
    ):  # some systems cannot force a folder to the disk; the file itself is there
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _refused(path: FilePath) -> Iterator[None]:
    """Whatever a bad file makes JSON, safetensors, NumPy or a record raise, it means one thing."""
    try:
        yield
    except (FileFormatError, MissingFunctionError, OSError, ImportError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise FileFormatError(
            f"{path} is damaged, or not a file of entroplay ({reason}). Restore it, or save it again."
        ) from error


def _read(
    path: FilePath, kinds: tuple[type, ...], max_bytes: int
) -> tuple[type, Any, dict[str, np.ndarray]]:
    """What a file holds, its description and its arrays, once its integrity is certain."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise FileFormatError(
                f"{path} has {size} bytes, more than max_bytes={max_bytes}: raise that if you trust the file."
            )
        raw = file.read(size)  # not one byte more: a device has no end
    end = 8 + int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or end > min(len(raw), MAX_HEADER):
        raise FileFormatError(
            f"{path} is cut short, or not a safetensors file. Restore it, or save it again."
        )
    text = json.loads(raw[8:end]).get("__metadata__", {}).get("entroplay")
    if text is None:
        raise FileFormatError(
            f"{path} is a safetensors file, but not one that entroplay wrote: only those can be read."
        )
    header = json.loads(text)
    if isinstance(header["schema"], int) and header["schema"] > SCHEMA:
        version = f"schema {header['schema']}, this one reads {SCHEMA}"
        raise FileFormatError(
            f"{path} was written by a newer version of entroplay: {version}. Upgrade entroplay."
        )
    found, content, tensors = header["kind"], header["content"], safetensors.numpy.load(raw)
    sha256 = digest(found, content, tensors)
    if text != _json({"schema": SCHEMA, "kind": found, "content": content, "sha256": sha256}):
        raise FileFormatError(
            f"{path} was altered: its content does not match its digest. Restore it, or save it again."
        )
    for kind in kinds:
        if found == _KINDS[kind]:
            _check_finite(tensors)
            return kind, content, tensors
    wanted = " or a ".join(_KINDS[kind] for kind in kinds)
    raise FileFormatError(
        f"{path} holds a {found}, not a {wanted}: load reads solutions, paintings and models, solve(checkpoint=) checkpoints."
    )


class Encoder:
    """Describes a value in JSON and puts its arrays aside, each under the name of its place."""

    checks_types = True

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}

    def __call__(self, value: Any, path: str = "") -> Any:
        if isinstance(value, Reason):
            return {"reason": value.value}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, jax.Array | np.ndarray):
            return {"array": self.array(value, path)}
        if type(value) in (list, tuple):
            return {
                type(value).__name__: [self(item, f"{path}.{i}") for i, item in enumerate(value)]
            }
        if type(value) is dict and all(
            isinstance(key, str) and key.isidentifier() for key in value
        ):
            return {"dict": {key: self(item, f"{path}.{key}") for key, item in value.items()}}
        if RECORDS.get(type(value).__name__) is type(value):
            return {
                "class": type(value).__name__,
                "fields": {name: self.field(value, name, path) for name in _fields(type(value))},
            }
        return self.other(value, path)

    def field(self, record: Any, name: str, path: str) -> Any:
        value = getattr(record, name)
        value = value.item() if isinstance(value, np.generic) else value
        if self.checks_types:
            _check_type(type(record), name, value)  # rather than write what load would refuse
        return self(value, f"{path}.{name}".lstrip("."))

    def array(self, value: Any, path: str) -> str:
        if str(value.dtype) not in DTYPES:
            raise ValueError(
                f"{path} is an array of {value.dtype}, which no file can hold: make it real numbers."
            )
        self.tensors[path] = np.asarray(
            value, order="C"
        )  # safetensors copies memory and does not look at strides
        return "jax" if isinstance(value, jax.Array) else "numpy"

    def other(self, value: Any, path: str) -> Any:
        if isinstance(value, Loss | FeatureMap | Sampler | Solver):
            raise ValueError(
                f"{qualified(value)} is a class of your own, which no file can hold. Store particles and weights by NumPy, or "
                "use FunctionFeatures or FunctionLoss, whose functions load takes again."
            )
        if callable(value):
            return {"function": path.rpartition(".")[2], "was": qualified(value)}
        raise ValueError(
            f"{path} is of type {qualified(value)}, which no file can hold: use numbers, text, arrays, functions."
        )


class _Decoder:
    """Rebuilds records without calling their constructors, each value held against the type its field declares."""

    def __init__(
        self,
        content: Any,
        tensors: dict[str, np.ndarray],
        functions: Mapping[str, Callable[..., Any]],
    ):
        self.content, self.tensors, self.functions = content, tensors, functions
        self.used: set[str] = set()

    def result(self, kind: type) -> Any:
        value = self(self.content, "", "")
        if type(value) is not kind or self.tensors:
            raise TypeError(f"a {kind.__name__} was expected, and no arrays besides its own")
        return value

    def __call__(self, node: Any, path: str, owner: str) -> Any:
        match node:
            case None | bool() | int() | float() | str():
                return node
            case {"reason": str(reason)}:
                return Reason(reason)
            case {"array": "numpy"}:
                return self.tensors.pop(path)
            case {"array": "jax"}:
                with jax.enable_x64(True):  # so that double precision stays what it is
                    return jnp.array(self.tensors.pop(path))
            case {"list": list(items)}:
                return [self(item, f"{path}.{i}", owner) for i, item in enumerate(items)]
            case {"tuple": list(items)}:
                return tuple(self(item, f"{path}.{i}", owner) for i, item in enumerate(items))
            case {"dict": dict(items)}:
                return {key: self(item, f"{path}.{key}", owner) for key, item in items.items()}
            case {"class": str(name), "fields": dict(fields)}:
                return self.record(RECORDS[name], fields, path)
            case {"function": str(name), "was": str(was)}:
                return self.function(name, was, owner)
        raise TypeError(f"{path} is of no known kind")

    def record(self, cls: type, nodes: dict[str, Any], path: str) -> Any:
        fields, record = _fields(cls), object.__new__(cls)
        for name in {**fields, **nodes}:
            if name in fields and name in nodes:
                value = self(nodes[name], f"{path}.{name}".lstrip("."), cls.__name__)
            elif name in fields and fields[name].default is not dataclasses.MISSING:
                value = fields[name].default  # a field that is younger than the file
            else:
                raise TypeError(
                    f"{cls.__name__} and its field {name} are not as in this version of entroplay"
                )
            _check_type(cls, name, value)
            object.__setattr__(record, name, value)
        return record

    def function(self, name: str, was: str, owner: str) -> Callable[..., Any]:
        for key in (f"{owner}.{name}", name):
            if key in self.functions:
                self.used.add(key)
                return self.functions[key]
        raise MissingFunctionError(
            f"The file holds functions by name only, and the '{name}' of {owner} was {was}. "
            f"Pass the same one again: load(..., functions={{{name!r}: ...}})."
        )


def _fields(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a record that an instance holds itself; what is declared above and computed here (`dim`) is none."""
    return {
        f.name: f
        for f in dataclasses.fields(cls)
        if not isinstance(getattr(cls, f.name, None), property)
    }


def _check_type(cls: type, name: str, value: object) -> None:
    hint = typing.get_type_hints(cls)[name]
    if not _fits(value, hint):
        raise ValueError(f"{name} of {cls.__name__} must be {hint}, not {type(value).__name__}.")


def _fits(value: object, hint: Any) -> bool:
    """Whether the value is of the declared type; jaxtyping's types check an array's rank and kind of numbers."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, alternative) for alternative in typing.get_args(hint))
    return hint is Any or isinstance(
        value, typing.get_origin(hint) or (float | int if hint is float else hint)
    )


def qualified(value: Any) -> str:
    named = value if hasattr(value, "__name__") else type(value)
    return f"{getattr(named, '__module__', None)}.{getattr(named, '__qualname__', named.__name__)}"
