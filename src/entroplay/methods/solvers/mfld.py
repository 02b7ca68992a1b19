"""Mean-field Langevin dynamics: noisy gradient descent on all particles at once (Mei, Montanari and Nguyen 2018)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ...base.arguments import Schedule, check_schedule, number_or_schedule, value_at
from ...measures.gibbs import Gibbs
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers.langevin import langevin
from .base import Info, Solver, Start, scalar


class MFLDState(eqx.Module):
    """The interacting cloud and its own moments."""

    particles: Particles
    moments: Moments


class MFLD(Solver):
    r"""One Langevin step per iteration, with the dual of the present particles:

        theta <- theta - eta grad U_g(theta) + sqrt(2 eta temperature) xi,   g = loss'(average(particles)).

    The drift of a particle is of order one, without a factor 1/m. The moments are the particles' own, so the
    history's gap would be zero whatever the truth: it is recorded as NaN.

    Args:
        step_size: eta, a number or a schedule of the iteration.
    """

    step_size: float | Schedule

    def __init__(self, step_size: float | Schedule = 0.01):
        self.step_size = number_or_schedule("MFLD", "step_size", step_size)

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> MFLDState:
        return MFLDState(start.particles, problem.features.average(start.particles))

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: MFLDState, iteration: Array
    ) -> tuple[MFLDState, Info]:
        eta = scalar(value_at(self.step_size, iteration), problem)
        gradient = Gibbs(problem, problem.slope(state.moments)).gradient(state.particles)
        noise = jax.random.normal(
            jax.random.fold_in(key, 0), state.particles.shape, state.particles.dtype
        )
        particles = langevin(noise, state.particles, gradient, eta, problem.temperature)
        moments = problem.features.average(particles)
        info = Info(
            gap=jnp.full_like(eta, jnp.nan),
            loss_moments=problem.empirical_loss(state.moments),
            loss_particles=problem.empirical_loss(moments),
            acceptance=jnp.ones_like(eta),
            step_size=eta,
            pulls=scalar(1, problem),
            passes=scalar(2, problem),
        )
        return MFLDState(particles, moments), info

    def iterate(self, state: MFLDState) -> Particles:
        return state.particles

    @property
    def remedy(self) -> str:
        return (
            f"Reduce the step_size of MFLD (now {'a schedule' if callable(self.step_size) else self.step_size}); it must be "
            "below 1/l2, and below twice the inverse of the potential's largest curvature."
        )

    def check(self, problem: FiniteSum, iterations: int) -> None:
        check_schedule("MFLD", "step_size", self.step_size, iterations)
