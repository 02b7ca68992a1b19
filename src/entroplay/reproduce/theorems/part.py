"""All theorems together, as one part of the reproduction."""

from __future__ import annotations

from ..claims import Claim, Part
from ..exact import continuous_play, fictitious_play
from ..settings import Run, bounded_settings, cold_setting, density_setting
from .boosting import frank_wolfe
from .continuous_time import continuous
from .discrete_time import bounded_ratio, discrete
from .linear_stability import stability
from .misprints import REMARKS, misprints
from .primal_dual import duality

FLOW_TIME = 6
"""Length of the continuous runs, in units of 1 / gamma."""
RATE, ITERATIONS = 0.1, 60
"""Rate and length of the discrete runs."""
LARGEST_RATE, COLD_ITERATIONS = 0.125, 40
"""Rate and length of the run in the cold setting: Lemmas 1 and 2 allow rates up to 1/8."""


def reproduce(*, quick: bool, seed: int = 0) -> Part:
    """All statements on all settings. Nothing is random: the seed does not matter."""
    claims = all_claims(quick)
    expected = sum(claim.as_expected for claim in claims)
    slips = sum(claim.misprint for claim in claims)
    silent = sum(claim.verdict.startswith("holds, but") for claim in claims)
    return Part(
        name="theorems",
        title="The theorems, on grids",
        paper="Duality, convergence in continuous and in discrete time, the Frank-Wolfe view, and "
        "the lemmas behind them.",
        found=f"{expected} of {len(claims)} statements as expected; {slips} of them are misprints "
        f"that fail as printed, {silent} hold but say nothing at these temperatures.",
        claims=tuple(claims),
        numbers={
            "statements": len(claims),
            "as expected": expected,
            "misprints": slips,
            "without content": silent,
        },
        choices=(
            "Networks with tanh(theta x) on 12 points, loss (z - y)^2/4 or logistic: |h|, |loss'|, "
            "loss'' <= 1 as Assumption 2 requires.",
            "A statement is tested as measured <= bound, or as the largest ratio of its two sides "
            "against one.",
        ),
        remarks=REMARKS,
    )


def all_claims(quick: bool) -> list[Claim]:
    """The claims in the order of the paper: continuous time, discrete time, then our own."""
    bounded, density, cold = bounded_settings(quick), density_setting(), cold_setting()
    step = 0.1 if quick else 0.05
    claims: list[Claim] = []
    for s in (*bounded, density):
        flow = Run.of(s.quadrature, continuous_play(s.quadrature, step), int(FLOW_TIME / step) + 1)
        claims += duality(s, flow) + continuous(s, flow, step)
    radii = (0.1,) if quick else (0.01, 0.1, 1.0)
    runs = {}
    # Discrete time needs bounded slopes (Assumption 2), which the density does not have.
    for s in bounded:
        run = runs[s.name] = Run.of(s.quadrature, fictitious_play(s.quadrature, RATE), ITERATIONS)
        claims += discrete(s, RATE, run) + bounded_ratio(s) + frank_wolfe(s, run, RATE, radii)
    claims += stability(cold) + stability(bounded[1])
    cold_play = fictitious_play(cold.quadrature, LARGEST_RATE)
    cold_run = Run.of(cold.quadrature, cold_play, COLD_ITERATIONS)
    warm = bounded[0]
    return claims + misprints(cold, cold_run, LARGEST_RATE, warm, runs[warm.name], RATE)
