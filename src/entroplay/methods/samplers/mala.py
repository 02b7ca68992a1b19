"""The Metropolis-adjusted Langevin algorithm, with optional moves between particles."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ...base.arguments import (
    Schedule,
    check_schedule,
    flag,
    invalid,
    number_or_schedule,
    value_at,
    whole,
)
from ...base.registry import storable
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from ...problems.problem import FiniteSum
from .base import Sampler, SamplerInfo
from .langevin import StepAdaptation, first_step, metropolis_moves


@storable
class MALA(Sampler):
    r"""Metropolis-adjusted Langevin: ULA's proposal, with an acceptance test that makes the Gibbs
    measure exactly invariant.

    Args:
        steps: S, the number of moves per outer iteration.
        step_size: "adapt" steers the cloud's mean acceptance to 0.574, with a gain that falls
            during the run; a number or a schedule of the outer iteration is used as given.
        fresh: start each outer iteration from new draws of the prior.
        jumps: moves by the difference of two other particles (differential evolution), spread
            among the steps. They carry particles from mode to mode.
        leaps: moves to draws of a kernel density of the cloud, before the steps. They mix modes
            best in few dimensions, and are left out where there are more than five.
    """

    steps: int
    step_size: float | Schedule | str
    fresh: bool
    jumps: int
    leaps: int

    def __init__(
        self,
        steps: int = 10,
        step_size: float | Schedule | str = "adapt",
        fresh: bool = False,
        jumps: int = 0,
        leaps: int = 0,
    ):
        self.leaps = whole("MALA", "leaps", leaps, least=0)
        self.steps = whole("MALA", "steps", steps)
        self.jumps = whole("MALA", "jumps", jumps, least=0)
        if self.jumps > self.steps:
            raise invalid("MALA", "jumps", f"at most steps = {steps}", jumps)
        if isinstance(step_size, str) and step_size == "adapt":
            self.step_size = step_size
        else:
            self.step_size = number_or_schedule("MALA", "step_size", step_size)
        self.fresh = flag("MALA", "fresh", fresh)

    def init(self, problem: FiniteSum) -> StepAdaptation:
        return first_step(problem.dim, problem.l2, problem.dtype)

    def move(
        self,
        key: PRNGKeyArray,
        gibbs: Gibbs,
        particles: Particles,
        state: StepAdaptation,
        iteration: Array,
    ) -> tuple[Particles, StepAdaptation, SamplerInfo]:
        adapt = isinstance(self.step_size, str)
        if not adapt:
            # A given step takes the place of the adapted one; the state keeps its structure.
            fixed = jnp.asarray(value_at(self.step_size, iteration), particles.dtype)
            state = StepAdaptation(jnp.log(fixed), state.adapted)
        walkers, state, moved = metropolis_moves(
            key,
            gibbs,
            particles,
            state,
            steps=self.steps,
            jumps=self.jumps,
            leaps=self.leaps,
            adapt=adapt,
        )
        info = SamplerInfo(moved.acceptance, jnp.exp(state.log_step), moved.pulls)
        return walkers.particles, state, info

    @property
    def remedy(self) -> str:
        return (
            "The potential itself is not finite somewhere: check the features and the loss at the "
            "last finite state."
        )

    def check(self, iterations: int) -> None:
        if not isinstance(self.step_size, str):
            check_schedule("MALA", "step_size", self.step_size, iterations)
