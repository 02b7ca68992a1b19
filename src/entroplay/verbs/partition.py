r"""log Z_g, the logarithm of the integral of exp(-U_g / temperature), with an error bar.

The dual objective, eq. (11), contains it. Where quadrature does not apply it is computed by
importance sampling or by sequential Monte Carlo.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..base.compilation import compiled, traced
from ..measures.uniform import POINTS
from ..measures.weights import effective_number
from ..problems.features.base import Moments
from ..problems.problem import FiniteSum

QUADRATURE_DIMENSIONS = 2
"""Maximum number of parameters for which quadrature is used: with zero, clouds judge all."""
QUADRATURE_ELEMENTS = 5 * 10**7
"""Maximum number of entries of the feature matrix on a grid for which quadrature is used."""
REPLICATES = 8
"""Number of independent estimates from whose spread the error of a sampled log Z_g is computed."""
PRIOR_DRAWS = 50_000
"""Number of draws of the prior for importance sampling, over all replicates."""
LEAST_EFFECTIVE = 2_000
"""Minimum effective number of these draws; importance sampling is not trusted below it."""


class LogPartition(NamedTuple):
    """An estimate of log Z_g, its standard error, and the method that gave it."""

    value: float
    error: float
    method: str


def quadrature_applies(problem: FiniteSum) -> bool:
    """Whether a grid holds the problem."""
    if problem.dim > QUADRATURE_DIMENSIONS:
        return False
    elements = int(np.prod(problem.features.shape)) * POINTS[problem.dim] ** problem.dim
    return elements <= QUADRATURE_ELEMENTS


def log_partition(
    problem: FiniteSum, key: PRNGKeyArray, dual: Moments, smc_log_ratios: np.ndarray
) -> LogPartition:
    """Estimate log Z_g by the most precise sampling method that applies.

    `smc_log_ratios` are the islands' estimates of log(Z_g / Z_0).
    """
    with problem.arithmetic():
        sampled = by_importance_sampling(problem, key, dual)
    return sampled or from_replicates(problem, smc_log_ratios, "sequential Monte Carlo")


def by_importance_sampling(
    problem: FiniteSum, key: PRNGKeyArray, dual: Moments
) -> LogPartition | None:
    """Average exp(-<g, h> / temperature) over the prior; None if too few draws are effective."""
    log_weights = np.asarray(_prior_log_weights(traced(problem), key, dual), np.float64)
    shifted = np.exp(log_weights - log_weights.max())
    if effective_number(shifted / shifted.sum()) < LEAST_EFFECTIVE:
        return None
    log_ratios = np.log(shifted.mean(axis=1)) + log_weights.max()
    return from_replicates(problem, log_ratios, "importance sampling from the prior")


@compiled
def _prior_log_weights(problem: FiniteSum, key: PRNGKeyArray, dual: Moments) -> Float[Array, "b m"]:
    """log(q_g / q_0) at draws of the prior nu, one row per replicate.

    The penalties cancel: U_g - U_0 = sum_i w_i <g_i, h_i>, and nu is proportional to q_0.
    """
    draws = problem.prior(key, PRIOR_DRAWS)
    potential = problem.features.potential(draws, problem.weigh(dual))
    return (-potential / problem.temperature).reshape(REPLICATES, -1)


def from_replicates(problem: FiniteSum, log_ratios: np.ndarray, method: str) -> LogPartition:
    """log Z_g from independent, unbiased estimates of Z_g / Z_0, whose logarithms are given."""
    log_ratios = np.asarray(log_ratios, np.float64)
    ratios = np.exp(log_ratios - log_ratios.max())
    mean = ratios.mean()
    # To first order, the error of log(mean) is the relative error of the mean.
    error = ratios.std(ddof=1) / mean / np.sqrt(len(ratios))
    value = prior_log_partition(problem) + float(log_ratios.max() + np.log(mean))
    return LogPartition(value, float(error), method)


def prior_log_partition(problem: FiniteSum) -> float:
    """log Z_0 = (d/2) log(pi temperature / l2), or the sum of (1/2) log(pi temperature / l2_j).

    Z_0 normalises the Gaussian prior nu, see below eq. (12).
    """
    l2 = np.broadcast_to(np.asarray(problem.l2, np.float64), (problem.dim,))
    return float(np.log(np.pi * problem.temperature / l2).sum()) / 2
