"""The unadjusted Langevin algorithm."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ...base.arguments import (
    Schedule,
    check_schedule,
    flag,
    number_or_schedule,
    value_at,
    whole,
)
from ...base.registry import storable
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from ...problems.problem import FiniteSum
from .base import Sampler, SamplerInfo
from .langevin import langevin, shorter_steps
from .walkers import drawn_by_step


@storable
class ULA(Sampler):
    r"""Unadjusted Langevin steps, as in the inner loop of the paper's Algorithm 2:

        theta <- theta - eta' grad U(theta) + sqrt(2 eta' temperature) xi.

    The stationary law has a bias of order `step_size`, and so has a gap computed from it.

    Args:
        step_size: eta', a number or a schedule of the outer iteration.
        steps: S, the number of moves per outer iteration.
        fresh: start each outer iteration from new draws of the prior.
    """

    step_size: float | Schedule
    steps: int
    fresh: bool

    def __init__(self, step_size: float | Schedule = 0.01, steps: int = 10, fresh: bool = False):
        self.step_size = number_or_schedule("ULA", "step_size", step_size)
        self.steps = whole("ULA", "steps", steps)
        self.fresh = flag("ULA", "fresh", fresh)

    def init(self, problem: FiniteSum) -> None:
        return None

    def move(
        self, key: PRNGKeyArray, gibbs: Gibbs, particles: Particles, state: None, iteration: Array
    ) -> tuple[Particles, None, SamplerInfo]:
        eta = jnp.asarray(value_at(self.step_size, iteration), particles.dtype)
        noise = drawn_by_step(
            key,
            self.steps,
            particles.size,
            lambda key: jax.random.normal(key, particles.shape, particles.dtype),
        )

        def step(s: Array, theta: Particles) -> Particles:
            return langevin(noise(s), theta, gibbs.gradient(theta), eta, gibbs.temperature)

        particles = jax.lax.fori_loop(0, self.steps, step, particles)
        return particles, None, SamplerInfo(jnp.ones_like(eta), eta, self.steps)

    @property
    def remedy(self) -> str:
        return (
            f"{shorter_steps('ULA', self.step_size)} "
            "Alternatively, use MALA, which rejects moves that lead astray."
        )

    def check(self, iterations: int) -> None:
        check_schedule("ULA", "step_size", self.step_size, iterations)
