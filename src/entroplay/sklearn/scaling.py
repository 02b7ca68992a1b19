"""Standardisation of columns, by weighted means and standard deviations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROUNDING = 10 * np.finfo(np.float64).eps
"""Largest ratio of deviation to magnitude in a constant column: what rounding errors leave."""


@dataclass(frozen=True)
class Standardiser:
    """The map x -> (x - mean) / deviation of each column; constant columns become zero."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray) -> Standardiser:
        """The standardiser of these rows, whose weights sum to one."""
        mean = weights @ values
        deviation = np.sqrt(weights @ (values - mean) ** 2)
        constant = deviation <= ROUNDING * np.abs(values).max(axis=0)
        return cls(mean, np.where(constant, 1.0, deviation))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.deviation

    def undo(self, values: np.ndarray) -> np.ndarray:
        """The original values of standardised ones."""
        return values * self.deviation + self.mean

    def exact(self, values: np.ndarray) -> Standardiser:
        """The map whose `undo` returns columns exactly that are constant in these rows."""
        constant = np.ptp(values, axis=0) <= ROUNDING * np.abs(values).max(axis=0)
        mean = np.where(constant, values[0], self.mean)
        return Standardiser(mean, np.where(constant, 0.0, self.deviation))
