"""The film of a painting: the triangles after some of the iterations."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..base.registry import storable
from ..methods.solvers import Solver
from ..problems.problem import FiniteSum
from ..runs.observers import Observer

FRAMES, LAST_FRAMES, LAST_ITERATIONS = 80, 20, 100
"""Number of frames at geometrically spaced iterations, number of evenly spaced frames at the end,
and number of iterations that these cover."""
CAPACITY = 128
"""Room for frames: those above, and one for each time that the painting was interrupted."""


@storable
class Film(eqx.Module):
    """How the painting came about: the triangles after some of the iterations."""

    iterations: np.ndarray
    particles: np.ndarray
    """(frames, m, d)."""


class Frames(NamedTuple):
    """The first `length` entries are frames, in order."""

    iterations: Int[Array, "frames"]
    particles: Float[Array, "frames m d"]
    length: Int[Array, ""]


class Camera(Observer):
    """Keeps the triangles of the iterations in `stops`.

    The buffer has the same size for every number of iterations, so that all share one program.
    """

    stops: Int[Array, "frames"]

    def __init__(self, iterations: int):
        stops = np.full(CAPACITY, np.iinfo(np.int32).max, np.int32)
        chosen = frame_iterations(iterations)
        stops[: len(chosen)] = chosen
        self.stops = jnp.asarray(stops)

    def init(self, problem: FiniteSum, state: Any) -> Frames:
        particles = jnp.zeros((CAPACITY, *state.particles.shape), state.particles.dtype)
        return Frames(jnp.zeros(CAPACITY, jnp.int32), particles, jnp.zeros((), jnp.int32))

    def restart(self, memory: Frames, problem: FiniteSum, state: Any) -> Frames:
        return memory  # a film goes on when the picture becomes larger

    def update(
        self, memory: Frames, problem: FiniteSum, solver: Solver, state: Any, iteration: Array
    ) -> Frames:
        due = jnp.any(self.stops == iteration + 1)
        slot = jnp.minimum(memory.length, CAPACITY - 1)
        # Always written, what was there if no frame is due: a conditional would copy the buffer.
        frame = jnp.where(due, state.particles, memory.particles[slot])
        number = jnp.where(due, iteration + 1, memory.iterations[slot])
        return Frames(
            memory.iterations.at[slot].set(number.astype(jnp.int32)),
            memory.particles.at[slot].set(frame),
            memory.length + due.astype(jnp.int32),
        )

    def continued(self, memory: Frames, film: Film) -> Frames:
        """An empty memory filled with the frames of an earlier film."""
        count = min(len(film.iterations), CAPACITY)
        iterations = memory.iterations.at[:count].set(
            jnp.asarray(film.iterations[-count:], jnp.int32)
        )
        particles = memory.particles.at[:count].set(jnp.asarray(film.particles[-count:]))
        return Frames(iterations, particles, jnp.asarray(count, jnp.int32))


def film_of(frames: Frames, done: int, particles: Any) -> Film:
    """The film, whose last frame shows the triangles at the end."""
    count = min(int(frames.length), CAPACITY)
    iterations = np.asarray(frames.iterations)[:count].astype(np.int64)
    pictures = np.asarray(frames.particles)[:count]
    # A run that diverged may have kept a frame of the iteration that it did not complete.
    completed = iterations <= done
    iterations, pictures = iterations[completed], pictures[completed]
    if len(iterations) == 0 or iterations[-1] != done:
        iterations = np.append(iterations, done)
        pictures = np.concatenate([pictures, np.asarray(particles)[None]])
    return Film(iterations, pictures)


def frame_iterations(iterations: int) -> list[int]:
    """The iterations after which the film takes a picture."""
    count, last = min(FRAMES, iterations), min(LAST_FRAMES, iterations)
    early = np.geomspace(1, iterations, count).round().astype(int)
    late = np.linspace(max(1, iterations - LAST_ITERATIONS), iterations, last).round().astype(int)
    return sorted({*early.tolist(), *late.tolist(), iterations})
