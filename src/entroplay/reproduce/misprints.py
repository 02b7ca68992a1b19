"""Where the paper's text has a slip: the printed form, and the one that the numbers support."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .claims import Claim
from .settings import FLOOR, Run, Setting, largest


def misprints(
    cold: Setting, run: Run, rate: float, warm: Setting, warm_run: Run, warm_rate: float
) -> list[Claim]:
    """Where the text has a slip: the printed form, and the one that the numbers support."""
    t0 = int(np.ceil(1 / rate))
    worst = largest(
        b.primal - a.primal + cold.temperature * rate * a.kl for a, b in pairwise(run.values[t0:])
    )
    gamma = 10 * rate**2 * (3 * cold.ratio + 5) / max(worst, 1e-300)
    x = np.linspace(1e-3, 0.5, 200)
    reached = [float(np.abs(warm.quadrature.moments(mu)).max()) for mu in warm_run.densities]
    t1 = int(np.ceil(1 / warm_rate))
    contraction = [
        b.kl / a.kl for a, b in pairwise(warm_run.values[t1:]) if warm.temperature * a.kl > FLOOR
    ]
    epsilon, small_gamma, first = 0.1, 0.1, 1.0
    eta = epsilon / (14 * (1 + warm.ratio))
    logarithm = np.log(2 * np.e * warm.temperature * first / epsilon)

    def left_over(t: float) -> float:
        """The bound of Theorem 5, times the temperature, after t iterations."""
        later = t - np.ceil(1 / (small_gamma * eta))
        return warm.temperature * np.exp(later * np.log1p(-small_gamma * eta)) * first + 7 * eta * (
            1 + warm.ratio
        )

    printed, corrected = (
        factor * 14 * (1 + warm.ratio) / epsilon * logarithm
        for factor in (small_gamma, 1 / small_gamma)
    )
    where = f"{cold.name}, eta gamma = {rate:g}"
    return [
        Claim(
            "Lemma 1, as printed",
            "the error term gamma eta^2 (3 C + 5)",
            f"{where}, gamma = {gamma:.1e}",
            worst,
            rate**2 / gamma * (3 * cold.ratio + 5),
            misprint=True,
            note="the iterates depend on eta gamma only, the printed term vanishes as gamma grows; the proof lost a factor "
            "temperature gamma",
        ),
        Claim(
            "Lemma 1, corrected",
            "the error term temperature (gamma eta)^2 (3 C + 5)",
            where,
            worst,
            cold.temperature * rate**2 * (3 * cold.ratio + 5),
            trivial=run.values[0].primal - cold.value,
        ),
        Claim(
            "Lemma 1, proof, as printed",
            "log(1 - x) >= 2 x",
            "0 < x <= 1/2",
            largest(list(2 * x - np.log1p(-x))),
            0.0,
            misprint=True,
            note="largest right minus left side; the sign was lost",
        ),
        Claim(
            "Lemma 1, proof, corrected",
            "log(1 - x) >= -2 x",
            "0 < x <= 1/2",
            largest(list(-2 * x - np.log1p(-x))),
            0.0,
        ),
        Claim(
            "Assumption 2, as printed",
            "z in [1, 1]",
            warm.name,
            largest(1 - m for m in reached),
            0.0,
            misprint=True,
            note="the moments, at which the losses are evaluated, are not 1",
        ),
        Claim(
            "Assumption 2, corrected",
            "z in [-1, 1]",
            warm.name,
            largest(reached),
            1.0,
            note="largest |moment| on the way",
        ),
        Claim(
            "After Lemma 2, corrected",
            "KL(t+1) <= (1 - gamma eta) KL(t) + 7 gamma eta^2/temperature (1 + C)",
            f"{warm.name}, eta gamma = {warm_rate:g}",
            largest(contraction),
            1 - warm_rate + 1e-6,
            note="printed with the factor KL(t) inside the brackets. Here it holds even without the error term",
        ),
        Claim(
            "Corollary A, as printed",
            "t >= 14 gamma (1 + C)/eps log(...) iterations suffice",
            f"{warm.name}, gamma = 0.1, eps = 0.1",
            left_over(printed),
            epsilon,
            misprint=True,
            note="Theorem 5's own bound at that t; gamma belongs into the denominator",
        ),
        Claim(
            "Corollary A, corrected",
            "t >= 14 (1 + C)/(gamma eps) log(...) iterations suffice",
            f"{warm.name}, gamma = 0.1, eps = 0.1",
            left_over(corrected),
            epsilon * (1 + 1e-6),
            note="Theorem 5's own bound at that t",
        ),
    ]


REMARKS = (
    "Lemmas 1 and 2 and Theorem 5 write D_lambda for three different constants: 3 C + 5, 1 + 2 C and 1 + C.",
    "With C = exp(4/temperature) the bounds of Lemmas 1 and 2 and of Theorem 5 exceed what is known at the start in every setting "
    "here: they are true and say nothing. At the temperature 0.01 of the paper's experiments C is about 1e173.",
    "Assumption 1 compares the first variation at one measure only; the second term on the left should be at mu'.",
    "Theorem 4 defines smoothness by |loss'(z) - loss(z')|; the second loss lacks its prime.",
    "The proof of Theorem 6 has F_0(mu-hat^(t)) where convexity gives F_0(mu^(t)), which its last lines then use.",
    "The proof of Lemma 2 squares loss'' where it should square the difference of moments, and bounds an integral of h where it "
    "needs one of |h|; like Lemma 1's it loses a factor gamma.",
    "Example 2 calls minus the sum of logarithms the log-likelihood; the kernel's index delta and its width sigma are the same.",
)
