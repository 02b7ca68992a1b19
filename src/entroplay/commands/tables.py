"""Tables in files: csv by the standard library, parquet if pyarrow or polars is installed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .options import UsageError

MISSING = ("", "na", "nan", "n/a", "null", "none", "?")
"""Entries that stand for a missing value, in lower case."""
SAMPLE = 4096
"""Number of characters of a csv file among which its delimiter is looked for."""


class TableError(UsageError):
    """A table that cannot be used, and why."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length, each of numbers or of texts."""

    name: str
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> np.ndarray:
        """One column by its name."""
        if name not in self.columns:
            raise TableError(
                f"{self.name} has no column {name!r}; it has {', '.join(map(repr, self.columns))}."
            )
        return self.columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """A column that must hold numbers."""
        column = self.column(name)
        if column.dtype == object:
            raise TableError(
                f"{self.name}: column {name!r} must hold numbers, got {column[0]!r} among others."
            )
        return column


def read_table(path: Path) -> Table:
    """Read a table with a header from a .csv, .tsv, .txt or .parquet file."""
    if not path.is_file():
        raise TableError(f"There is no file {path}.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return Table(path.name, _checked(path, _parquet(path)))
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        raise TableError(f"{path} must end in .csv, .tsv or .parquet.")
    return Table(path.name, _checked(path, _csv(path)))


def _csv(path: Path) -> Mapping[str, Sequence[Any]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            sample = file.read(SAMPLE)
            file.seek(0)
            # The delimiter is the candidate that is most frequent in the header.
            delimiter = max(",;\t", key=sample.split("\n", 1)[0].count)
            rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise TableError(f"{path} is not a csv file in UTF-8: {error}.") from error
    if len(rows) < 2:
        raise TableError(f"{path} must have a header and at least one row.")
    header = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise TableError(
                f"{path}: row {number} has {len(row)} fields, but the header has {len(header)}."
            )
    return {
        name: [row[i].strip() for row in rows[1:]] for i, name in enumerate(_names(path, header))
    }


def _names(path: Path, header: list[str]) -> list[str]:
    bad = {name for name in header if header.count(name) > 1 or not name}
    if bad:
        raise TableError(
            f"{path}: every column needs a unique name; these are empty or repeated: {sorted(bad)}."
        )
    return header


def _parquet(path: Path) -> Mapping[str, Sequence[Any]]:
    read = _parquet_reader()
    if read is None:
        raise TableError(
            f"{path}: parquet files need pyarrow or polars (pip install pyarrow). "
            "A .csv file needs neither."
        )
    try:
        columns = read(path)
    except Exception as error:  # the two libraries raise errors of their own types
        raise TableError(f"{path} cannot be read as parquet: {error}") from error
    if not columns or not len(next(iter(columns.values()))):
        raise TableError(f"{path} has no rows.")
    return columns


def _parquet_reader() -> Callable[[Path], Mapping[str, Sequence[Any]]] | None:
    """A function that reads parquet files, if a library for it is installed."""
    with suppress(ImportError):
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]

        return lambda path: parquet.read_table(path).to_pydict()
    with suppress(ImportError):
        import polars

        return lambda path: polars.read_parquet(path).to_dict(as_series=False)
    return None


def _checked(path: Path, columns: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """Numbers where every entry is one, texts otherwise; nothing may be missing."""
    checked = {}
    for name, values in columns.items():
        for number, value in enumerate(values, start=2):  # row 1 is the header
            if value is None or str(value).strip().lower() in MISSING:
                raise TableError(
                    f"{path}: column {name!r} has no value in row {number}. "
                    "Fill it in, or leave out the row."
                )
        try:
            column = np.array([float(value) for value in values])
        except (TypeError, ValueError):
            column = np.array([str(value) for value in values], dtype=object)
        if column.dtype != object and not np.isfinite(column).all():
            raise TableError(f"{path}: column {name!r} has entries that are not finite.")
        checked[name] = column
    return checked


def labels_of(column: np.ndarray) -> np.ndarray:
    """A column as class labels: texts, whole numbers, or other numbers as texts."""
    if column.dtype == object:
        return column.astype(str).astype(object)
    if (column == np.round(column)).all():
        return column.astype(int)
    return np.array([_text(value) for value in column], dtype=object)


@dataclass(frozen=True)
class Inputs:
    """How columns become numbers.

    A numeric column is used as it is. A text column becomes one indicator for each of its values.

    Attributes:
        columns: names, each with its values (texts) or None (numbers).
    """

    columns: tuple[tuple[str, tuple[str, ...] | None], ...]

    @classmethod
    def of(cls, table: Table, leave_out: Sequence[str] = ()) -> Inputs:
        """All columns of a table, except some."""
        kept = [(name, values) for name, values in table.columns.items() if name not in leave_out]
        if not kept:
            raise TableError(f"{table.name} has no column left to learn from.")
        return cls(
            tuple(
                (n, tuple(sorted(set(v.tolist()))) if v.dtype == object else None) for n, v in kept
            )
        )

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self.columns]

    def matrix(self, table: Table) -> np.ndarray:
        """The inputs (n, p) in a table that has these columns. An unknown text has no indicator."""
        parts = []
        for name, values in self.columns:
            if values is None:
                parts.append(table.numbers(name)[:, None])
            else:
                texts = np.array([_text(v) for v in table.column(name)])
                parts.append((texts[:, None] == np.array(values)[None, :]).astype(float))
        return np.concatenate(parts, axis=1)

    def to_list(self) -> list[Any]:
        """The columns as plain lists, for a file."""
        return [[name, None if values is None else list(values)] for name, values in self.columns]

    @classmethod
    def from_list(cls, items: list[Any]) -> Inputs:
        """The columns that `to_list` wrote."""
        return cls(
            tuple((name, None if values is None else tuple(values)) for name, values in items)
        )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Write a csv file with a header."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.write(to_csv(columns))


def to_csv(columns: dict[str, np.ndarray]) -> str:
    """The text of a csv file with these columns."""
    lines = [",".join(map(_quoted, columns))]
    lines += [
        ",".join(_quoted(v) for v in row)
        for row in zip(*(c.tolist() for c in columns.values()), strict=True)
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: Any) -> str:
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text
