"""Observers: what a run remembers of its iterations, in bounded memory, inside the compiled loop.

An observer is a record with `init`, the memory it begins with, and `update`, which sees every
iteration. Its memory is part of a checkpoint. One may also end the run (`satisfied`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..methods.solvers import Solver
from ..problems.features.base import Moments
from ..problems.problem import FiniteSum
from .solution import Reason, Status

PATH = 24
"""Maximum number of dual vectors that are kept of a run's path."""
RECORDED_ELEMENTS = 2**19
"""Numbers of a path that may move in one iteration; longer vectors are recorded less often."""


class Observer(eqx.Module):
    """Sees the state after every iteration."""

    @abstractmethod
    def init(self, problem: FiniteSum, state: Any) -> Any:
        """The memory at the beginning of a stage: arrays whose shapes and types never change."""

    @abstractmethod
    def update(
        self, memory: Any, problem: FiniteSum, solver: Solver, state: Any, iteration: Array
    ) -> Any:
        """The memory after an iteration; `iteration` counts from 0."""

    def restart(self, memory: Any, problem: FiniteSum, state: Any) -> Any:
        """The memory with which the next stage begins, by default an empty one."""
        return self.init(problem, state)

    def satisfied(self, memory: Any) -> Bool[Array, ""]:
        """Whether the run may end after this iteration."""
        return jnp.asarray(False)

    def status(self, memory: Any, done: int) -> Status:
        """Why the run ended, once `satisfied`."""
        return Status(Reason.ITERATIONS, f"{done} iterations done.")


class RecordedPath(NamedTuple):
    """The first `length` entries are vectors of the path, in order."""

    vectors: Float[Array, "path n *k"]
    length: Int[Array, ""]

    def recorded(self) -> np.ndarray:
        """The vectors, cut by NumPy: JAX would compile a program for every length."""
        return np.asarray(self.vectors)[: int(self.length)]


class DualPath(Observer):
    """A bounded sample of the dual vectors that the particles followed, in order."""

    def init(self, problem: FiniteSum, state: Any) -> RecordedPath:
        vectors = jnp.zeros((PATH, *problem.features.shape), problem.dtype)
        return RecordedPath(vectors, jnp.zeros((), jnp.int32))

    def update(
        self, memory: RecordedPath, problem: FiniteSum, solver: Solver, state: Any, iteration: Array
    ) -> RecordedPath:
        vector = solver.target(problem, state)
        # Moving PATH long vectors costs time in every iteration: long ones are recorded less often.
        every = PATH * vector.size // RECORDED_ELEMENTS
        if every <= 1:
            return _longer(memory, vector)
        due = iteration % every == 0
        return jax.lax.cond(due, lambda path: _longer(path, vector), lambda path: path, memory)


def _longer(path: RecordedPath, vector: Moments) -> RecordedPath:
    """The path with one more vector. When full, drop the one whose two neighbours are closest."""

    def append(path: RecordedPath) -> RecordedPath:
        return RecordedPath(path.vectors.at[path.length].set(vector), path.length + 1)

    def replace(path: RecordedPath) -> RecordedPath:
        everything = jnp.concatenate([path.vectors, vector[None]])
        apart = (everything[2:] - everything[:-2]) ** 2
        gone = 1 + jnp.argmin(jnp.sum(apart.reshape(PATH - 1, -1), axis=1)).astype(jnp.int32)
        places = jnp.arange(PATH, dtype=jnp.int32)
        kept = places + (places >= gone).astype(jnp.int32)
        return RecordedPath(everything[kept], path.length)

    return jax.lax.cond(path.length < PATH, append, replace, path)


class RunningMean(Observer):
    """An exponentially weighted mean of the moments; `rate` is the weight of the newest."""

    rate: float

    def init(self, problem: FiniteSum, state: Any) -> Moments:
        return state.moments

    def update(
        self, memory: Moments, problem: FiniteSum, solver: Solver, state: Any, iteration: Array
    ) -> Moments:
        rate = jnp.asarray(self.rate, memory.dtype)
        return (1 - rate) * memory + rate * state.moments


class Clouds(NamedTuple):
    """The last clouds of a run, the newest one last, and how many there have been in all."""

    clouds: Float[Array, "k m d"]
    seen: Int[Array, ""]


class LastClouds(Observer):
    """Keeps the last `clouds` clouds with the whole loss turned on, and ends the run after a while.

    Methods that raise the loss gradually (`Solver.turns_on_loss`) need an unknown number of
    iterations until it is on; `iterations` counts from there.
    """

    clouds: int = eqx.field(static=True)
    iterations: Int[Array, ""]

    def __init__(self, clouds: int, iterations: int):
        self.clouds = clouds
        # An array: another number does not compile the loop again.
        self.iterations = jnp.asarray(iterations, jnp.int32)

    def init(self, problem: FiniteSum, state: Any) -> Clouds:
        empty = jnp.zeros((self.clouds, *state.particles.shape), state.particles.dtype)
        return Clouds(empty, jnp.zeros((), jnp.int32))

    def update(
        self, memory: Clouds, problem: FiniteSum, solver: Solver, state: Any, iteration: Array
    ) -> Clouds:
        full = jnp.asarray(solver.fraction(state)) >= 1
        newest = jnp.concatenate([memory.clouds[1:], state.particles[None]])
        kept = jnp.where(full, newest, memory.clouds)
        return Clouds(kept, memory.seen + full.astype(jnp.int32))

    def satisfied(self, memory: Clouds) -> Bool[Array, ""]:
        return memory.seen >= self.iterations

    def status(self, memory: Clouds, done: int) -> Status:
        count = int(memory.seen)
        return Status(
            Reason.ITERATIONS, f"{done} iterations done, {count} of them with the whole loss on."
        )
