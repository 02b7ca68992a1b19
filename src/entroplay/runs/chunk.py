"""A chunk of iterations inside JAX: the compiled part of the loop."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ..base.compilation import compiled
from ..methods.solvers import Solver
from ..methods.solvers.base import Info
from ..problems.problem import FiniteSum
from .observers import Observer

CHUNK = 256
"""Maximum number of iterations in a chunk: the length of the history's buffers inside JAX."""


class Outcome(NamedTuple):
    """What a chunk leaves behind."""

    state: Any
    memories: dict[str, Any]
    infos: Info
    """Rows of the history in buffers of `CHUNK` rows."""
    completed: Array
    """Number of iterations that were completed."""
    finite: Array
    """Whether the last iteration stayed in the finite range."""


def _advance_chunk(
    problem: FiniteSum,
    solver: Solver,
    observers: dict[str, Observer],
    key: PRNGKeyArray,
    state: Any,
    memories: dict[str, Any],
    first: Array,
    length: Array,
    ceiling: Array,
) -> Outcome:
    """Run at most `length` iterations, starting with iteration `first`.

    Stops before the first state that is not finite, and after the first that satisfies an observer
    or waits for Python.
    """

    def iterate(state: Any, i: Array) -> tuple[Any, Info]:
        return solver.step(problem, jax.random.fold_in(key, first + i), state, first + i)

    row = jax.eval_shape(iterate, state, first)[1]
    buffers = jax.tree.map(lambda leaf: jnp.zeros((CHUNK, *leaf.shape), leaf.dtype), row)

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, state, memories, buffers, _, _ = carry
        new, info = iterate(state, i)
        loss = info.loss_moments
        fine = _all_finite(new) & jnp.isfinite(loss) & (loss <= ceiling)
        state = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, state)
        # The row of an iteration that was not fine is overwritten, or never read.
        buffers = jax.tree.map(lambda buffer, value: buffer.at[i].set(value), buffers, info)
        # After a failed iteration observers see the last finite state again; the run ends with it.
        enough = jnp.asarray(False)
        for name, observer in observers.items():
            memory = observer.update(memories[name], problem, solver, state, first + i)
            memories = memories | {name: memory}
            enough = enough | observer.satisfied(memory)
        return i + fine.astype(i.dtype), state, memories, buffers, fine, enough

    def going(carry: tuple[Any, ...]) -> Array:
        i, state, _, _, fine, enough = carry
        return (i < length) & fine & ~enough & ~solver.waits(state)

    yes, no = jnp.asarray(True), jnp.asarray(False)
    begin = (jnp.zeros_like(first), state, memories, buffers, yes, no)
    completed, state, memories, buffers, fine, _ = jax.lax.while_loop(going, body, begin)
    return Outcome(state, memories, buffers, completed, fine)


def _all_finite(tree: Any) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


ADVANCE = {
    # The painter's: its rasteriser needs a number that is computed twice to be rounded alike.
    1: compiled(partial(_advance_chunk), level=1, newer=True),
    2: compiled(partial(_advance_chunk)),
}
"""The compiled chunk by XLA's optimisation level, see `compiled`."""
