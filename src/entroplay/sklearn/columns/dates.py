"""Columns of dates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.registry import storable
from .base import MISSING, Column, ColumnError, IgnoredColumn, level_of, median, varying
from .date_texts import ORDERS, calendar, day_of, days_of_moments, written


@storable
@dataclass(frozen=True)
class DateColumn(Column):
    """Dates, as year, month, weekday, hour, and days since the first one.

    Attributes:
        order: the order of the parts in texts, one of `ORDERS`; None if dates are no texts.
        first: the first date, in days since 1970.
        fill: the median date, for missing ones.
        missing: whether missing dates were seen.
    """

    order: str | None
    first: float
    fill: float
    missing: bool

    @classmethod
    def of(
        cls, name: str, values: np.ndarray, weights: np.ndarray, order: str | None = None
    ) -> DateColumn | IgnoredColumn:
        """Learn from values and weights that sum to one."""
        days = cls(name, (), order, 0.0, 0.0, False).days(values)
        known = ~np.isnan(days) & (weights > 0)
        if not known.any():
            return IgnoredColumn(name, (), "no values")
        fill = median(days[known], weights[known])
        missing = bool(np.isnan(days[weights > 0]).any())
        column = cls(name, (), order, float(days[known].min()), fill, missing)
        return varying(column, values, weights)

    def days(self, values: np.ndarray) -> np.ndarray:
        """The dates in days since 1970, NaN where they are missing; anything else is refused."""
        if values.dtype.kind == "M":
            return days_of_moments(values)
        days = np.full(len(values), np.nan)
        order = self.order or "ymd"
        for row, value in enumerate(values):
            text = level_of(value)
            if text is None:
                continue
            day = day_of(str(value), order)
            if day is None:
                raise ColumnError(self.name, row, f"dates ({ORDERS[order]})", text)
            days[row] = day
        return days

    def features(self, values: np.ndarray) -> dict[str, np.ndarray]:
        days = self.days(values)
        missing = np.isnan(days)
        days = np.where(missing, self.fill, days)
        features = {f": {part}": feature for part, feature in calendar(days).items()}
        features[": days"] = days - self.first
        return features | {MISSING: missing.astype(np.float64)}

    @property
    def note(self) -> str:
        parts = [feature[2:] for feature in self.kept if feature not in (": days", MISSING)]
        read = f" ({ORDERS[self.order]})" if self.order in ("dmy", "mdy") else ""
        filled = "; missing ones filled by the median" if self.missing else ""
        filled += ", and marked" if MISSING in self.kept else ""
        return f"date{read} as {', '.join([*parts, f'days since {written(self.first)}'])}{filled}"
