"""Coordinates in which the kernel of a density is a ball."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.spatial import KDTree

from .rows import Standardiser

SHAPES = ("local", "full", "diag")
RIDGE = 1e-6
"""On the covariance of the standardised data, as GaussianMixture's reg_covar."""
NEIGHBOURS, NEIGHBOUR_ROUNDS = 0.15, 4
"""The share of the rows that counts as near: much smaller ones would see every density as flat, and any shape as right."""


def local_scatter(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean scatter of a row and its nearest neighbours, in the metric that it defines itself: the covariance within clusters,
    where there are such, and that of the data, where not. Known up to a factor.
    """
    n, d = Z.shape
    scatter = _covariance(Z, weights)
    if d == 1 or n <= d + 2:
        return scatter
    neighbours = min(n - 1, max(d + 1, int(NEIGHBOURS * n)))
    towards_axes = d / (d + n / 4)  # few rows say little about correlations
    for _ in range(NEIGHBOUR_ROUNDS):
        whitened = np.linalg.solve(np.linalg.cholesky(scatter), Z.T).T
        nearest = np.asarray(KDTree(whitened).query(whitened, neighbours + 1)[1])[:, 1:]
        difference = Z[:, None, :] - Z[nearest]
        scatter = np.einsum("i,ijk,ijl->kl", weights, difference, difference) / neighbours
        scatter = (
            (1 - towards_axes) * scatter
            + towards_axes * np.diag(np.diag(scatter))
            + RIDGE * np.eye(d)
        )
    return scatter


def _covariance(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    centred = Z - weights @ Z
    return (centred * weights[:, None]).T @ centred + RIDGE * np.eye(Z.shape[1])


@dataclass(frozen=True)
class Coordinates:
    """x -> (x - mean) @ axes, in which the kernel is a ball and the data's covariance is diagonal, with `spread` on the diagonal
    and one for the least of them.
    """

    mean: np.ndarray
    axes: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray, shape: str) -> Coordinates:
        """For a kernel that has the shape of the local scatter, of the data's covariance, or of its diagonal."""
        standard = Standardiser.of(X, weights)
        Z = standard(X)
        covariance = _covariance(Z, weights)
        kernel = {"full": covariance, "diag": np.diag(np.diag(covariance))}.get(shape)
        kernel = local_scatter(Z, weights) if kernel is None else kernel
        spread, axes = eigh(covariance, kernel)
        # The sign of an eigenvector is arbitrary: fixed, so that equal data have equal coordinates.
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(spread))])
        return cls(
            standard.mean,
            axes / np.sqrt(spread[0]) / standard.deviation[:, None],
            spread / spread[0],
        )

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) @ self.axes

    def undo(self, Y: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.axes.T, Y.T).T + self.mean

    @property
    def log_volume(self) -> float:
        """What to add to a log-density in these coordinates to have one in the original units."""
        return float(np.linalg.slogdet(self.axes)[1])
