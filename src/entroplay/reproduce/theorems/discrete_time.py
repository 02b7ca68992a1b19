"""Discrete time by one-step interpolation: Lemmas 1, 2, A and B, and Theorem 5."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..claims import Claim, largest
from ..exact import TINY, proximal_gibbs
from ..settings import ROUNDING, Run, Setting, ratio_claim

FAR = 20
"""Factor of the temperature in the duals whose measures lie far apart."""
INTERPOLATIONS = (0.02, 0.1, 0.25)
"""Values of t in Lemma A, whose proof needs t <= 1/4."""
COLD = 0.1
"""Temperature below which Lemma A's printed lower bound is expected to fail."""


def discrete(s: Setting, rate: float, run: Run) -> list[Claim]:
    """Lemmas 1 and 2, Theorem 5 and Lemma B along Algorithm 1.

    gamma = 1, hence the printed constants apply as they are.
    """
    c, t0 = s.ratio, int(np.ceil(1 / rate))
    where = f"{s.name}, eta gamma = {rate:g}, gamma = 1"
    later = list(pairwise(run.values[t0:]))
    # Known without the lemmas: no value changes by more than this.
    known = run.values[0].primal - s.value
    return [
        Claim(
            "Lemma 1",
            "L(mu^(t+1)) - L(mu^(t)) + temperature gamma eta KL <= gamma eta^2 (3 C + 5)",
            where,
            largest(b.primal - a.primal + s.temperature * rate * a.kl for a, b in later),
            rate**2 * (3 * c + 5),
            trivial=known,
        ),
        Claim(
            "Lemma 2",
            "D(g^(t)) - D(g^(t+1)) <= 2 gamma eta^2 (1 + 2 C)",
            where,
            largest(a.dual - b.dual for a, b in later),
            2 * rate**2 * (1 + 2 * c),
            trivial=known,
        ),
        _theorem5(s, rate, run, where),
        Claim(
            "Lemma B",
            "mu-hat^(t) <= 2 C mu^(t) for t >= t0",
            where,
            largest(
                float((proximal_gibbs(s.quadrature, mu)[0] / (2 * c * np.maximum(mu, TINY))).max())
                for mu in run.densities[t0:]
            ),
            1.0,
            note="largest ratio of the two sides",
        ),
    ]


def _theorem5(s: Setting, rate: float, run: Run, where: str) -> Claim:
    """The divergence decays to an error floor; reported at the t where the bound is tightest."""
    t0 = int(np.ceil(1 / rate))
    bound = [
        (1 - rate) ** t * run.values[t0].kl + 7 * rate / s.temperature * (1 + s.ratio)
        for t in range(len(run.values) - t0)
    ]
    tightest = max(range(len(bound)), key=lambda t: run.values[t0 + t].kl / bound[t])
    return Claim(
        "Theorem 5",
        "KL(mu^(t) | mu-hat^(t)) <= (1 - gamma eta)^(t-t0) KL(t0) + 7 eta/temperature (1 + C)",
        where,
        run.values[t0 + tightest].kl,
        bound[tightest],
        trivial=run.values[0].kl,
        note=f"at the tightest t, {t0 + tightest}",
    )


def far_measures(s: Setting) -> list[np.ndarray]:
    """Measures as different as the features allow: the prior, and two with opposite moments."""
    shape = s.quadrature.problem.features.shape
    duals = [
        np.zeros(shape),
        *(sign * FAR * s.temperature * (1 + np.arange(shape[0]) % 3) for sign in (1.0, -1.0)),
    ]
    return [s.quadrature.gibbs(np.asarray(dual))[0] for dual in duals]


def bounded_ratio(s: Setting) -> list[Claim]:
    """Lemma A: proximal Gibbs measures of any two measures have a bounded ratio."""
    measures = far_measures(s)
    logs = [proximal_gibbs(s.quadrature, mu)[1] for mu in measures]
    ratio = largest(float((a - b).max()) for a in logs for b in logs if a is not b)
    # Each list holds the left side over the right side of one inequality.
    above, below, corrected = [], [], []
    for t in INTERPOLATIONS:
        for i, mu in enumerate(measures):
            for other in measures[:i] + measures[i + 1 :]:
                log_ratio = proximal_gibbs(s.quadrature, (1 - t) * mu + t * other)[1] - logs[i]
                above.append(float(np.expm1(log_ratio.max())) / (4 * t * s.ratio))
                below.append(-float(np.expm1(log_ratio.min())) / (4 * t))
                corrected.append(-float(np.expm1(log_ratio.min())) / (4 * t / s.temperature))
    statement = "log(mu-hat_1 / mu-hat_2) <= 4 / temperature"
    claims = [
        Claim("Lemma A", statement, s.name, ratio, 4 / s.temperature),
        ratio_claim("Lemma A", "mu-hat / mu-hat_1 - 1 <= 4 t C", s, above),
        ratio_claim(
            "Lemma A, corrected", "mu-hat / mu-hat_1 - 1 >= -4 t / temperature", s, corrected
        ),
    ]
    if s.temperature < COLD:
        claims.append(
            Claim(
                "Lemma A, as printed",
                "mu-hat / mu-hat_1 - 1 >= -4 t",
                s.name,
                largest(below),
                1 + ROUNDING,
                misprint=True,
                note="exp(-4 t/temperature) >= 1 - 4 t needs a temperature of about one; "
                "the temperature was lost",
            )
        )
    return claims
