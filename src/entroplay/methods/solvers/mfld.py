"""Mean-field Langevin dynamics: noisy gradient descent on all particles at once (Mei, Montanari and
Nguyen 2018).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from ...base.arguments import Schedule, check_schedule, number_or_schedule, value_at
from ...base.registry import storable
from ...measures.gibbs import Gibbs
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers.langevin import langevin, shorter_steps
from .base import Info, Solver, Start, scalar


class MFLDState(eqx.Module):
    """The interacting cloud and its own moments."""

    particles: Particles
    moments: Moments


@storable
class MFLD(Solver):
    r"""One Langevin step per iteration, with the dual of the present particles:

        theta <- theta - eta grad U_g(theta) + sqrt(2 eta temperature) xi,
        g = loss'(average(particles)).

    The drift of a particle is of order one, without a factor 1/m. The moments are those of the
    particles, so an estimate of the gap would be zero whatever the truth: the history has NaN.

    Args:
        step_size: eta, a number or a schedule of the iteration.
    """

    nickname: ClassVar[str] = "mfld"

    step_size: float | Schedule

    def __init__(self, step_size: float | Schedule = 0.01):
        self.step_size = number_or_schedule("MFLD", "step_size", step_size)

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> MFLDState:
        return MFLDState(start.particles, problem.features.average(start.particles))

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: MFLDState, iteration: Array
    ) -> tuple[MFLDState, Info]:
        eta = scalar(value_at(self.step_size, iteration), problem)
        # Eq. (10), with mu the cloud itself.
        gradient = Gibbs(problem, problem.slope(state.moments)).gradient(state.particles)
        noise = jax.random.normal(
            jax.random.fold_in(key, 0), state.particles.shape, state.particles.dtype
        )
        particles = langevin(noise, state.particles, gradient, eta, problem.temperature)
        moments = problem.features.average(particles)
        info = Info.of(problem, state.moments, moments, step_size=eta, passes=2)
        return MFLDState(particles, moments), info

    def iterate(self, state: MFLDState) -> Particles:
        return state.particles

    @property
    def remedy(self) -> str:
        return shorter_steps("MFLD", self.step_size)

    def check(self, problem: FiniteSum, iterations: int) -> None:
        check_schedule("MFLD", "step_size", self.step_size, iterations)
        super().check(problem, iterations)
