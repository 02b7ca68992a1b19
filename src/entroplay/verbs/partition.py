r"""log Z_g, the logarithm of the integral of exp(-U_g / temperature), with an error bar: by quadrature, importance sampling
or sequential Monte Carlo.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..base.compilation import compiled, traced
from ..measures.quadrature import guaranteed_box, points_per_axis, tightened
from ..problems.features.base import Moments
from ..problems.problem import FiniteSum

REPLICATES = 8
PRIOR_DRAWS = 50_000
LEAST_EFFECTIVE = 2_000
"""Importance sampling from the prior is trusted when this many of the draws are effective."""


class LogPartition(NamedTuple):
    """An estimate of log Z_g, its standard error, and the method that gave it."""

    value: float
    error: float
    method: str


def prior_log_partition(problem: FiniteSum) -> float:
    """log Z_0 = (d/2) log(pi temperature / l2), or the sum of (1/2) log(pi temperature / l2_j)."""
    l2 = np.broadcast_to(np.asarray(problem.l2, np.float64), (problem.dim,))
    return float(np.log(np.pi * problem.temperature / l2).sum()) / 2


def by_quadrature(problem: FiniteSum, dual: Moments) -> LogPartition:
    """To rounding, for d <= 2."""
    g = np.asarray(dual, np.float64)
    size = points_per_axis(problem, None)
    coarse = guaranteed_box(problem, size if problem.dim == 1 else 101, lambda _: [g])
    fine = tightened(coarse, size, [g])
    return LogPartition(fine.gibbs(g)[1], 0.0, "quadrature")


def by_importance_sampling(
    problem: FiniteSum, key: PRNGKeyArray, dual: Moments
) -> LogPartition | None:
    """From draws of the prior in eight replicates; None where too few of them are effective."""
    log_weights = np.asarray(_prior_log_weights(traced(problem), key, dual), np.float64)
    shifted = np.exp(log_weights - log_weights.max())
    if shifted.sum() ** 2 / (shifted**2).sum() < LEAST_EFFECTIVE:
        return None
    return from_replicates(
        problem,
        np.log(shifted.mean(axis=1)) + log_weights.max(),
        "importance sampling from the prior",
    )


@compiled
def _prior_log_weights(problem: FiniteSum, key: PRNGKeyArray, dual: Moments) -> Float[Array, "b m"]:
    draws = problem.prior(key, PRIOR_DRAWS)
    potential = problem.features.potential(draws, problem.weigh(dual))
    return (-potential / problem.temperature).reshape(REPLICATES, -1)


def from_replicates(problem: FiniteSum, log_ratios: np.ndarray, method: str) -> LogPartition:
    """log of the mean of independent, unbiased estimates of Z_g / Z_0, with the error of that mean."""
    log_ratios = np.asarray(log_ratios, np.float64)
    ratios = np.exp(log_ratios - log_ratios.max())
    mean = ratios.mean()
    error = ratios.std(ddof=1) / mean / np.sqrt(len(ratios))
    return LogPartition(
        prior_log_partition(problem) + float(log_ratios.max() + np.log(mean)), float(error), method
    )


def log_partition(
    problem: FiniteSum, key: PRNGKeyArray, dual: Moments, smc_log_ratios: np.ndarray
) -> LogPartition:
    """By the most precise method that applies; `smc_log_ratios` are the islands' log Z_g / Z_0."""
    features = problem.features
    if (
        problem.dim <= 2
        and int(np.prod(features.shape)) * (4001 if problem.dim == 1 else 301**2) <= 5 * 10**7
    ):
        return by_quadrature(problem, dual)
    with jax.enable_x64(problem.dtype == jnp.float64):
        sampled = by_importance_sampling(problem, key, dual)
    return sampled or from_replicates(problem, smc_log_ratios, "sequential Monte Carlo")
