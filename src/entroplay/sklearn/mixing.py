"""Mixing measures of densities: a support that adapts to the answer, and the optimum on it.

The points theta_r of a support are drawn from a proposal q. With base weights
b_r = prior(theta_r) / q(theta_r), weights w_r on the points stand for a measure with a density, and
KL(w | b) stands for its divergence from the prior. The problem on the points is solved by Newton's
method on its dual: see `support`.

A particle method would need particles near every row by chance; otherwise a row with no particle
nearby would have an unbounded slope. The proposal places points near the rows on purpose, and it is
adapted to what was found (population Monte Carlo, Cappe et al. 2004).
"""

from __future__ import annotations

import numpy as np

from ..measures.weights import systematic_indices
from .normals import NormalMixture, in_blocks, log_sum_exp
from .support import MixingProblem, NewtonLog, Support, optimum

SHARES = {"prior": 0.1, "posterior": 0.15, "peaks": 0.15, "found": 0.6}
"""Fractions of the points by origin.

- prior: draws of the prior, which bound all base weights;
- posterior: draws of each row's posterior location under the prior;
- peaks: draws near the rows, as tight as the last Gibbs measure is there;
- found: draws near the points of the last support, chosen by weight.
"""
PROPOSAL_POINTS, PROPOSAL_ROWS = 512, 1024
"""Maximum number of points of the last support, and of rows, that one proposal is built from."""
ENOUGH = 0.25
"""Fraction of the points that the effective sample size of an adapted support reaches."""
LEAST_POINTS = 256
"""Minimum number of points, however many rows there are, unless fewer are asked for."""
KERNEL_NUMBERS = 2**27
"""Maximum number of entries in the table of kernels of a support: one gigabyte."""


def solve_on_support(
    problem: MixingProblem,
    count: int,
    rng: np.random.Generator,
    *,
    last: Support | None,
    rounds: int,
    log: NewtonLog,
) -> Support:
    """The optimum on about `count` points.

    The points are drawn again around the last answer until they are adapted to it.

    Args:
        problem: rows, kernel and prior.
        count: number of points. There are fewer if the table of their kernels would be too large.
        rng: source of all randomness.
        last: a solution for the same rows and a kernel of about the same width, if there is one.
        rounds: maximum number of proposals.
        log: history to which the solves are appended; it also limits Newton's steps.
    """
    count = min(count, max(LEAST_POINTS, KERNEL_NUMBERS // problem.size))
    for _ in range(rounds):
        parts = proposal(problem, last, rng)
        # Exactly `count` points: every other number would compile another program.
        ends = np.rint(count * np.cumsum([part.share for part in parts])).astype(int)
        counts = np.diff(ends, prepend=0).tolist()
        drawn = [part.draw(k, rng) for part, k in zip(parts, counts, strict=True)]
        points = np.concatenate(drawn)
        # For every point, q is the whole mixture, whichever part the point was drawn from: base
        # weights are then at most one over the prior's share.
        shares = np.array([len(part) for part in drawn]) / len(points)
        densities = [
            np.log(share) + part.log_density(points)
            for share, part in zip(shares, parts, strict=True)
        ]
        log_base = parts[0].log_density(points) - log_sum_exp(np.stack(densities, axis=1))
        # Slopes belong to rows, not to points: the last ones are a start for the new points.
        last = optimum(problem, points, log_base, log, None if last is None else last.log_slopes)
        if last.effective > ENOUGH * len(points) or log.left <= 0:
            break
    assert last is not None
    return last


def proposal(
    problem: MixingProblem, last: Support | None, rng: np.random.Generator
) -> list[NormalMixture]:
    """The mixtures from which points are drawn, the prior first: see `SHARES`.

    Without a last support, the posteriors also take the shares of the parts that need one.
    """
    d, square = problem.rows.shape[1], problem.width**2
    chosen, weights = _resampled(problem.weights, PROPOSAL_ROWS, rng)
    rows = problem.rows[chosen]
    prior = NormalMixture(SHARES["prior"], np.zeros((1, d)), problem.variance[None], np.ones(1))
    # The posterior of theta given x = theta + width * noise, under the prior.
    shrunk = problem.variance / (problem.variance + square)
    posterior = (rows * shrunk, np.broadcast_to(square * shrunk, rows.shape), weights)
    if last is None:
        return [prior, NormalMixture(1 - prior.share, *posterior)]
    # Near row x the Gibbs measure is about the product of the prior and of a normal at x with
    # precision phi / width^2, phi the potential at the row.
    slopes = problem.weights * np.exp(last.log_slopes) / problem.temperature
    potential = in_blocks(lambda part: problem.kernel(part) @ slopes, rows, len(problem.rows))
    variance = problem.local_variance(potential)
    peaks = (rows * potential[:, None] * variance / square, variance, weights)
    chosen, weights = _resampled(last.weights, PROPOSAL_POINTS, rng)
    found = (last.points[chosen], problem.local_variance(last.potential[chosen]), weights)
    return [
        prior,
        NormalMixture(SHARES["posterior"], *posterior),
        NormalMixture(SHARES["peaks"], *peaks),
        NormalMixture(SHARES["found"], *found),
    ]


def _resampled(
    weights: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` indices with the weights that they then have.

    If there are more weights than that, indices are drawn by weight. Otherwise all indices of
    positive weight are returned.
    """
    if len(weights) <= most:
        kept = np.flatnonzero(weights)
        return kept, weights[kept]
    indices = systematic_indices(weights, most, rng.random())
    chosen, times = np.unique(indices, return_counts=True)
    return chosen, times / most
