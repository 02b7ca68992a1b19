"""Columns of categories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.registry import storable
from .base import MISSING, RARE, Column, level_of, varying

MOST_LEVELS = 20
"""Maximum number of indicators of one column, apart from that of all other levels."""
MOST_SHARES = 10_000
"""Maximum number of levels whose frequency is remembered; others count as the rarest."""


@storable
@dataclass(frozen=True)
class CategoryColumn(Column):
    """Categories: an indicator for each frequent level, and one for all others.

    A missing value is a level of its own. Where there are more levels than indicators, the
    logarithm of a level's frequency is a further feature. It tells levels apart that share an
    indicator, without looking at the target. An encoding by the mean target, the usual one, leaks
    the target into the inputs unless it is cross-fitted, and the held-out rows that choose the
    temperature of a network would be fooled by it.

    Attributes:
        levels: the levels that have an indicator; None is a missing value.
        other: whether there are other levels, which share an indicator. A level that was not seen
            counts as one of them; where there are none, all its indicators are zero.
        shares: the levels that are more frequent than the rarest, with their shares of the weight;
            empty if there are few levels.
        rarest: the share of the rarest level, which unseen ones are given.
    """

    levels: tuple[str | None, ...]
    other: bool
    shares: tuple[tuple[str | None, float], ...]
    rarest: float

    @classmethod
    def of(cls, name: str, values: np.ndarray, weights: np.ndarray) -> CategoryColumn:
        """Learn from values and weights that sum to one."""
        totals: dict[str | None, float] = {}
        # Weights are added in increasing order: the sums do not depend on the order of the rows.
        for i in np.argsort(weights, kind="stable"):
            if weights[i] > 0:
                level = level_of(values[i])
                totals[level] = totals.get(level, 0.0) + float(weights[i])
        ranked = sorted(totals, key=lambda level: (-totals[level], str(level)))
        frequent = [level for level in ranked[:MOST_LEVELS] if totals[level] >= RARE]
        rarest = min(totals.values())
        shares = [(level, totals[level]) for level in ranked if totals[level] > rarest]
        column = cls(
            name,
            (),
            tuple(sorted(frequent, key=lambda level: (level is None, str(level)))),
            len(frequent) < len(ranked),
            tuple(shares[:MOST_SHARES]) if len(ranked) > MOST_LEVELS else (),
            rarest,
        )
        return varying(column, values, weights)

    @classmethod
    def one_hot(cls, name: str, levels: tuple[str, ...]) -> CategoryColumn:
        """A column with an indicator for each of these levels and nothing else."""
        return cls(name, tuple(f" = {level}" for level in levels), levels, False, (), 1.0)

    def features(self, values: np.ndarray) -> dict[str, np.ndarray]:
        found = [level_of(value) for value in values]
        place = {level: i for i, level in enumerate(self.levels)}
        codes = np.array([place.get(level, -1) for level in found])
        features = {
            MISSING if level is None else f" = {level}": (codes == i).astype(np.float64)
            for i, level in enumerate(self.levels)
        }
        if self.other:
            features[" is another"] = (codes == -1).astype(np.float64)
        if self.shares:
            known = dict(self.shares)
            features[" by frequency"] = np.log([known.get(level, self.rarest) for level in found])
        return features

    @property
    def note(self) -> str:
        if self.shares:
            return "an indicator for each frequent value, one for all others, and the frequency"
        if self.other:
            return "an indicator for each value, one for all rare ones"
        return "an indicator for each value"
