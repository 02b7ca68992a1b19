"""The Gibbs measure of a dual vector: the one kind of target that every solver samples."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum


class Gibbs(eqx.Module):
    r"""The measure q_g(theta) proportional to exp(-U(theta) / temperature), with the potential
    U(theta) = sum_i w_i <g_i, h_i(theta)> + l2 |theta|^2.

    The paper's proximal Gibbs measure of mu, eq. (5), is the one with g = loss'(E_mu[h]). The
    temperature is that of the problem, multiplied by `heat`.
    """

    problem: FiniteSum
    dual: Moments
    heat: Any = 1

    @property
    def temperature(self) -> Any:
        return self.problem.temperature * self.heat

    def energy(self, particles: Particles) -> Float[Array, "m"]:
        """U at each particle."""
        # The first variation of F_0 at mu, if g = loss'(E_mu[h]).
        linear = self.problem.features.potential(particles, self.problem.weigh(self.dual))
        return linear + self.problem.penalty(particles)

    def gradient(self, particles: Particles) -> Particles:
        """The gradient of U at each particle, eq. (10)."""
        pull = self.problem.features.pull(particles, self.problem.weigh(self.dual))
        return pull + 2 * self.problem.l2_row * particles

    def energy_and_gradient(self, particles: Particles) -> tuple[Float[Array, "m"], Particles]:
        """U and its gradient, in one pass over the features."""
        linear, pull = self.problem.features.potential_and_pull(
            particles, self.problem.weigh(self.dual)
        )
        return linear + self.problem.penalty(particles), pull + 2 * self.problem.l2_row * particles
