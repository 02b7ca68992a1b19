"""Entropic fictitious play that keeps every particle: Algorithm 1 of the paper, eq. (9).

It is the oracle for `EFP`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import Schedule, check_schedule, number_or_schedule, value_at
from ...base.registry import storable
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers import MALA, Sampler, sampler_or_default
from .base import Info, Solver, Start, follow_iterate, play_gibbs, scalar


class NaiveEFPState(eqx.Module):
    """mu^(t) itself: every cloud so far, with the mass that is left of it."""

    particles: Particles
    moments: Moments
    iterate: Particles
    sampler: Any
    clouds: Float[Array, "t m d"]
    masses: Float[Array, "t"]


@storable
class NaiveEFP(Solver):
    """mu^(t+1) = (1 - rate) mu^(t) + rate * (new particles), with all past particles in memory.

    With the same seed it computes the same moments as `EFP`, but memory and time per iteration grow
    with the number of iterations. The first cloud is that of the prior (or of the warm start), so
    a run of T iterations holds T + 1 clouds.

    Args:
        rate: a number in (0, 1], or a schedule of the iteration.
        sampler: draws from the Gibbs measure; default `MALA()`.
    """

    nickname: ClassVar[str] = "naive-efp"

    rate: float | Schedule
    sampler: Sampler

    def __init__(self, rate: float | Schedule = 0.01, sampler: Sampler | None = None):
        self.rate = number_or_schedule("NaiveEFP", "rate", rate, at_most=1.0)
        self.sampler = sampler_or_default("NaiveEFP", sampler, MALA())

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> NaiveEFPState:
        # Shapes must not change during a run: there is room for the clouds of all iterations.
        cloud = start.particles
        clouds = jnp.zeros((iterations + 1, *cloud.shape), cloud.dtype).at[0].set(cloud)
        masses = jnp.zeros(iterations + 1, cloud.dtype).at[0].set(1)
        moments = problem.features.average(cloud)
        return NaiveEFPState(cloud, moments, cloud, self.sampler.init(problem), clouds, masses)

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: NaiveEFPState, iteration: Array
    ) -> tuple[NaiveEFPState, Info]:
        stored, m, d = state.clouds.shape
        play = play_gibbs(problem, self.sampler, key, state, iteration, other_passes=stored)
        rate = scalar(value_at(self.rate, iteration), problem)
        # Eq. (9): old masses shrink, the new cloud gets the rest.
        clouds = state.clouds.at[iteration + 1].set(play.particles)
        masses = ((1 - rate) * state.masses).at[iteration + 1].set(rate)
        moments = problem.features.average(clouds.reshape(-1, d), jnp.repeat(masses / m, m))
        iterate = follow_iterate(key, state.iterate, play.particles, rate)
        state = NaiveEFPState(play.particles, moments, iterate, play.sampler, clouds, masses)
        return state, play.info

    def iterate(self, state: NaiveEFPState) -> Particles:
        return state.iterate

    def check(self, problem: FiniteSum, iterations: int) -> None:
        check_schedule("NaiveEFP", "rate", self.rate, iterations, at_most=1.0)
        super().check(problem, iterations)
