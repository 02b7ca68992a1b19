"""Arithmetic of normal kernels and their mixtures, in blocks that fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..measures.weights import systematic_indices

BLOCK = 2**16
"""Maximum number of entries in a temporary table of distances. Half a megabyte stays in the cache,
and the products are too small to be divided among threads that wait for each other."""


def log_height(d: int, width: float) -> float:
    """The logarithm of N(0; 0, width^2 I) in d dimensions."""
    return float(-d * (np.log(width) + 0.5 * np.log(2 * np.pi)))


def square_distances(points: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The squared distances |theta_r - x_i|^2 of all points from all rows (N, n)."""
    # |theta|^2 - 2 theta.x + |x|^2, which needs no array (N, n, d). Rounding may fall below zero.
    squares = points @ (-2 * rows.T)
    squares += (points**2).sum(axis=1)[:, None]
    squares += (rows**2).sum(axis=1)[None, :]
    return np.maximum(squares, 0, out=squares)


def log_sum_exp(exponents: np.ndarray) -> Any:
    """log sum exp along the last axis, in half the time that SciPy's function takes."""
    top = exponents.max(axis=-1, keepdims=True)
    shifted = exponents - top
    return np.log(np.exp(shifted, out=shifted).sum(axis=-1)) + top[..., 0]


def in_blocks(
    function: Callable[[np.ndarray], np.ndarray], points: np.ndarray, columns: int
) -> np.ndarray:
    """The values of a function of the rows of `points`, computed block by block.

    A block has as many rows as a table with this number of columns has room for.
    """
    size = max(1, BLOCK // columns)
    return np.concatenate(
        [function(points[first : first + size]) for first in range(0, len(points), size)]
    )


@dataclass(frozen=True)
class NormalMixture:
    """A mixture of normals with diagonal covariances.

    Attributes:
        share: fraction of a support that is drawn from this mixture.
        centres, variances: (k, d).
        weights: (k,), positive; they sum to one.
    """

    share: float
    centres: np.ndarray
    variances: np.ndarray
    weights: np.ndarray

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `count` points (count, d), with components chosen by systematic resampling."""
        chosen = systematic_indices(self.weights, count, rng.random())
        noise = rng.standard_normal((count, self.centres.shape[1]))
        return self.centres[chosen] + np.sqrt(self.variances[chosen]) * noise

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """The log-density at the points (N, d)."""
        # The exponent -(theta - c)^2 / (2 variance) is expanded as for `square_distances`: `level`
        # collects the terms without theta. One product then has all exponents.
        precision = 1 / self.variances
        level = np.log(self.weights) - 0.5 * np.log(2 * np.pi * self.variances).sum(axis=1)
        level = level - 0.5 * (self.centres**2 * precision).sum(axis=1)
        factors = np.concatenate([level[:, None], self.centres * precision, -0.5 * precision], 1).T

        def mixture(part: np.ndarray) -> np.ndarray:
            terms = np.concatenate([np.ones((len(part), 1)), part, part**2], axis=1)
            return log_sum_exp(terms @ factors)

        return in_blocks(mixture, points, len(level))
