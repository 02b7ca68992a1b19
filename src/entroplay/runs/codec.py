"""Records as JSON and arrays, and back, without ever running code that a file names.

Writing describes a record by the names of its class and fields and sets its arrays aside, each
under the name of its place ("problem.features.rows"). Reading fills the declared fields of
registered classes (`base.registry`) with values of the declared types. There is no pickle.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.registry import RECORDS, record_named
from ..methods.samplers import Sampler
from ..methods.solvers import Solver
from ..problems.features.base import FeatureMap
from ..problems.losses.base import Loss
from .solution import Reason

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
)
"""Types of numbers that a file may hold."""


class MissingFunctionError(ValueError):
    """The file names a function that was not given to `load`."""


class Encoder:
    """Describes a value in JSON and sets its arrays aside, each under the name of its place."""

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
            items = [self(item, f"{path}.{i}") for i, item in enumerate(value)]
            return {type(value).__name__: items}
        if type(value) is dict and all(_is_name(key) for key in value):
            return {"dict": {key: self(item, f"{path}.{key}") for key, item in value.items()}}
        if RECORDS.get(type(value).__name__) is type(value):
            fields = {name: self.field(value, name, path) for name in own_fields(type(value))}
            return {"class": type(value).__name__, "fields": fields}
        return self.other(value, path)

    def field(self, record: Any, name: str, path: str) -> Any:
        """Describe one field of a record, whose type must be the declared one."""
        value = getattr(record, name)
        value = value.item() if isinstance(value, np.generic) else value
        if self.checks_types:
            _check_type(type(record), name, value)  # rather than write what `load` would refuse
        return self(value, f"{path}.{name}".lstrip("."))

    def array(self, value: Any, path: str) -> str:
        """Set an array aside; returns whether it was JAX's or NumPy's."""
        if str(value.dtype) not in DTYPES:
            raise ValueError(
                f"{path} is an array of {value.dtype}, which no file can hold: "
                "make it real numbers."
            )
        # safetensors copies memory and ignores strides.
        self.tensors[path] = np.asarray(value, order="C")
        return "jax" if isinstance(value, jax.Array) else "numpy"

    def other(self, value: Any, path: str) -> Any:
        """Describe a function by its name; refuse everything else."""
        if isinstance(value, Loss | FeatureMap | Sampler | Solver):
            raise ValueError(
                f"{qualified(value)} is a class of your own, which no file can hold. Store "
                "particles and weights by NumPy, or use FunctionFeatures or FunctionLoss, whose "
                "functions load takes again."
            )
        if callable(value):
            return {"function": path.rpartition(".")[2], "was": qualified(value)}
        raise ValueError(
            f"{path} is of type {qualified(value)}, which no file can hold: use numbers, text, "
            "arrays, functions."
        )


class Decoder:
    """Rebuilds a record without calling constructors, and checks values against declared types."""

    def __init__(
        self,
        description: Any,
        tensors: dict[str, np.ndarray],
        functions: Mapping[str, Callable[..., Any]],
    ):
        self.description, self.tensors, self.functions = description, tensors, functions
        self.used: set[str] = set()
        """The keys of `functions` that the file asked for."""

    def result(self, kind: type) -> Any:
        """The whole file as an instance of `kind`, to which all its arrays must belong."""
        value = self(self.description, "", "")
        if type(value) is not kind or self.tensors:
            raise TypeError(f"a {kind.__name__} was expected, and no arrays other than its own")
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
                with jax.enable_x64(True):  # otherwise double precision would be lost
                    return jnp.array(self.tensors.pop(path))
            case {"list": list(items)}:
                return [self(item, f"{path}.{i}", owner) for i, item in enumerate(items)]
            case {"tuple": list(items)}:
                return tuple(self(item, f"{path}.{i}", owner) for i, item in enumerate(items))
            case {"dict": dict(items)}:
                return {key: self(item, f"{path}.{key}", owner) for key, item in items.items()}
            case {"class": str(name), "fields": dict(fields)}:
                return self.record(record_named(name), fields, path)
            case {"function": str(name), "was": str(was)}:
                return self.function(name, was, owner)
        raise TypeError(f"{path} is of no known kind")

    def record(self, cls: type, nodes: dict[str, Any], path: str) -> Any:
        """Fill in the fields of a registered class; fields unknown to the file get defaults."""
        fields, record = own_fields(cls), object.__new__(cls)
        for name in {**fields, **nodes}:
            if name in fields and name in nodes:
                value = self(nodes[name], f"{path}.{name}".lstrip("."), cls.__name__)
            elif name in fields and fields[name].default is not dataclasses.MISSING:
                value = fields[name].default
            else:
                raise TypeError(
                    f"{cls.__name__} and its field {name} are not as in this version of entroplay"
                )
            _check_type(cls, name, value)
            object.__setattr__(record, name, value)
        return record

    def function(self, name: str, was: str, owner: str) -> Callable[..., Any]:
        """The function that the caller gave for this field."""
        for key in (f"{owner}.{name}", name):
            if key in self.functions:
                self.used.add(key)
                return self.functions[key]
        raise MissingFunctionError(
            f"The file holds functions by name only, and the '{name}' of {owner} was {was}. "
            f"Pass the same one again: load(..., functions={{{name!r}: ...}})."
        )


def own_fields(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """The fields that an instance holds, without those that a property of the class computes."""
    fields = dataclasses.fields(cls)
    return {f.name: f for f in fields if not isinstance(getattr(cls, f.name, None), property)}


def qualified(value: Any) -> str:
    """The full name of a function, a class, or an object's class."""
    named = value if hasattr(value, "__name__") else type(value)
    return f"{getattr(named, '__module__', None)}.{getattr(named, '__qualname__', named.__name__)}"


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _check_type(cls: type, name: str, value: object) -> None:
    hint = typing.get_type_hints(cls)[name]
    if not _fits(value, hint):
        raise ValueError(f"{name} of {cls.__name__} must be {hint}, not {type(value).__name__}.")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of the declared type; jaxtyping's types check rank and kind of numbers."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, alternative) for alternative in typing.get_args(hint))
    plain = float | int if hint is float else hint
    return hint is Any or isinstance(value, typing.get_origin(hint) or plain)
