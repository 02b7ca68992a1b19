"""The identity of a run: what a checkpoint must have in common with the run that wants to go on from it."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..methods.samplers.base import Sampler
from ..methods.solvers import Solver
from ..problems.features.base import FeatureMap
from ..problems.losses.base import Loss
from ..problems.problem import FiniteSum
from .files import Encoder, digest, qualified


def fingerprint(problem: FiniteSum, solver: Solver, particles: int, seed: int) -> str:
    """A digest of all that decides a run: the same for the same problem posed again, also in another process (of the same
    Python), and another one as soon as a number, a method or the code of a function differs.
    """
    encoder = _Identity()
    content = encoder([problem, solver, particles, seed])
    return digest("fingerprint", content, encoder.tensors)


class _Identity(Encoder):
    """The encoder behind `fingerprint`: takes everything, and functions by their code with all that it refers to in closures,
    defaults and its own module. What it calls in other modules counts by name.
    """

    checks_types = False

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Any] = {}

    def array(self, value: Any, path: str) -> str:
        key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        self.tensors[str(len(self.tensors))] = np.asarray(
            jax.random.key_data(value) if key else value, order="C"
        )
        return "array"

    def other(self, value: Any, path: str) -> Any:
        name, bases = qualified(value), type(value).__mro__
        value = (
            value if hasattr(value, "__code__") else getattr(value, "__wrapped__", value)
        )  # jit keeps what it compiles
        if id(value) in self.seen or isinstance(value, type):
            return name
        self.seen[id(value)] = value  # held, so that no other object is given its id
        if hasattr(value, "__code__"):
            return [name, self(_function_parts(value))]
        if isinstance(value, functools.partial):
            return [name, self([value.func, value.args, value.keywords])]
        if isinstance(value, tuple):
            return [name, self(list(value))]
        if isinstance(value, dict):
            return [name, self([[repr(key), item] for key, item in value.items()])]
        if isinstance(value, bytes | complex | set | frozenset):
            return [name, _text(value)]
        if callable(value) or dataclasses.is_dataclass(
            value
        ):  # an object of a class that the user wrote, or a library's
            own = takewhile(
                lambda base: base not in (Loss, FeatureMap, Sampler, Solver, object), bases
            )
            members = [
                item
                for base in own
                for item in sorted(vars(base).items())
                if item[0] == "__call__" or item[0][:2] != "__"
            ]
            return [
                name,
                self(list(getattr(value, "__dict__", {}).items())),
                self([[n, getattr(m, "fget", m)] for n, m in members]),
            ]
        return name


def _function_parts(function: Any) -> list[Any]:
    """What a function computes with: its code, the values bound to it, and those it finds in its module."""
    codes, scope = list(_codes(function.__code__)), function.__globals__
    names = sorted({name for code in codes for name in code.co_names} & scope.keys())
    found = [[name, scope[name]] for name in names if _belongs(scope[name], scope)]
    bound = [getattr(function, "__self__", None), function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a name that was never given a value
            bound.append(cell.cell_contents)
    constants = [
        _text(c) for code in codes for c in code.co_consts if not isinstance(c, types.CodeType)
    ]
    return [[[code.co_code.hex(), code.co_names] for code in codes], constants, found, bound]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and that of all functions defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _text(value: Any) -> str:
    """`repr`, but that of a set in an order that outlives the process."""
    return str(sorted(map(repr, value))) if isinstance(value, set | frozenset) else repr(value)


def _belongs(value: Any, scope: dict[str, Any]) -> bool:
    """Whether a global value is a part of the function that names it: data, or a function of the same module."""
    plain = isinstance(value, bool | int | float | str | tuple | list | np.ndarray | jax.Array)
    return plain or getattr(getattr(value, "__wrapped__", value), "__globals__", None) is scope
