"""How functions are compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

Function = TypeVar("Function", bound=Callable[..., Any])
FLAG = "xla_backend_optimization_level"


def compiled(function: Function, *, level: int = 2) -> Function:
    """`equinox.filter_jit` with XLA's CPU code at its second level of optimisation, unless XLA_FLAGS asks for another. Not for
    functions that are called inside of compiled ones.

    The third, its default, compiles half as long again, and the programs are no faster: certificates of the paper's network take
    10.5 s the first time instead of 7, and 1.5 s afterwards instead of 1.2.
    """
    options = {} if FLAG in os.environ.get("XLA_FLAGS", "") else {FLAG: level}
    return eqx.filter_jit(function, compiler_options=options)  # type: ignore[call-overload]


def traced(tree: Any) -> Any:
    """The same records with arrays in place of floats, so that other values do not compile again."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, tree)
