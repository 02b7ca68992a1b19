"""Entries of tables, which are texts: missing values, numbers and how they are written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..sklearn.columns import listed

MISSING = ("", "na", "nan", "n/a", "#n/a", "<na>", "nat", "null", "none", "?")
"""Entries that stand for a missing value, in lower case."""
MOSTLY = 0.9
"""A column is meant to hold numbers if at least this fraction of its entries are numbers."""
SEVERAL = 10
"""Minimum number of distinct numbers in such a column: fewer may be codes among other codes."""

Texts = Sequence[str | None]
"""The entries of a column; None is a missing value."""


@dataclass(frozen=True)
class Notation:
    """A way of writing numbers.

    Attributes:
        name: what a remark calls it.
        decimal: the sign before the decimals.
        group: the sign between groups of three digits.
    """

    name: str
    decimal: str
    group: str

    def number(self, text: str) -> float | None:
        """The number that a text stands for, or None.

        >>> DECIMAL_COMMA.number("1.234,5"), DECIMAL_COMMA.number("1.5")
        (1234.5, None)
        """
        if self.pattern.fullmatch(text) is None:
            value = number(text)
            return value if value is not None and math.isinf(value) else None
        plain = re.sub(rf"[{self.group}'\s]", "", text).replace(self.decimal, ".")
        return number(plain)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The texts that are finite numbers in this notation."""
        # Blanks and apostrophes group digits in either notation.
        grouped = rf"[1-9]\d{{0,2}}(?:[{self.group}'\s]\d{{3}})+"
        decimals = rf"(?:{re.escape(self.decimal)}\d*)?(?:[eE][+-]?\d+)?"
        return re.compile(rf"[+-]?(?:\d*|{grouped}){decimals}")


DECIMAL_POINT = Notation("commas between thousands", ".", ",")
DECIMAL_COMMA = Notation("decimal commas", ",", ".")


def number(text: str) -> float | None:
    """The number that a text stands for as programs write it, or None; `inf` is a number.

    >>> number("1e3"), number("-inf"), number("1_000"), number("red")
    (1000.0, -inf, None, None)
    """
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def without_gaps(texts: Sequence[str]) -> list[str | None]:
    """The texts, with None for those that stand for a missing value."""
    return [None if text.lower() in MISSING else text for text in texts]


def read_columns(
    texts: Mapping[str, Texts], lines: Sequence[int], delimiter: str
) -> tuple[dict[str, np.ndarray], dict[str, str], tuple[str, ...]]:
    """Columns of numbers where every entry is one, of texts otherwise; faults; and remarks.

    Faults say what is wrong with some columns. Remarks say which numbers were written in a way that
    leaves room for doubt.

    How numbers are written is decided for the whole table. A comma that may separate decimals or
    thousands ("1,234") is judged by other columns, then by the delimiter: semicolons between fields
    leave the comma to decimals.

    Args:
        texts: the columns by name.
        lines: the line of the file that each row stands on, for messages.
        delimiter: the sign between the fields of the file.
    """
    columns: dict[str, np.ndarray] = {}
    unclear: dict[str, dict[Notation, np.ndarray]] = {}
    seen: set[Notation] = set()
    for name, entries in texts.items():
        if (numbers := _numbers(entries, number)) is not None:
            columns[name] = numbers
            if any(text is not None and "." in text for text in entries):
                seen.add(DECIMAL_POINT)
            continue
        columns[name] = np.array(entries, object)
        read = {n: _numbers(entries, n.number) for n in (DECIMAL_POINT, DECIMAL_COMMA)}
        fitting = {n: numbers for n, numbers in read.items() if numbers is not None}
        if len(fitting) == 2 and np.array_equal(*fitting.values(), equal_nan=True):
            columns[name] = fitting[DECIMAL_POINT]  # thousands are separated by blanks
        elif fitting:
            unclear[name] = fitting
            seen.update(fitting if len(fitting) == 1 else ())
    if not seen and delimiter == ";":
        seen = {DECIMAL_COMMA}
    faults, used = {}, {}
    for name, entries in texts.items():
        fitting = unclear.get(name, {})
        chosen = [n for n in fitting if n in seen or len(fitting) == 1]
        if len(chosen) == 1:
            columns[name] = fitting[chosen[0]]
            used.setdefault(chosen[0].name, []).append(name)
        elif fitting:
            row = int(np.argmax(fitting[DECIMAL_POINT] != fitting[DECIMAL_COMMA]))
            faults[name] = (
                f"column {name!r}, line {lines[row]}: {entries[row]!r} may be "
                f"{fitting[DECIMAL_COMMA][row]:.12g} or {fitting[DECIMAL_POINT][row]:.12g}. "
                "Write numbers without separators of thousands, and with decimal points."
            )
        elif columns[name].dtype == object and (fault := _stray(name, entries, lines)):
            faults[name] = fault
    return columns, faults, tuple(f"{listed(names)}: {how}" for how, names in used.items())


def _numbers(entries: Texts, read: Callable[[str], float | None]) -> np.ndarray | None:
    """The entries as numbers, NaN where they are missing; None if one of them is no number."""
    numbers = np.full(len(entries), np.nan)
    for i, text in enumerate(entries):
        if text is not None:
            value = read(text)
            if value is None:
                return None
            numbers[i] = value
    return numbers


def _stray(name: str, entries: Texts, lines: Sequence[int]) -> str | None:
    """What is wrong with a column of numbers that has a few other entries."""
    known = [(line, text) for line, text in zip(lines, entries, strict=True) if text is not None]
    numbers, others = set(), []
    for line, text in known:
        if _any_number(text) is not None:
            numbers.add(text)
        else:
            others.append((line, text))
            if len(others) > (1 - MOSTLY) * len(known):
                return None  # a column of texts, of which there may be very many
    if len(numbers) < SEVERAL:
        return None
    if not others:
        return (
            f"column {name!r} has numbers with decimal points and others with decimal commas. "
            "Write all of them in the same way."
        )
    line, text = others[0]
    return (
        f"column {name!r} holds numbers, but line {line} has {text!r}. Correct it, or leave the "
        "entry empty."
    )


def _any_number(text: str) -> float | None:
    readers = (number, DECIMAL_POINT.number, DECIMAL_COMMA.number)
    return next((value for read in readers if (value := read(text)) is not None), None)
