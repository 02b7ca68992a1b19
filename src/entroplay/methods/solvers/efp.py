"""Entropic fictitious play in constant memory: Algorithm 2 of the paper, Nitanda, Oko, Wu,
Takenouchi and Suzuki (2023).
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ...base.arguments import Schedule, check_schedule, number_or_schedule, value_at
from ...base.registry import storable
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers import MALA, Sampler, sampler_or_default
from .base import Info, Solver, Start, follow_iterate, play_gibbs, scalar


class EFPState(eqx.Module):
    """H^(t), the last Gibbs cloud, the cloud that follows mu^(t), and the sampler's state."""

    particles: Particles
    moments: Moments
    iterate: Particles
    sampler: Any


@storable
class EFP(Solver):
    r"""Moves the moments a little towards those of their own Gibbs measure:

        particles ~ q_g with g = loss'(moments);
        moments <- (1 - rate) moments + rate average(particles).

    Locally stable if and only if rate < 2 / (1 + largest eigenvalue of J), where
    J = Cov_q(h) W loss'' / temperature. At low temperature the critical rate falls below the
    paper's 0.01.

    Args:
        rate: eta * gamma in the paper, in (0, 1], or a schedule of the iteration. "auto" takes
            min(1/(1 + tr J), 2/(t + 2)), with tr J >= eig J estimated from the cloud. It is always
            below the stability limit, and it falls, which averages noise out.
        sampler: draws from q_g; default `MALA()`. The paper uses `ULA(step_size=0.01, steps=10)`.
    """

    nickname: ClassVar[str] = "efp"

    rate: float | Schedule | str
    sampler: Sampler

    def __init__(self, rate: float | Schedule | str = "auto", sampler: Sampler | None = None):
        automatic = isinstance(rate, str) and rate == "auto"
        self.rate = "auto" if automatic else number_or_schedule("EFP", "rate", rate, at_most=1.0)
        self.sampler = sampler_or_default("EFP", sampler, MALA())

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> EFPState:
        return EFPState(start.particles, start.moments, start.particles, self.sampler.init(problem))

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: EFPState, iteration: Array
    ) -> tuple[EFPState, Info]:
        play = play_gibbs(problem, self.sampler, key, state, iteration)
        if isinstance(self.rate, str):
            # tr J >= eig J: at most half of the stability limit.
            largest = 1 / (1 + play.trace)
            rate = jnp.minimum(largest, 2 / (iteration.astype(largest.dtype) + 2))
        else:
            rate = scalar(value_at(self.rate, iteration), problem)
        # The last line of Algorithm 2: eq. (9), of which only the averages of h are kept.
        moments = (1 - rate) * state.moments + rate * play.mean
        iterate = follow_iterate(key, state.iterate, play.particles, rate)
        return EFPState(play.particles, moments, iterate, play.sampler), play.info

    def iterate(self, state: EFPState) -> Particles:
        return state.iterate

    def check(self, problem: FiniteSum, iterations: int) -> None:
        if not isinstance(self.rate, str):
            check_schedule("EFP", "rate", self.rate, iterations, at_most=1.0)
        super().check(problem, iterations)
