"""A solver whose every state is known beforehand, and loops that run it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import entroplay as ep
from entroplay.methods.solvers.base import Info, Solver, Start
from entroplay.problems.features.base import mean_features
from entroplay.runs.loop import Loop, Stage

NEVER = 10**6
"""An iteration that no test reaches."""


class Counted(NamedTuple):
    """The state after t iterations: the first particles plus t, and moments t / 4."""

    particles: Array
    moments: Array


class Counting(Solver):
    """Adds one to all particles and a quarter to all moments.

    The iteration `bad` (counted from 0) replaces them by `particle`, if that is not None, and
    reports the loss `loss`.
    """

    bad: int = NEVER
    particle: float | None = None
    loss: float = 1.0

    def init(self, problem, start, iterations):
        return Counted(start.particles, jnp.zeros_like(start.moments))

    def step(self, problem, key, state, iteration):
        now = jnp.asarray(iteration) == self.bad
        particles = state.particles + 1
        if self.particle is not None:
            particles = jnp.where(now, self.particle, particles)
        new = Counted(particles, state.moments + 0.25)
        info = Info.of(problem, state.moments, state.moments, step_size=1, passes=2, pulls=3)
        loss = jnp.where(now, jnp.asarray(self.loss, problem.dtype), info.loss_moments)
        return new, info._replace(loss_moments=loss)


def tiny(n=2):
    """n rows of one neuron, with targets 0."""
    features = ep.Neurons(np.arange(1.0, n + 1)[:, None])
    return ep.FiniteSum(features, ep.Squared(np.zeros(n)), temperature=0.1, l2=0.1)


def start_of(problem, m=3):
    """A cold start from draws of the prior."""
    cloud = problem.prior(jax.random.key(3), m)
    return Start(cloud, mean_features(problem.features, cloud), warm=False, key=jax.random.key(4))


def loop_of(problem, solver, iterations, m=3, **options):
    """A loop with one stage."""
    start = start_of(problem, m)
    return Loop([Stage(problem, iterations)], solver, jax.random.key(5), start, **options)
