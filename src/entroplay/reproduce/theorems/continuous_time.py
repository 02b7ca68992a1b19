"""Continuous time: Theorems 1, 3 and 4, and the derivatives in their proofs."""

from __future__ import annotations

import numpy as np

from ..claims import Claim, largest
from ..exact import continuous_play
from ..settings import FLOOR, ROUNDING, Run, Setting, ratio_claim

DIFFERENCE_STEP = 1e-3
"""Distance in time between the five values of which a derivative is computed."""
SHORTEST_TIME = 0.01
"""Shortest time, in units of 1 / gamma, over which primal and dual are taken to change."""


def continuous(s: Setting, run: Run, step: float) -> list[Claim]:
    """Theorems 1, 3 and 4 along the continuous dynamics, and the derivatives in their proofs.

    Args:
        s: the problem.
        run: the dynamics at times 0, step, 2 step, ...
        step: in units of 1 / gamma.
    """
    first = run.values[0]
    primal, divergence = [], []
    for index, v in enumerate(run.values[1:], start=1):
        decay = np.exp(-index * step)
        if v.primal - s.value > FLOOR:
            primal.append((v.primal - s.value) / (decay * (first.primal - s.value)))
        if s.temperature * v.kl > FLOOR:
            divergence.append(v.kl / (decay * first.kl))
    over = f" over 0 < gamma t <= {step * (len(run.values) - 1):g}"
    starts = [run.densities[i] for i in (0, len(run.densities) // 6, len(run.densities) // 3)]
    return [
        ratio_claim(
            "Theorem 1",
            "L(mu_t) - L* <= exp(-gamma t) (L(mu_0) - L*)",
            s,
            primal,
            bound=1.0,
            over=over,
        ),
        ratio_claim(
            "Theorem 3",
            "KL(mu_t | mu-hat_t) <= exp(-gamma t) KL(mu_0 | mu-hat_0)",
            s,
            divergence,
            bound=1.0,
            over=over,
        ),
        *derivatives(s, starts),
        *_theorem4(s, run),
    ]


def _theorem4(s: Setting, run: Run) -> list[Claim]:
    """The value of the proximal Gibbs measure, for losses of bounded curvature only."""
    if not np.isfinite(s.smoothness):
        return []
    factor = s.temperature + 2 * s.smoothness
    ratios = [
        (v.primal_gibbs - v.dual) / (factor * v.kl)
        for v in run.values
        if s.temperature * v.kl > FLOOR
    ]
    statement = "L(mu-hat_t) - D(g_mu_t) <= (temperature + 2 B^2 L) KL(mu_t | mu-hat_t)"
    return [ratio_claim("Theorem 4", statement, s, ratios, bound=1 + ROUNDING)]


def derivatives(s: Setting, starts: list[np.ndarray], step: float = DIFFERENCE_STEP) -> list[Claim]:
    """d/dt of primal and dual against the formulas of the proofs, by differences of order four."""
    primal, dual = [], []
    for start in starts:
        run = Run.of(s.quadrature, continuous_play(s.quadrature, step, start), 5)
        v = run.values[2]
        curvature = s.quadrature.weighted_curvature(s.quadrature.moments(run.densities[2]))
        fall = -s.temperature * (v.kl + v.reverse_kl)  # proof of Theorem 1
        rise = float(np.sum(curvature * v.residual**2))  # proof of Theorem 3
        primal.append(abs(_slope([v.primal for v in run.values], step) / fall - 1))
        dual.append(abs(_slope([v.dual for v in run.values], step) / rise - 1))
    # The differences err by step^4 / 30 times a fifth derivative, that is by less than
    # (step / shortest time of change)^4 of the first one.
    allowed = (step / SHORTEST_TIME) ** 4
    return [
        Claim(
            "Theorem 1, proof",
            "dL/dt = -temperature gamma (KL(mu | mu-hat) + KL(mu-hat | mu))",
            s.name,
            largest(primal),
            allowed,
            note="largest relative error",
        ),
        Claim(
            "Theorem 3, proof",
            "dD/dt = (gamma/n) sum (E_mu[h] - E_mu-hat[h])^2 loss''",
            s.name,
            largest(dual),
            allowed,
            note="largest relative error",
        ),
    ]


def _slope(numbers: list[float], step: float) -> float:
    """The derivative at the middle one of five equidistant values."""
    return (8 * (numbers[3] - numbers[1]) - (numbers[4] - numbers[0])) / (12 * step)
