"""Compilation: XLA's level of optimisation, and arguments whose values do not recompile."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

Function = TypeVar("Function", bound=Callable[..., Any])
FLAG = "xla_backend_optimization_level"
"""XLA's option for the optimisation level of its CPU code."""


def compiled(function: Function, *, level: int = 2) -> Function:
    """`equinox.filter_jit` at XLA's second optimisation level for CPUs. Do not nest.

    Level three, the default, takes 1.5 times as long to compile, and the programs are no faster:
    certificates of the paper's network take 10.5 s the first time instead of 7, and 1.5 s
    afterwards instead of 1.2. A level in the environment variable XLA_FLAGS takes precedence.
    """
    options = {} if FLAG in os.environ.get("XLA_FLAGS", "") else {FLAG: level}
    return eqx.filter_jit(function, compiler_options=options)  # type: ignore[call-overload]


def traced(tree: Any) -> Any:
    """The same records with arrays in place of floats, whose values do not enter compiled code."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, tree)
