"""The identity of a run: what a checkpoint and the run that continues from it must share."""

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

from ..methods.samplers import Sampler
from ..methods.solvers import Solver
from ..problems.features.base import FeatureMap
from ..problems.losses.base import Loss
from ..problems.problem import FiniteSum
from .codec import Encoder, qualified
from .container import Contents, digest


def fingerprint(problem: FiniteSum, solver: Solver, particles: int, seed: int) -> str:
    """A digest of everything that decides a run.

    It is the same for the same problem posed again, in another process of the same Python, too. It
    differs as soon as a number, a method or the code of a function does.
    """
    encoder = _Identity()
    content = encoder([problem, solver, particles, seed])
    return digest(Contents("fingerprint", content, encoder.tensors))


class _Identity(Encoder):
    """An encoder that accepts everything.

    A function is described by its code and by what the code refers to in closures, defaults and its
    own module. Functions from other modules are identified by name only.
    """

    checks_types = False

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Any] = {}

    def array(self, value: Any, path: str) -> str:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        self.tensors[str(len(self.tensors))] = np.asarray(value, order="C")
        return "array"

    def other(self, value: Any, path: str) -> Any:
        name, bases = qualified(value), type(value).__mro__
        if not hasattr(value, "__code__"):
            value = getattr(value, "__wrapped__", value)  # the function that `jit` compiled
        if id(value) in self.seen or isinstance(value, type):
            return name
        self.seen[id(value)] = value  # kept alive: its id must not be given to another object
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
        if callable(value) or dataclasses.is_dataclass(value):
            # An object of a user's class, or of a library: its data and the methods of its classes,
            # up to the base classes of this library.
            ours = (Loss, FeatureMap, Sampler, Solver, object)
            own = takewhile(lambda base: base not in ours, bases)
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
    """A function's code, the values bound to it, and those that it uses from its module."""
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
    """The code itself and the code of all functions defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _text(value: Any) -> str:
    """`repr`, with sets in an order that does not depend on the process."""
    return str(sorted(map(repr, value))) if isinstance(value, set | frozenset) else repr(value)


def _belongs(value: Any, scope: dict[str, Any]) -> bool:
    """Whether a global value is part of the function: plain data, or a function of its module."""
    plain = isinstance(value, bool | int | float | str | tuple | list | np.ndarray | jax.Array)
    return plain or getattr(getattr(value, "__wrapped__", value), "__globals__", None) is scope
