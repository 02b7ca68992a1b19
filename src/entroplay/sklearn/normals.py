"""Arithmetic of normal kernels and their mixtures, in blocks that fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..measures.weights import systematic_indices

BLOCK = 2**22
"""Maximum number of entries in a temporary table of distances."""


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
    return np.log(np.exp(exponents - top).sum(axis=-1)) + top[..., 0]


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
        # collects the terms without theta, `linear` the factors of theta.
        precision = 1 / self.variances
        level = np.log(self.weights) - 0.5 * np.log(2 * np.pi * self.variances).sum(axis=1)
        level = level - 0.5 * (self.centres**2 * precision).sum(axis=1)
        linear = (self.centres * precision).T

        def mixture(part: np.ndarray) -> np.ndarray:
            return log_sum_exp(level + part @ linear - 0.5 * part**2 @ precision.T)

        return in_blocks(mixture, points, len(level))
