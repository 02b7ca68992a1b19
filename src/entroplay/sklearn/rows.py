"""Rows as a weighted set: the information that a fit may depend on, in shapes that compile once.

A fit depends neither on the order of the rows nor on how often a row is repeated, only on its
weight: rows are sorted, equal rows are merged, and rows without weight are left out. A row of
weight two and a row given twice therefore lead to the same result, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST_ROWS = 128
"""Smallest number of rows that is compiled for. Below it, rows cost next to nothing."""


@dataclass(frozen=True)
class WeightedRows:
    """Distinct rows in a fixed order, their targets (n, t), and weights that sum to one."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.X)

    def part(self, chosen: np.ndarray) -> WeightedRows:
        """The chosen rows, with their weights normalised."""
        weights = self.weights[chosen]
        return WeightedRows(self.X[chosen], self.y[chosen], weights / weights.sum())


def merge(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> WeightedRows:
    """The distinct rows of positive weight, with their targets."""
    kept = weights > 0
    table = np.column_stack([X[kept], y[kept]]).astype(np.float64)
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    # Weights of equal rows are added in increasing order: rounding then gives the same sum
    # whatever the order of the rows.
    order = np.argsort(weights[kept], kind="stable")
    total = np.bincount(place.ravel()[order], weights=weights[kept][order], minlength=len(distinct))
    p = X.shape[1]
    return WeightedRows(distinct[:, :p], distinct[:, p:], total / total.sum())


def bucket(n: int) -> int:
    """The number of rows to which n rows are padded.

    Sets of nearly the same size share it, and with it the compiled program.
    """
    size = LEAST_ROWS
    while size < n:
        size *= 2
    step = size // 8  # four sizes from one power of two to the next: padding adds a quarter at most
    return max(LEAST_ROWS, step * -(-n // step))


def padded(array: np.ndarray, size: int) -> np.ndarray:
    """The array with rows of zeros appended, `size` rows in all."""
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
