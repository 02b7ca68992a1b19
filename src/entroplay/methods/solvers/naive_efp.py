"""Entropic fictitious play that keeps every particle: Algorithm 1 of the paper, the oracle for `EFP`."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import Schedule, check_schedule, number_or_schedule, value_at
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers.base import Sampler, sampler_or_default
from .base import Info, Solver, Start, follow_iterate, play_gibbs, scalar


class NaiveEFPState(eqx.Module):
    """mu^(t) itself: every cloud so far with the mass it has left."""

    particles: Particles
    moments: Moments
    iterate: Particles
    sampler: Any
    clouds: Float[Array, "t m d"]
    masses: Float[Array, "t"]


class NaiveEFP(Solver):
    """mu^(t+1) = (1 - rate) mu^(t) + rate * (new particles), with all particles of the past in memory.

    Same seed, same moments as `EFP`, but memory and time per iteration grow with the number of iterations. The first
    cloud is the prior's (or the warm start's), so that a run of T iterations holds T + 1 clouds.

    Args:
        rate: in (0, 1], or a schedule of the iteration.
        sampler: what draws from the Gibbs measure; default `MALA()`.
    """

    rate: float | Schedule
    sampler: Sampler

    def __init__(self, rate: float | Schedule = 0.01, sampler: Sampler | None = None):
        self.rate = number_or_schedule("NaiveEFP", "rate", rate, at_most=1.0)
        self.sampler = sampler_or_default("NaiveEFP", sampler)

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> NaiveEFPState:
        cloud = start.particles
        clouds = jnp.zeros((iterations + 1, *cloud.shape), cloud.dtype).at[0].set(cloud)
        masses = jnp.zeros(iterations + 1, cloud.dtype).at[0].set(1)
        return NaiveEFPState(
            cloud,
            problem.features.average(cloud),
            cloud,
            self.sampler.init(problem),
            clouds,
            masses,
        )

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: NaiveEFPState, iteration: Array
    ) -> tuple[NaiveEFPState, Info]:
        stored, m, d = state.clouds.shape
        play = play_gibbs(problem, self.sampler, key, state, iteration, other_passes=stored)
        rate = scalar(value_at(self.rate, iteration), problem)
        clouds = state.clouds.at[iteration + 1].set(play.particles)
        masses = ((1 - rate) * state.masses).at[iteration + 1].set(rate)
        moments = problem.features.average(clouds.reshape(-1, d), jnp.repeat(masses / m, m))
        iterate = follow_iterate(key, state.iterate, play.particles, rate)
        return NaiveEFPState(
            play.particles, moments, iterate, play.sampler, clouds, masses
        ), play.info

    def iterate(self, state: NaiveEFPState) -> Particles:
        return state.iterate

    @property
    def remedy(self) -> str:
        return self.sampler.remedy

    def check(self, problem: FiniteSum, iterations: int) -> None:
        check_schedule("NaiveEFP", "rate", self.rate, iterations, at_most=1.0)
        self.sampler.check(iterations)
