"""Rows as a weighted set: what a fit may depend on, and shapes that compile once.

A fit sees neither the order of the rows nor how often one is repeated, only its weight: rows are sorted, equal ones merged,
those without weight left out. So a row of weight two is a row given twice to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST_ROWS = 128
"""The smallest shape that is compiled: below it rows cost next to nothing."""


@dataclass(frozen=True)
class WeightedRows:
    """Distinct rows in a fixed order, their targets (n, t), and weights that sum to one."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.X)

    def part(self, chosen: np.ndarray) -> WeightedRows:
        """Some of the rows, their weights normalised."""
        weights = self.weights[chosen]
        return WeightedRows(self.X[chosen], self.y[chosen], weights / weights.sum())


def merge(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> WeightedRows:
    """The distinct rows (with their targets) of positive weight."""
    kept = weights > 0
    table = np.column_stack([X[kept], y[kept]]).astype(np.float64)
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    # Sums in the order of the weights themselves: the same whatever the order of the rows.
    order = np.argsort(weights[kept], kind="stable")
    total = np.bincount(place.ravel()[order], weights=weights[kept][order], minlength=len(distinct))
    p = X.shape[1]
    return WeightedRows(distinct[:, :p], distinct[:, p:], total / total.sum())


def bucket(n: int) -> int:
    """The number of rows to which n rows are padded, so that sets of nearly the same size share one compiled program."""
    size = LEAST_ROWS
    while size < n:
        size *= 2
    step = size // 8  # an octave is cut into four
    return max(LEAST_ROWS, step * -(-n // step))


def padded(array: np.ndarray, size: int) -> np.ndarray:
    """Zeros behind the rows, up to `size` of them."""
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


@dataclass(frozen=True)
class Standardiser:
    """x -> (x - mean) / deviation, column by column; constant columns become zero."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray) -> Standardiser:
        """Weighted mean and standard deviation."""
        mean = weights @ values
        deviation = np.sqrt(weights @ (values - mean) ** 2)
        # What rounding alone leaves of a constant column counts as constant.
        constant = deviation <= 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0)
        return cls(mean, np.where(constant, 1.0, deviation))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.deviation

    def undo(self, values: np.ndarray) -> np.ndarray:
        return values * self.deviation + self.mean
