"""All columns of a table, as one recipe that turns raw columns into a matrix of numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.registry import storable
from .base import Column, IgnoredColumn
from .categories import CategoryColumn
from .date_texts import order_of
from .dates import DateColumn
from .numbers import NumberColumn

IDENTIFIER = re.compile(
    r"(.*[^A-Za-z]|.*(?=I))?(?i:ids?|index|idx|uuid|guid|key|rowid|rownames?|row|column 1)"
)
"""Names of numeric columns that number the rows: "id", "user_id", "PassengerId", "rownames".

A first column without a name, as pandas writes its index, is called "column 1".
"""
FEWEST_IDENTIFIERS = 3
"""Minimum number of distinct values of an identifier."""
MOST_NAMES = 4
"""Maximum number of columns that a note names."""

RawColumns = Mapping[str, np.ndarray]
"""Columns by name: float64 (NaN is missing), objects (texts or None), or datetime64."""


@storable
@dataclass(frozen=True)
class Columns:
    """How the columns of a table become a matrix of numbers.

    Numbers are used as they are, with missing values filled and marked. Texts become indicators,
    or dates if every one of them is a date. Columns that are constant are left out. Nothing here
    looks at a target.

    Attributes:
        columns: the columns in their order, each as a `Column` of one kind.

    >>> colours = np.array(["red", "blue", "red"], object)
    >>> recipe = Columns.learn({"width": np.array([1.0, np.nan, 3.0]), "colour": colours})
    >>> recipe.names
    ['width', 'width is missing', 'colour = blue', 'colour = red']
    >>> recipe.matrix({"width": np.array([2.0]), "colour": np.array(["green"], object)}).tolist()
    [[2.0, 0.0, 0.0, 0.0]]
    """

    columns: tuple[Any, ...]

    @classmethod
    def learn(
        cls,
        raw: RawColumns,
        weights: np.ndarray | None = None,
        *,
        suspects: Collection[str] = (),
    ) -> Columns:
        """Learn from the columns of a table.

        Args:
            raw: the columns.
            weights: non-negative weights of the rows, or None for equal ones.
            suspects: names of columns that are left out if they look like identifiers.
        """
        n = len(next(iter(raw.values()), ()))
        weights = np.ones(n) if weights is None else weights
        shares = weights / weights.sum()
        return cls(tuple(_learn(name, raw[name], shares, name in suspects) for name in raw))

    def matrix(self, raw: RawColumns) -> np.ndarray:
        """The numbers (n, p) in columns of the same names; unseen categories do not fail."""
        n = len(next(iter(raw.values()), ()))
        parts = [column.matrix(raw[column.name]) for column in self.used]
        return np.concatenate([np.empty((n, 0)), *parts], axis=1)

    @property
    def used(self) -> list[Column]:
        """The columns that are not left out."""
        return [column for column in self.columns if column.kept]

    @property
    def names(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [name for column in self.used for name in column.outputs]

    @property
    def notes(self) -> list[str]:
        """What is done to columns that are not used as they are: one line for each treatment."""
        treated: dict[str, list[str]] = {}
        for column in self.columns:
            if column.note is not None:
                treated.setdefault(column.note, []).append(column.name)
        return [f"{listed(names)}: {note}" for note, names in treated.items()]


def _learn(name: str, values: np.ndarray, weights: np.ndarray, suspect: bool) -> Column:
    """The kind of a column, learned from its values and from weights that sum to one."""
    if suspect and _is_identifier(name, values):
        return IgnoredColumn(name, (), "all values differ")
    if values.dtype.kind == "f":
        column = NumberColumn.of(name, values, weights)
    elif values.dtype.kind == "M":
        column = DateColumn.of(name, values, weights)
    elif order := order_of(_texts(values)):
        column = DateColumn.of(name, values, weights, order)
    else:
        column = CategoryColumn.of(name, values, weights)
    if isinstance(column, IgnoredColumn) or column.kept:
        return column
    return IgnoredColumn(name, (), "the same value in every row")


def _texts(values: np.ndarray) -> set[str]:
    return {str(value) for value in values if value is not None}


def _is_identifier(name: str, values: np.ndarray) -> bool:
    """Whether a column numbers or names the rows.

    Numbers that all differ are usually measurements: only the name tells an identifier.
    """
    if values.dtype.kind == "O":
        texts = [value for value in values if value is not None]
        distinct = set(texts)
        alike = len(distinct) == len(texts) >= FEWEST_IDENTIFIERS
        return alike and order_of(distinct) is None
    if values.dtype.kind != "f" or IDENTIFIER.fullmatch(name.strip()) is None:
        return False
    seen = values[~np.isnan(values)]
    whole = np.isfinite(seen).all() and (seen == np.round(seen)).all()
    return bool(whole and len(np.unique(seen)) == len(seen) >= FEWEST_IDENTIFIERS)


def listed(names: list[str]) -> str:
    """A few names, and how many more there are."""
    more = len(names) - MOST_NAMES
    if more <= 1:  # naming one more takes no more room than counting it
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMES])} and {more} more"
