"""The gradient-boosting view: Theorem 6 by the Frank-Wolfe argument, and its iteration count."""

from __future__ import annotations

from itertools import islice

import jax
import numpy as np

from ...measures.quadrature import Quadrature, kl
from ...problems.problem import FiniteSum
from ...verbs.optimum import newton
from ..claims import Claim, largest
from ..exact import fictitious_play
from ..settings import ROUNDING, Run, Setting

TAUS = (1e-4, 100.0)
"""Range in which the multiplier of a KL ball is sought."""
TAU_RATIO = 1.001
"""Ratio of the ends of the bracket at which the search for the multiplier stops."""


def frank_wolfe(s: Setting, run: Run, rate: float, radii: tuple[float, ...]) -> list[Claim]:
    """Theorem 6, with the infimum over KL balls computed, and the iteration count it implies."""
    ratios = []
    for radius in radii:
        least = least_loss(s, radius)
        epsilon = s.temperature * radius + 2 * rate * s.smoothness  # eps', with B = 1
        ratios += [
            v.loss / (epsilon + (1 - rate) ** t * run.values[0].loss + least)
            for t, v in enumerate(run.values)
        ]
    return [
        Claim(
            "Theorem 6",
            "F_0(mu^(T)) <= eps' + (1 - eta gamma)^T F_0(mu^(0)) "
            "+ inf over KL(xi | nu) <= r of F_0(xi)",
            f"{s.name}, eta gamma = {rate:g}, r = {', '.join(f'{r:g}' for r in radii)}",
            largest(ratios),
            1 + ROUNDING,
            note="largest ratio of the two sides over all T and r",
        ),
        *complexity(s),
    ]


def complexity(s: Setting, epsilon: float = 0.05, radius: float = 0.1) -> list[Claim]:
    """The iteration count after Theorem 6.

    A temperature of eps/(4 r) and eta gamma = eps/(8 B^2 L) need T = 8 B^2 L/eps log(2 F_0/eps)
    iterations.
    """
    quadrature = with_same_prior(s, epsilon / (4 * radius))
    rate = epsilon / (8 * s.smoothness)
    first = quadrature.loss(quadrature.moments(quadrature.prior))
    iterations = int(np.ceil(8 * s.smoothness / epsilon * np.log(2 * first / epsilon)))
    last = next(islice(fictitious_play(quadrature, rate), iterations, None))
    reached = quadrature.loss(quadrature.moments(last)) - least_loss(s, radius)
    return [
        Claim(
            "After Theorem 6",
            "F_0(mu^(T)) - inf F_0 <= eps after T = 8 B^2 L/eps log(2 F_0/eps) iterations",
            f"{s.name.split(',')[0]}, eps = {epsilon:g}, r = {radius:g}, T = {iterations}",
            reached,
            epsilon,
        )
    ]


def with_same_prior(s: Setting, temperature: float) -> Quadrature:
    """The problem at another temperature, with the l2 that keeps its prior nu, eq. (12)."""
    problem = s.quadrature.problem
    with jax.enable_x64(True):
        l2 = float(np.asarray(problem.l2)) * temperature / s.temperature
        other = FiniteSum(problem.features, problem.loss, temperature=temperature, l2=l2)
    return Quadrature(other, s.quadrature.axes, s.quadrature.points, s.quadrature.matrix)


def least_loss(s: Setting, radius: float) -> float:
    """The infimum of F_0 over measures with KL(xi | nu) <= radius.

    It is attained by the minimiser of F_0 + tau KL(xi | nu) for the multiplier tau at which the
    divergence equals the radius.
    """
    log_prior = s.quadrature.log_gibbs(np.zeros(s.quadrature.problem.features.shape))

    def at(tau: float) -> tuple[float, float]:
        """Divergence and loss of the minimiser for this multiplier."""
        quadrature = with_same_prior(s, tau)
        density, _ = quadrature.gibbs(quadrature.slope(newton(quadrature)))
        return kl(density, log_prior, quadrature.cell), quadrature.loss(quadrature.moments(density))

    low, high = TAUS
    if at(low)[0] <= radius:
        return at(low)[1]
    # Bisection on a logarithmic scale: the divergence falls as tau grows.
    while high / low > TAU_RATIO:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if at(middle)[0] > radius else (low, middle)
    # The lower end belongs to a slightly larger ball, hence the infimum is not overestimated.
    return at(low)[1]
