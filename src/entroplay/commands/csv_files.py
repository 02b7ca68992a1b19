"""Csv files as they are found: their encoding, their delimiter, and their rows."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .entries import number
from .options import UsageError

ENCODINGS = ("utf-8-sig", "cp1252", "latin-1")
"""Encodings in the order in which they are tried. The last one fits any file."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""Beginnings of files in UTF-16, as spreadsheets write "Unicode text"."""
DELIMITERS = ",;\t|"
"""Signs that may separate the fields of a row. Of several that fit, the first is taken."""
SAMPLE = 50
"""Maximum number of rows by which the delimiter is chosen."""


class TableError(UsageError):
    """A table that cannot be used, and why."""


@dataclass(frozen=True)
class CsvFile:
    """The texts of a csv file.

    Attributes:
        header: names of the columns.
        rows: the fields of each row, without blanks around them.
        lines: the line of the file on which each row ends.
        delimiter: the sign between the fields.
        encoding: the encoding of the file.
    """

    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    delimiter: str
    encoding: str

    @classmethod
    def read(cls, path: Path) -> CsvFile:
        """Read a file with a header."""
        text, encoding = _decoded(path)
        lines = io.StringIO(text, newline="").readlines()
        delimiter = _delimiter(lines)
        header, rows, numbers = [], [], []
        reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        try:
            for row in reader:
                fields = [field.strip() for field in row]
                if not any(fields):
                    continue  # blank lines, and lines of delimiters as spreadsheets append them
                if not header:
                    header = _names(path, fields)
                elif len(fields) != len(header):
                    found = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
                    raise TableError(
                        f"{path}: line {reader.line_num} has {found}, but the header has "
                        f"{len(header)}."
                    )
                else:
                    rows.append(fields)
                    numbers.append(reader.line_num)
        except csv.Error as error:
            raise TableError(
                f"{path} is not a csv file: line {reader.line_num}: {error}."
            ) from error
        if not rows:
            raise TableError(f"{path} must have a header and at least one row.")
        return cls(header, rows, numbers, delimiter, encoding)


def _decoded(path: Path) -> tuple[str, str]:
    """The text of a file, and the first encoding that fits it."""
    content = path.read_bytes()
    if content.startswith(UTF16):
        return content.decode("utf-16", errors="replace"), "utf-16"
    if b"\0" in content:
        raise TableError(f"{path} is not a csv file: it does not hold text.")
    for encoding in ENCODINGS:
        try:
            return content.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    raise AssertionError("latin-1 decodes every file")


def _delimiter(lines: list[str]) -> str:
    """The delimiter that splits the first rows into equally many fields, at least two.

    If none does, it is the one that is most frequent in the header: the message about the row that
    does not fit is then the most helpful.
    """

    def width(delimiter: str) -> int:
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        try:
            widths = {len(row) for row in islice((row for row in rows if any(row)), SAMPLE)}
        except csv.Error:
            return 0
        return widths.pop() if len(widths) == 1 else 0

    widths = {delimiter: width(delimiter) for delimiter in DELIMITERS}
    best = max(DELIMITERS, key=lambda delimiter: widths[delimiter])
    if widths[best] > 1:
        return best
    return max(DELIMITERS, key=next(iter(lines), "").count)


def _names(path: Path, fields: list[str]) -> list[str]:
    """The names of columns; one without a name is called after its place."""
    if all(number(name) is not None for name in fields):
        raise TableError(
            f"{path} has no header: its first line holds only numbers. Name the columns there."
        )
    header = [name or f"column {i}" for i, name in enumerate(fields, start=1)]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise TableError(
            f"{path}: every column needs a unique name; these are repeated: "
            f"{', '.join(map(repr, repeated))}."
        )
    return header
