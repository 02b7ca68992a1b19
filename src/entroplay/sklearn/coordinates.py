"""Coordinates in which the kernel of a density is a ball."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.spatial import KDTree

from .scaling import Standardiser

SHAPES = ("local", "full", "diag")
"""Shapes of the kernel: local scatter, covariance of the data, diagonal of that covariance."""
COVARIANCE_RIDGE = 1e-6
"""Variance added to every standardised column, as `reg_covar` of scikit-learn's GaussianMixture."""
NEIGHBOURS, NEIGHBOUR_ROUNDS = 0.15, 4
"""Fraction of the rows that count as neighbours, and number of passes of the fixed-point iteration.

With a much smaller fraction every density looks flat, and any shape would be its own fixed point.
"""
SHRINKAGE = 4
"""Rows per column at which half of the estimated correlations is trusted: few rows say little about
correlations."""


def local_scatter(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean scatter between a row and its nearest neighbours, up to a factor.

    Neighbours are nearest in the metric that the scatter itself defines. The result is the
    covariance within clusters if there are clusters, and that of the data otherwise.
    """
    n, d = Z.shape
    scatter = _covariance(Z, weights)
    if d == 1 or n <= d + 2:
        return scatter
    neighbours = min(n - 1, max(d + 1, int(NEIGHBOURS * n)))
    towards_axes = d / (d + n / SHRINKAGE)
    # Fixed-point iteration: whiten by the scatter, find neighbours, take the scatter between them.
    for _ in range(NEIGHBOUR_ROUNDS):
        whitened = np.linalg.solve(np.linalg.cholesky(scatter), Z.T).T
        nearest = np.asarray(KDTree(whitened).query(whitened, neighbours + 1)[1])[:, 1:]
        difference = Z[:, None, :] - Z[nearest]
        scatter = np.einsum("i,ijk,ijl->kl", weights, difference, difference) / neighbours
        scatter = (
            (1 - towards_axes) * scatter
            + towards_axes * np.diag(np.diag(scatter))
            + COVARIANCE_RIDGE * np.eye(d)
        )
    return scatter


def _covariance(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    centred = Z - weights @ Z
    return (centred * weights[:, None]).T @ centred + COVARIANCE_RIDGE * np.eye(Z.shape[1])


@dataclass(frozen=True)
class Coordinates:
    """The map x -> (x - mean) @ axes, after which the kernel is a ball.

    The covariance of the data is then diagonal, with `spread` on the diagonal in increasing order
    and 1 as its smallest entry.
    """

    mean: np.ndarray
    axes: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray, shape: str) -> Coordinates:
        """The coordinates of these rows for a kernel of this shape, one of `SHAPES`."""
        standard = Standardiser.of(X, weights)
        Z = standard(X)
        covariance = _covariance(Z, weights)
        kernel = {"full": covariance, "diag": np.diag(np.diag(covariance))}.get(shape)
        kernel = local_scatter(Z, weights) if kernel is None else kernel
        # Generalised eigenvectors A: A' kernel A = I and A' covariance A = diag(spread).
        spread, axes = eigh(covariance, kernel)
        # The sign of an eigenvector is arbitrary. Fix it: equal data have equal coordinates.
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(spread))])
        return cls(
            standard.mean,
            axes / np.sqrt(spread[0]) / standard.deviation[:, None],
            spread / spread[0],
        )

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) @ self.axes

    def undo(self, Y: np.ndarray) -> np.ndarray:
        """The rows in the original units that have the coordinates Y."""
        return np.linalg.solve(self.axes.T, Y.T).T + self.mean

    @property
    def log_volume(self) -> float:
        """The summand that turns a log-density in these coordinates into one in original units."""
        return float(np.linalg.slogdet(self.axes)[1])
