"""Every theorem, lemma and proposition of the paper on grids, where expectations are exact.

Rates are written r = eta gamma, the only combination on which the discrete algorithm depends; time is measured in units of
1 / gamma. B = 1 bounds the features and L the second derivative of the loss.
"""

from __future__ import annotations

from itertools import islice, pairwise

import jax
import numpy as np

from ..measures.quadrature import Quadrature, kl
from ..problems.problem import FiniteSum
from ..verbs.grid import jacobian, newton
from .claims import Claim, Part
from .exact import continuous_play, fictitious_play, proximal_gibbs, values
from .misprints import REMARKS, misprints
from .settings import (
    FLOOR,
    ROUNDING,
    Run,
    Setting,
    bounded_settings,
    cold_setting,
    density_setting,
    largest,
)


def duality(s: Setting, run: Run) -> list[Claim]:
    """Theorem 2 and Proposition 1 along a run."""
    gaps = [(v.primal - v.dual, s.temperature * v.kl) for v in run.values]
    scale = max(1.0, max(abs(v.primal) for v in run.values))
    claims = [
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
        *claims,
        Claim(
            "Proposition 1 (2)",
            "L(mu) - L* <= temperature KL(mu | mu-hat)",
            s.name,
            largest(gap / upper for upper, gap, _ in sandwich),
            1 + ROUNDING,
            note="largest ratio of the two sides",
        ),
        Claim(
            "Proposition 1 (2)",
            "temperature KL(mu | mu*) <= L(mu) - L*",
            s.name,
            largest(lower / gap for _, gap, lower in sandwich),
            1 + ROUNDING,
            note="largest ratio of the two sides",
        ),
    ]


