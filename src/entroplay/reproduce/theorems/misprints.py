"""Slips in the paper's text: the printed form, and the form that the numbers support."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..claims import Claim, largest
from ..exact import TINY
from ..settings import FLOOR, Run, Setting

SLACK = 1e-6
"""Excess over a bound that is attributed to rounding."""
EPSILON, GAMMA = 0.1, 0.1
"""Accuracy and gamma at which Corollary A is tested; gamma != 1 tells the two forms apart."""


def misprints(
    cold: Setting, cold_run: Run, cold_rate: float, warm: Setting, warm_run: Run, warm_rate: float
) -> list[Claim]:
    """All slips that can be tested.

    Args:
        cold: a setting in which Lemma 1's error term matters.
        cold_run: Algorithm 1 on it.
        cold_rate: its eta gamma.
        warm: a setting in which C = exp(4 / temperature) is moderate.
        warm_run: Algorithm 1 on it.
        warm_rate: its eta gamma.
    """
    return [
        *_lemma1(cold, cold_run, cold_rate),
        *_lemma1_proof(),
        *_assumption2(warm, warm_run),
        _after_lemma2(warm, warm_run, warm_rate),
        *_corollary_a(warm),
    ]


def _lemma1(s: Setting, run: Run, rate: float) -> list[Claim]:
    """The error term of one step, which cannot depend on gamma other than through the rate."""
    t0 = int(np.ceil(1 / rate))
    worst = largest(
        b.primal - a.primal + s.temperature * rate * a.kl for a, b in pairwise(run.values[t0:])
    )
    # So large a gamma that the printed term, rate^2 / gamma (3 C + 5), is a tenth of `worst`.
    gamma = 10 * rate**2 * (3 * s.ratio + 5) / max(worst, TINY)
    where = f"{s.name}, eta gamma = {rate:g}"
    return [
        Claim(
            "Lemma 1, as printed",
            "the error term gamma eta^2 (3 C + 5)",
            f"{where}, gamma = {gamma:.1e}",
            worst,
            rate**2 / gamma * (3 * s.ratio + 5),
            misprint=True,
            note="the iterates depend on eta gamma only, the printed term vanishes as gamma grows; "
            "the proof lost a factor temperature gamma",
        ),
        Claim(
            "Lemma 1, corrected",
            "the error term temperature (gamma eta)^2 (3 C + 5)",
            where,
            worst,
            s.temperature * rate**2 * (3 * s.ratio + 5),
            trivial=run.values[0].primal - s.value,
        ),
    ]


def _lemma1_proof() -> list[Claim]:
    """An inequality of the logarithm in the proof of Lemma 1."""
    x = np.linspace(1e-3, 0.5, 200)
    return [
        Claim(
            "Lemma 1, proof, as printed",
            "log(1 - x) >= 2 x",
            "0 < x <= 1/2",
            largest(2 * x - np.log1p(-x)),
            0.0,
            misprint=True,
            note="largest right minus left side; the sign was lost",
        ),
        Claim(
            "Lemma 1, proof, corrected",
            "log(1 - x) >= -2 x",
            "0 < x <= 1/2",
            largest(-2 * x - np.log1p(-x)),
            0.0,
        ),
    ]


def _assumption2(s: Setting, run: Run) -> list[Claim]:
    """The interval on which the losses must be bounded."""
    reached = [float(np.abs(s.quadrature.moments(mu)).max()) for mu in run.densities]
    return [
        Claim(
            "Assumption 2, as printed",
            "z in [1, 1]",
            s.name,
            largest(1 - m for m in reached),
            0.0,
            misprint=True,
            note="the moments, at which the losses are evaluated, are not 1",
        ),
        Claim(
            "Assumption 2, corrected",
            "z in [-1, 1]",
            s.name,
            largest(reached),
            1.0,
            note="largest |moment| on the way",
        ),
    ]


def _after_lemma2(s: Setting, run: Run, rate: float) -> Claim:
    """The contraction of the divergence in one step."""
    t0 = int(np.ceil(1 / rate))
    contraction = [
        b.kl / a.kl for a, b in pairwise(run.values[t0:]) if s.temperature * a.kl > FLOOR
    ]
    return Claim(
        "After Lemma 2, corrected",
        "KL(t+1) <= (1 - gamma eta) KL(t) + 7 gamma eta^2/temperature (1 + C)",
        f"{s.name}, eta gamma = {rate:g}",
        largest(contraction),
        1 - rate + SLACK,
        note="printed with the factor KL(t) inside the brackets. Here it holds even without the "
        "error term",
    )


def _corollary_a(s: Setting) -> list[Claim]:
    """The number of iterations that Theorem 5 implies, judged by Theorem 5's own bound."""
    first = 1.0  # the divergence at t0
    eta = EPSILON / (14 * (1 + s.ratio))
    logarithm = np.log(2 * np.e * s.temperature * first / EPSILON)

    def left_over(t: float) -> float:
        """The bound of Theorem 5, times the temperature, after t iterations."""
        later = t - np.ceil(1 / (GAMMA * eta))
        # (1 - gamma eta)^later: the rate is tiny, hence by logarithms.
        decayed = s.temperature * np.exp(later * np.log1p(-GAMMA * eta)) * first
        return decayed + 7 * eta * (1 + s.ratio)

    printed, corrected = (
        factor * 14 * (1 + s.ratio) / EPSILON * logarithm for factor in (GAMMA, 1 / GAMMA)
    )
    where = f"{s.name}, gamma = {GAMMA:g}, eps = {EPSILON:g}"
    return [
        Claim(
            "Corollary A, as printed",
            "t >= 14 gamma (1 + C)/eps log(...) iterations suffice",
            where,
            left_over(printed),
            EPSILON,
            misprint=True,
            note="Theorem 5's own bound at that t; gamma belongs in the denominator",
        ),
        Claim(
            "Corollary A, corrected",
            "t >= 14 (1 + C)/(gamma eps) log(...) iterations suffice",
            where,
            left_over(corrected),
            EPSILON * (1 + SLACK),
            note="Theorem 5's own bound at that t",
        ),
    ]


REMARKS = (
    "Lemmas 1 and 2 and Theorem 5 write D_lambda for three different constants: 3 C + 5, 1 + 2 C "
    "and 1 + C.",
    "With C = exp(4/temperature) the bounds of Lemmas 1 and 2 and of Theorem 5 exceed what is "
    "known at the start in every setting here: they are true and say nothing. At the temperature "
    "0.01 of the paper's experiments C is about 1e173.",
    "Assumption 1 compares the first variation at one measure only; the second term on the left "
    "should be at mu'.",
    "Theorem 4 defines smoothness by |loss'(z) - loss(z')|; the second loss lacks its prime.",
    "The proof of Theorem 6 has F_0(mu-hat^(t)) where convexity gives F_0(mu^(t)), which its last "
    "lines then use.",
    "The proof of Lemma 2 squares loss'' where it should square the difference of moments, and "
    "bounds an integral of h where it needs one of |h|; like Lemma 1's, it loses a factor gamma.",
    "Example 2 calls minus the sum of logarithms the log-likelihood; the kernel's index delta and "
    "its width sigma are the same.",
)
"""Slips that no number can test."""
