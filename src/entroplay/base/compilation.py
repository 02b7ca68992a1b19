"""Compilation: XLA's level of optimisation, and arguments whose values do not recompile."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

Function = TypeVar("Function", bound=Callable[..., Any])
LEVEL = "xla_backend_optimization_level"
"""XLA's option for the optimisation level of its CPU code."""
GENERATOR = "xla_cpu_use_fusion_emitters"
"""XLA's option for its newer code generator."""
GENERATORS_KNOWN = (0, 12)
"""Release of JAX from which on the choice between generators has not been tried."""


def compiled(function: Function, *, level: int = 2, newer: bool = False) -> Function:
    """`equinox.filter_jit` with options for CPUs that compile fast. Do not nest.

    Level three, the default, takes 1.5 times as long to compile as level two, and the programs are
    no faster. XLA's newer code generator takes 1.5 times as long to compile as the older one, and
    the programs of this library are no faster by it, as far as noisy measurements tell. Choose
    `newer` where a number that is computed twice must be rounded alike, which the older one does
    not guarantee. The environment variable XLA_FLAGS takes precedence.
    """
    options: dict[str, Any] = {LEVEL: level}
    if not newer and jax.__version_info__ < GENERATORS_KNOWN:
        options[GENERATOR] = False
    given = os.environ.get("XLA_FLAGS", "")
    options = {name: value for name, value in options.items() if name not in given}
    return eqx.filter_jit(function, compiler_options=options)  # type: ignore[call-overload]


def traced(tree: Any) -> Any:
    """The same records with arrays in place of floats, whose values do not enter compiled code."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, tree)
