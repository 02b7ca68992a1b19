"""Duality: Theorem 2 and Proposition 1."""

from __future__ import annotations

from ...measures.quadrature import kl
from ..claims import Claim, largest
from ..settings import FLOOR, ROUNDING, Run, Setting, ratio_claim


def duality(s: Setting, run: Run) -> list[Claim]:
    """Theorem 2 and Proposition 1 along a run."""
    return [*_theorem2(s, run), *_proposition1(s, run)]


def _theorem2(s: Setting, run: Run) -> list[Claim]:
    """The duality gap is a divergence, and no dual value exceeds a primal one."""
    gaps = [(v.primal - v.dual, s.temperature * v.kl) for v in run.values]
    scale = max(1.0, max(abs(v.primal) for v in run.values))
    return [
        Claim(
            "Theorem 2",
            "L(mu) - D(g_mu) = temperature KL(mu | mu-hat)",
            s.name,
            largest(abs(gap - scaled) / scale for gap, scaled in gaps),
            ROUNDING,
            note="largest deviation over all times",
        ),
        Claim(
            "Theorem 2",
            "D(g_mu) <= L(mu')  for all pairs on the way",
            s.name,
            max(v.dual for v in run.values) - min(v.primal for v in run.values),
            ROUNDING,
            note="largest D minus smallest L",
        ),
    ]


def _proposition1(s: Setting, run: Run) -> list[Claim]:
    """The distance to the optimum lies between two divergences, to mu* and to mu-hat."""
    # The optimum is its own proximal Gibbs measure, eq. (2), whose logarithm does not underflow.
    log_optimum = s.quadrature.log_gibbs(s.quadrature.slope(s.quadrature.moments(s.optimum)))
    sandwich = [
        (
            s.temperature * v.kl,
            v.primal - s.value,
            s.temperature * kl(density, log_optimum, s.quadrature.cell),
        )
        for density, v in zip(run.densities, run.values, strict=True)
        if v.primal - s.value > FLOOR
    ]
    return [
        ratio_claim(
            "Proposition 1 (2)",
            "L(mu) - L* <= temperature KL(mu | mu-hat)",
            s,
            (gap / upper for upper, gap, _ in sandwich),
        ),
        ratio_claim(
            "Proposition 1 (2)",
            "temperature KL(mu | mu*) <= L(mu) - L*",
            s,
            (lower / gap for _, gap, lower in sandwich),
        ),
    ]
