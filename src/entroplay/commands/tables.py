"""Tables in files: csv by the standard library, parquet if pyarrow or polars is installed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..sklearn.columns import ColumnError, Columns
from ..sklearn.inputs import raw_column
from .csv_files import CsvFile, TableError
from .entries import read_columns, without_gaps

TEXT_FILES, PARQUET_FILES = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
"""Endings of the tables that are read."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Attributes:
        name: the name of the file.
        columns: numbers (NaN is missing), texts (None is missing) or dates (NaT is missing).
        lines: the line of the file that each row stands on, for messages.
        faults: what is wrong with some columns, by name. It does not matter unless they are used.
        remarks: how the file was read, where that leaves room for doubt.
    """

    name: str
    columns: dict[str, np.ndarray]
    lines: np.ndarray
    faults: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    def check(self, name: str) -> None:
        """Refuse a name that no column has."""
        if name not in self.columns:
            raise TableError(
                f"{self.name} has no column {name!r}; it has {', '.join(map(repr, self.columns))}."
            )

    def column(self, name: str) -> np.ndarray:
        """One column by its name."""
        self.check(name)
        if name in self.faults:
            raise TableError(f"{self.name}: {self.faults[name]}")
        return self.columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """A column that must hold numbers."""
        column = self.column(name)
        if column.dtype.kind != "f":
            row = int(np.argmax(present(column)))
            raise self.error(ColumnError(name, row, "numbers", str(column[row])))
        return column

    def raw(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Some columns, as `Columns` takes them."""
        return {name: self.column(name) for name in names}

    def matrix(self, inputs: Columns) -> np.ndarray:
        """The inputs (n, p) in a table that has the columns that were learned from."""
        try:
            return inputs.matrix(self.raw([column.name for column in inputs.used]))
        except ColumnError as error:
            raise self.error(error) from error

    def rows(self, chosen: np.ndarray) -> Table:
        """The table of some rows."""
        columns = {name: column[chosen] for name, column in self.columns.items()}
        return dataclasses.replace(self, columns=columns, lines=self.lines[chosen])

    def error(self, error: ColumnError) -> TableError:
        """The error about a column, with the file and the line."""
        return TableError(
            f"{self.name}: column {error.name!r} must hold {error.must_be}, got {error.got!r} in "
            f"line {self.lines[error.row]}."
        )


def present(column: np.ndarray) -> np.ndarray:
    """Where a column has values."""
    if column.dtype == object:
        return np.array([value is not None for value in column], bool)
    return ~np.isnat(column) if column.dtype.kind == "M" else ~np.isnan(column)


def read_table(path: Path) -> Table:
    """Read a table with a header from a .csv, .tsv, .txt or .parquet file."""
    if not path.is_file():
        raise TableError(f"There is no file {path}.")
    ending = path.suffix.lower()
    if ending == ".safetensors":
        raise TableError(f"{path} is a model, not a table: name the model first, then the table.")
    if ending not in TEXT_FILES + PARQUET_FILES:
        raise TableError(f"{path} must end in .csv, .tsv or .parquet.")
    return _parquet(path) if ending in PARQUET_FILES else _csv(path)


def _csv(path: Path) -> Table:
    file = CsvFile.read(path)
    entries = zip(*file.rows, strict=True)
    texts = {name: without_gaps(column) for name, column in zip(file.header, entries, strict=True)}
    columns, faults, remarks = read_columns(texts, file.lines, file.delimiter)
    if not file.encoding.startswith("utf"):
        remarks = (f"the file is not in UTF-8: read as {file.encoding}", *remarks)
    return Table(path.name, columns, np.array(file.lines), faults, remarks)


def _parquet(path: Path) -> Table:
    read = _parquet_reader()
    if read is None:
        raise TableError(
            f"{path}: parquet files need pyarrow or polars (pip install pyarrow). "
            "A .csv file needs neither."
        )
    try:
        found = read(path)
    except Exception as error:  # the two libraries raise errors of their own types
        raise TableError(f"{path} cannot be read as parquet: {error}") from error
    columns = {name: raw_column(values) for name, values in found.items()}
    lines = np.arange(1, 1 + len(next(iter(columns.values()), ())))
    if not len(lines):
        raise TableError(f"{path} has no rows.")
    # Numbers may have been stored as texts.
    texts = {name: column.tolist() for name, column in columns.items() if column.dtype == object}
    parsed, faults, remarks = read_columns(texts, lines.tolist(), ",")
    return Table(path.name, columns | parsed, lines, faults, remarks)


def _parquet_reader() -> Callable[[Path], Mapping[str, Sequence[Any]]] | None:
    """A function that reads parquet files, if a library for it is installed."""
    with suppress(ImportError):
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]

        return lambda path: parquet.read_table(path).to_pydict()
    with suppress(ImportError):
        import polars

        return lambda path: polars.read_parquet(path).to_dict(as_series=False)
    return None


def labels_of(column: np.ndarray) -> np.ndarray:
    """A column as class labels: texts, whole numbers, or other numbers as texts."""
    if column.dtype.kind != "f":
        return column.astype(str).astype(object)
    if (column == np.round(column)).all():
        return column.astype(int)
    return np.array([f"{value:g}" for value in column], dtype=object)


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
