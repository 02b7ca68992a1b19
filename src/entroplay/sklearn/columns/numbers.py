"""Columns of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.registry import storable
from .base import MISSING, Column, ColumnError, IgnoredColumn, median, varying


@storable
@dataclass(frozen=True)
class NumberColumn(Column):
    """Numbers; missing ones are replaced by the median, infinite ones by the extremes.

    Attributes:
        fill: the median of the values, or None: then missing and infinite values stay so.
        low: the smallest finite value, for minus infinity.
        high: the largest one, for infinity.
        missing: whether missing values were seen.
        infinite: whether infinite values were seen.
    """

    fill: float | None
    low: float
    high: float
    missing: bool
    infinite: bool

    @classmethod
    def of(cls, name: str, values: np.ndarray, weights: np.ndarray) -> NumberColumn | IgnoredColumn:
        """Learn from values and weights that sum to one."""
        finite = np.isfinite(values) & (weights > 0)
        if not finite.any():
            return IgnoredColumn(name, (), "no values")
        seen = values[finite]
        missing, infinite = (
            bool(which(values[weights > 0]).any()) for which in (np.isnan, np.isinf)
        )
        low, high = float(seen.min()), float(seen.max())
        column = cls(name, (), median(seen, weights[finite]), low, high, missing, infinite)
        return varying(column, values, weights)

    @classmethod
    def untouched(cls, name: str) -> NumberColumn:
        """A column of numbers that are used as they are."""
        return cls(name, ("",), None, 0.0, 0.0, False, False)

    def features(self, values: np.ndarray) -> dict[str, np.ndarray]:
        numbers = self.numbers(values)
        if self.fill is None:
            return {"": numbers}
        missing = np.isnan(numbers)
        filled = np.nan_to_num(numbers, nan=self.fill, posinf=self.high, neginf=self.low)
        return {"": filled, MISSING: missing.astype(np.float64)}

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """The values as numbers; anything else is refused."""
        if values.dtype.kind == "f":
            return values
        for row, value in enumerate(values):
            if value is not None:
                raise ColumnError(self.name, row, "numbers", str(value))
        return np.full(len(values), np.nan)

    @property
    def note(self) -> str | None:
        done = []
        if self.missing:
            marked = ", and marked" if MISSING in self.kept else ""
            done.append(f"missing values filled by the median{marked}")
        if self.infinite:
            done.append("infinite values replaced by the largest or smallest finite one")
        return "; ".join(done) or None
