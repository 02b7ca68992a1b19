"""What a run leaves behind in bounded memory: a history with one row per iteration, and a few points of its path."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..methods.smc import PATH
from ..methods.solvers import Solver
from ..problems.features.base import Moments
from ..problems.problem import FiniteSum
from .solution import History

RECORDED_ELEMENTS = 2**19
"""Numbers of the path that may be moved in every iteration; of longer vectors only every few iterations' are recorded."""


class Path(NamedTuple):
    """A few of the dual vectors whose Gibbs measures the particles followed, in order, so many that memory stays bounded."""

    vectors: Float[Array, "path n *k"]
    length: Int[Array, ""]


def empty_path(problem: FiniteSum) -> Path:
    return Path(jnp.zeros((PATH, *problem.features.shape), problem.dtype), jnp.zeros((), jnp.int32))


def record(path: Path, vector: Moments, iteration: Int[Array, ""]) -> Path:
    """The path with one more vector; where it is full, the one goes whose neighbours are closest to each other."""

    def append(path: Path) -> Path:
        return Path(path.vectors.at[path.length].set(vector), path.length + 1)

    def replace(path: Path) -> Path:
        all_of_them = jnp.concatenate([path.vectors, vector[None]])
        apart = jnp.sum(((all_of_them[2:] - all_of_them[:-2]) ** 2).reshape(PATH - 1, -1), axis=1)
        gone = 1 + jnp.argmin(apart).astype(jnp.int32)
        places = jnp.arange(PATH, dtype=jnp.int32)
        kept = places + (places >= gone).astype(jnp.int32)
        return Path(all_of_them[kept], path.length)

    def longer(path: Path) -> Path:
        return jax.lax.cond(path.length < PATH, append, replace, path)

    every = PATH * vector.size // RECORDED_ELEMENTS
    return (
        longer(path)
        if every <= 1
        else jax.lax.cond(iteration % every == 0, longer, lambda p: p, path)
    )


_COLUMNS: dict[Any, tuple[str, ...]] = {}
"""The names of a history's columns. To find them the step is traced, which takes a tenth of a second: once per kind of run."""


def empty_history(problem: FiniteSum, solver: Solver, state: Any) -> History:
    kind = jax.tree.structure((problem, solver, state))
    if kind not in _COLUMNS:
        row = jax.eval_shape(
            lambda s: solver.step(problem, jax.random.key(0), s, jnp.zeros((), jnp.int32))[1], state
        )
        _COLUMNS[kind] = row._fields
    names = ("iteration", *_COLUMNS[kind], "seconds")
    return {
        name: np.zeros(0, np.int64 if name in ("iteration", "pulls", "passes") else np.float64)
        for name in names
    }


def extend(history: History, infos: Any, kept: int, elapsed: float) -> History:
    """The history with `kept` more rows; a chunk's time is spread evenly over its iterations."""
    rows = {name: np.asarray(values)[:kept] for name, values in infos._asdict().items()}
    done = len(history["iteration"])
    rows["iteration"] = np.arange(done + 1, done + kept + 1)
    for name in ("pulls", "passes"):
        rows[name] = _last(history[name]) + np.cumsum(rows[name])
    rows["seconds"] = _last(history["seconds"]) + elapsed * np.arange(1, kept + 1) / max(kept, 1)
    return {
        name: np.concatenate([history[name], rows[name].astype(history[name].dtype)])
        for name in history
    }


def _last(values: np.ndarray) -> float:
    return float(values[-1]) if len(values) else 0.0
