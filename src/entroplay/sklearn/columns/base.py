"""What all kinds of columns share: features that are learned, named, kept and told.

A column arrives as one of three arrays: float64, where NaN is missing; objects, which are texts or
None; datetime64, where NaT is missing. The kinds take the weights of rows, which scikit-learn's
imputers and encoders do not: a row of weight two counts as the same row given twice.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...base.registry import storable

MISSING = " is missing"
"""Name of the feature that is 1 where a value is missing, and 0 elsewhere."""
RARE = 0.01
"""Levels below this share of the weight are grouped; an indicator of missing values needs it."""


class ColumnError(ValueError):
    """A column with an entry that its kind cannot take."""

    def __init__(self, name: str, row: int, must_be: str, got: object):
        super().__init__(f"column {name!r} must hold {must_be}, got {got!r} in row {row + 1}")
        self.name, self.row, self.must_be, self.got = name, row, must_be, got


@dataclass(frozen=True)
class Column(ABC):
    """How one column becomes numbers.

    Attributes:
        name: the name of the column.
        kept: names of those of its features that vary in the rows that were learned from.
    """

    name: str
    kept: tuple[str, ...]

    @abstractmethod
    def features(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """All features (n,) that the kind knows, by name."""

    @property
    @abstractmethod
    def note(self) -> str | None:
        """What is done to the column, in words; None if it is used as it is."""

    def matrix(self, values: np.ndarray) -> np.ndarray:
        """The features (n, k) that are kept."""
        features = self.features(values)
        return np.stack([features[name] for name in self.kept], axis=1)

    @property
    def outputs(self) -> list[str]:
        """Names of the features that are kept, with the name of the column."""
        return [f"{self.name}{feature}" for feature in self.kept]


Kind = TypeVar("Kind", bound=Column)


def varying(column: Kind, values: np.ndarray, weights: np.ndarray) -> Kind:
    """The same column, with the features that vary.

    A constant one would only make the network larger, and an indicator of very few missing values
    would only learn those rows by heart.
    """
    kept = [
        name
        for name, feature in column.features(values).items()
        if np.ptp(feature[weights > 0]) > 0
        and (name != MISSING or RARE <= feature @ weights <= 1 - RARE)
    ]
    return dataclasses.replace(column, kept=tuple(kept))


@storable
@dataclass(frozen=True)
class IgnoredColumn(Column):
    """A column that is left out.

    Attributes:
        reason: the reason, in a few words.
    """

    reason: str

    def features(self, values: np.ndarray) -> dict[str, np.ndarray]:
        return {}

    @property
    def note(self) -> str:
        return f"left out, {self.reason}"


def median(values: np.ndarray, weights: np.ndarray) -> float:
    """The weighted median; the lower one of two.

    >>> median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]))
    2.0
    """
    order = np.lexsort((weights, values))
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def level_of(value: Any) -> str | None:
    """The level of an entry: equal numbers and equal truth values have equal levels.

    A file may say 1 where another says 1.0, and TRUE where another says true.

    >>> level_of("1.0"), level_of(1), level_of("TRUE"), level_of(" red "), level_of(float("nan"))
    ('1', '1', 'true', 'red', None)
    """
    if value is None or value != value:  # only NaN and NaT differ from themselves
        return None
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)