def continuous(s: Setting, run: Run, step: float) -> list[Claim]:
    """Theorems 1, 3 and 4 along the continuous dynamics, and the derivatives in their proofs."""
    first = run.values[0]
    primal, divergence = [], []
    for index, v in enumerate(run.values[1:], start=1):
        decay = np.exp(-index * step)
        if v.primal - s.value > FLOOR:
            primal.append((v.primal - s.value) / (decay * (first.primal - s.value)))
        if s.temperature * v.kl > FLOOR:
            divergence.append(v.kl / (decay * first.kl))
    until = step * (len(run.values) - 1)
    claims = [
        Claim(
            "Theorem 1",
            "L(mu_t) - L* <= exp(-gamma t) (L(mu_0) - L*)",
            s.name,
            largest(primal),
            1.0,
            note=f"largest ratio of the two sides over 0 < gamma t <= {until:g}",
        ),
        Claim(
            "Theorem 3",
            "KL(mu_t | mu-hat_t) <= exp(-gamma t) KL(mu_0 | mu-hat_0)",
            s.name,
            largest(divergence),
            1.0,
            note=f"largest ratio of the two sides over 0 < gamma t <= {until:g}",
        ),
        *derivatives(
            s, [run.densities[i] for i in (0, len(run.densities) // 6, len(run.densities) // 3)]
        ),
    ]
    if np.isfinite(s.smoothness):
        factor = s.temperature + 2 * s.smoothness
        ratios = [
            (v.primal_gibbs - v.dual) / (factor * v.kl)
            for v in run.values
            if s.temperature * v.kl > FLOOR
        ]
        claims.append(
            Claim(
                "Theorem 4",
                "L(mu-hat_t) - D(g_mu_t) <= (temperature + 2 B^2 L) KL(mu_t | mu-hat_t)",
                s.name,
                largest(ratios),
                1 + ROUNDING,
                note="largest ratio of the two sides",
            )
        )
    return claims


def derivatives(s: Setting, starts: list[np.ndarray], step: float = 1e-3) -> list[Claim]:
    """d/dt of primal and dual, by differences of order four at a few times, against the formulas of the proofs."""
    primal, dual = [], []
    for start in starts:
        run = Run.of(s.quadrature, continuous_play(s.quadrature, step, start), 5)
        v = run.values[2]
        curvature = s.quadrature.weighted_curvature(s.quadrature.moments(run.densities[2]))
        fall, rise = (
            -s.temperature * (v.kl + v.reverse_kl),
            float(np.sum(curvature * v.residual**2)),
        )
        primal.append(abs(_slope([v.primal for v in run.values], step) / fall - 1))
        dual.append(abs(_slope([v.dual for v in run.values], step) / rise - 1))
    # The differences err by step^4 / 30 times a fifth derivative; times of change are no shorter than a hundredth of 1 / gamma.
    allowed = (100 * step) ** 4
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
    """The derivative in the middle of five values."""
    return (8 * (numbers[3] - numbers[1]) - (numbers[4] - numbers[0])) / (12 * step)


def discrete(s: Setting, rate: float, run: Run) -> list[Claim]:
    """Lemmas 1 and 2, Lemma B and Theorem 5 with gamma = 1, so that the printed constants apply as they are."""
    c, t0 = s.ratio, int(np.ceil(1 / rate))
    where = f"{s.name}, eta gamma = {rate:g}, gamma = 1"
    later = list(pairwise(run.values[t0:]))
    known = run.values[0].primal - s.value  # nothing changes by more than this
    fall = largest(b.primal - a.primal + s.temperature * rate * a.kl for a, b in later)
    drop = largest(a.dual - b.dual for a, b in later)
    bound = [
        (1 - rate) ** t * run.values[t0].kl + 7 * rate / s.temperature * (1 + c)
        for t in range(len(later) + 1)
    ]
    excess = max(range(len(bound)), key=lambda t: run.values[t0 + t].kl / bound[t])
    floor = largest(
        float((proximal_gibbs(s.quadrature, mu)[0] / (2 * c * np.maximum(mu, 1e-300))).max())
        for mu in run.densities[t0:]
    )
    return [
        Claim(
            "Lemma 1",
            "L(mu^(t+1)) - L(mu^(t)) + temperature gamma eta KL <= gamma eta^2 (3 C + 5)",
            where,
            fall,
            rate**2 * (3 * c + 5),
            trivial=known,
        ),
        Claim(
            "Lemma 2",
            "D(g^(t)) - D(g^(t+1)) <= 2 gamma eta^2 (1 + 2 C)",
            where,
            drop,
            2 * rate**2 * (1 + 2 * c),
            trivial=known,
        ),
        Claim(
            "Theorem 5",
            "KL(mu^(t) | mu-hat^(t)) <= (1 - gamma eta)^(t-t0) KL(t0) + 7 eta/temperature (1 + C)",
            where,
            run.values[t0 + excess].kl,
            bound[excess],
            trivial=run.values[0].kl,
            note=f"at the tightest t, {t0 + excess}",
        ),
        Claim(
            "Lemma B",
            "mu-hat^(t) <= 2 C mu^(t) for t >= t0",
            where,
            floor,
            1.0,
            note="largest ratio of the two sides",
        ),
    ]


def far_measures(s: Setting) -> list[np.ndarray]:
    """Measures as different as the features allow: the prior, and those that draw the moments to either side."""
    shape = s.quadrature.problem.features.shape
    duals = [
        np.zeros(shape),
        *(sign * 20 * s.temperature * (1 + np.arange(shape[0]) % 3) for sign in (1.0, -1.0)),
    ]
    return [s.quadrature.gibbs(np.asarray(dual))[0] for dual in duals]


def bounded_ratio(s: Setting) -> list[Claim]:
    """Lemma A."""
    measures = far_measures(s)
    logs = [proximal_gibbs(s.quadrature, mu)[1] for mu in measures]
    ratio = largest(float((a - b).max()) for a in logs for b in logs if a is not b)
    above, below, corrected = [], [], []
    for t in (0.02, 0.1, 0.25):
        for i, mu in enumerate(measures):
            for other in measures[:i] + measures[i + 1 :]:
                log_ratio = proximal_gibbs(s.quadrature, (1 - t) * mu + t * other)[1] - logs[i]
                above.append(float(np.expm1(log_ratio.max())) / (4 * t * s.ratio))
                below.append(-float(np.expm1(log_ratio.min())) / (4 * t))
                corrected.append(-float(np.expm1(log_ratio.min())) / (4 * t / s.temperature))
    claims = [
        Claim(
            "Lemma A",
            "log(mu-hat_1 / mu-hat_2) <= 4 / temperature",
            s.name,
            ratio,
            4 / s.temperature,
        ),
        Claim(
            "Lemma A",
            "mu-hat / mu-hat_1 - 1 <= 4 t C",
            s.name,
            largest(above),
            1 + ROUNDING,
            note="largest ratio of the two sides",
        ),
        Claim(
            "Lemma A, corrected",
            "mu-hat / mu-hat_1 - 1 >= -4 t / temperature",
            s.name,
            largest(corrected),
            1 + ROUNDING,
            note="largest ratio of the two sides",
        ),
    ]
    if s.temperature < 0.1:
        claims.append(
            Claim(
                "Lemma A, as printed",
                "mu-hat / mu-hat_1 - 1 >= -4 t",
                s.name,
                largest(below),
                1 + ROUNDING,
                misprint=True,
                note="exp(-4 t/temperature) >= 1 - 4 t needs a temperature of about one; the temperature was lost",
            )
        )
    return claims


def frank_wolfe(s: Setting, run: Run, rate: float, radii: tuple[float, ...]) -> list[Claim]:
    """Theorem 6 with the infimum over KL balls computed, and the number of iterations that follows from it."""
    ratios = []
    for radius in radii:
        least = least_loss(s, radius)
        epsilon = s.temperature * radius + 2 * rate * s.smoothness
        ratios += [
            v.loss / (epsilon + (1 - rate) ** t * run.values[0].loss + least)
            for t, v in enumerate(run.values)
        ]
    return [
        Claim(
            "Theorem 6",
            "F_0(mu^(T)) <= eps' + (1 - eta gamma)^T F_0(mu^(0)) + inf over KL(xi | nu) <= r of F_0(xi)",
            f"{s.name}, eta gamma = {rate:g}, r = {', '.join(f'{r:g}' for r in radii)}",
            largest(ratios),
            1 + ROUNDING,
            note="largest ratio of the two sides over all T and r",
        ),
        *complexity(s),
    ]


def complexity(s: Setting, epsilon: float = 0.05, radius: float = 0.1) -> list[Claim]:
    """After Theorem 6: temperature = eps/(4 r) and eta gamma = eps/(8 B^2 L) need T = 8 B^2 L/eps log(2 F_0/eps) iterations."""
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
    """The problem at another temperature, with the l2 that keeps nu."""
    problem = s.quadrature.problem
    with jax.enable_x64(True):
        l2 = float(np.asarray(problem.l2)) * temperature / s.temperature
        other = FiniteSum(problem.features, problem.loss, temperature=temperature, l2=l2)
    return Quadrature(other, s.quadrature.axes, s.quadrature.points, s.quadrature.matrix)


def least_loss(s: Setting, radius: float) -> float:
    """inf of F_0 over measures with KL(xi | nu) <= radius: the minimiser of F_0 + tau KL(xi | nu), tau such that it spends all."""
    log_prior = s.quadrature.log_gibbs(np.zeros(s.quadrature.problem.features.shape))

    def at(tau: float) -> tuple[float, float]:
        quadrature = with_same_prior(s, tau)
        density, _ = quadrature.gibbs(quadrature.slope(newton(quadrature)))
        return kl(density, log_prior, quadrature.cell), quadrature.loss(quadrature.moments(density))

    low, high = 1e-4, 100.0  # the divergence falls as tau grows
    if at(low)[0] <= radius:
        return at(low)[1]
    while high / low > 1.001:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if at(middle)[0] > radius else (low, middle)
    return at(low)[1]  # a ball that is a little larger: the infimum is not overestimated


def stability(s: Setting) -> list[Claim]:
    """Ours: near the optimum EFP multiplies the slowest error by 1 - rate (1 + eigenvalue of J), J = C W loss'' / temperature."""
    moments = s.quadrature.moments(s.optimum)
    eigenvalue = float(np.linalg.eigvals(jacobian(s.quadrature, s.optimum, moments)).real.max())
    limit = 2 / (1 + eigenvalue)
    claims = []
    for share in (0.9, 1.1):
        rate = share * limit
        start = s.optimum + 1e-7 * (s.quadrature.prior - s.optimum)
        sizes = [
            float(np.linalg.norm(values(s.quadrature, mu).residual))
            for mu in islice(fictitious_play(s.quadrature, rate, start), 61)
        ]
        growth = (sizes[60] / sizes[40]) ** (1 / 20)
        note = f"limit {limit:.4f}, measured growth {growth:.4f} per iteration"
        if share < 1:
            claims.append(
                Claim(
                    "Beyond the paper",
                    f"at {share:g} times the limit 2/(1 + eig J) errors die out",
                    s.name,
                    growth,
                    1.0,
                    note=note,
                )
            )
        else:
            predicted = rate * (1 + eigenvalue) - 1
            claims.append(
                Claim(
                    "Beyond the paper",
                    f"at {share:g} times the limit errors grow by rate (1 + eig J) - 1",
                    s.name,
                    abs(growth - predicted),
                    5e-3,
                    note=note,
                )
            )
    return claims


def reproduce(*, quick: bool, seed: int = 0) -> Part:
    """All of them. Nothing is random, so that the seed does not matter."""
    bounded, density, cold = bounded_settings(quick), density_setting(), cold_setting()
    step = 0.1 if quick else 0.05
    claims: list[Claim] = []
    for s in (*bounded, density):
        flow = Run.of(s.quadrature, continuous_play(s.quadrature, step), int(6 / step) + 1)
        claims += duality(s, flow) + continuous(s, flow, step)
    radii = (0.1,) if quick else (0.01, 0.1, 1.0)
    runs = {}
    for s in bounded:
        rate = 0.1
        runs[s.name] = Run.of(s.quadrature, fictitious_play(s.quadrature, rate), 60)
        claims += (
            discrete(s, rate, runs[s.name])
            + bounded_ratio(s)
            + frank_wolfe(s, runs[s.name], rate, radii)
        )
    claims += stability(cold) + stability(bounded[1])
    cold_run = Run.of(cold.quadrature, fictitious_play(cold.quadrature, 0.125), 40)
    claims += misprints(cold, cold_run, 0.125, bounded[0], runs[bounded[0].name], 0.1)
    expected = sum(claim.as_expected for claim in claims)
    slips = sum(claim.misprint for claim in claims)
    silent = sum(claim.verdict.startswith("holds, but") for claim in claims)
    return Part(
        name="theorems",
        title="The theorems, on grids",
        paper="Duality, convergence in continuous and in discrete time, the Frank-Wolfe view, and the lemmas behind them.",
        found=f"{expected} of {len(claims)} statements as expected; {slips} of them are misprints that fail as printed, "
        f"{silent} hold but say nothing at these temperatures.",
        claims=tuple(claims),
        numbers={
            "statements": len(claims),
            "as expected": expected,
            "misprints": slips,
            "without content": silent,
        },
        choices=(
            "Networks with tanh(theta x) on 12 points, loss (z - y)^2/4 or logistic: |h|, |loss'|, loss'' <= 1 as "
            "Assumption 2 wants.",
            "A statement is held as measured <= bound, or as the largest ratio of its two sides against one.",
        ),
        remarks=REMARKS,
    )
