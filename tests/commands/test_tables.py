"""Tables in files: columns, formats, and what is refused."""

import numpy as np
import pytest
from commands.cases import write

from entroplay.commands.csv_files import TableError
from entroplay.commands.tables import read_table, to_csv


def test_columns_are_numbers_or_texts(tmp_path):
    table = read_table(write(tmp_path, 'a;"b, c";d\n1;x;2\n3.5;"y ""z""";1e3\n'))
    assert list(table.columns) == ["a", "b, c", "d"]
    assert table.column("a").tolist() == [1, 3.5]
    assert table.column("b, c").tolist() == ["x", 'y "z"']
    assert len(table) == 2


def test_missing_values_in_any_guise(tmp_path):
    gaps = ["", "NA", "nan", "N/A", "null", "None", "?"]
    table = read_table(write(tmp_path, "a,b\n1,x\n" + "".join(f"{gap},{gap}\n" for gap in gaps)))
    np.testing.assert_array_equal(table.column("a"), [1, *[np.nan] * 6])
    assert table.column("b").tolist() == ["x", *[None] * 6]
    assert table.lines.tolist() == [2, *range(4, 10)]  # a row without any value is a blank line


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a;b\n1,5;x\n-2;y\n", [1.5, -2]),
        ("a;b\n1.234,5;x\n,5;y\n", [1234.5, 0.5]),
        ("a;b\n1.234.567;x\n2;y\n", [1234567, 2]),
        ("a;b\n1,234;x\n5;y\n", [1.234, 5]),  # a semicolon leaves the comma to decimals
        ("a;b\n1,234;0.5\n5;2\n", [1234, 5]),  # another column has decimal points
        ('a,b\n"1,234,567",x\n2,y\n', [1234567, 2]),
        ('a,b\n"1,234.5",x\n2,y\n', [1234.5, 2]),
        ('a,b\n"1,234","1,5"\n5,"0,2"\n', [1.234, 5]),  # another column has decimal commas
        ("a\tb\n1 234,5\tx\n2e3\ty\n", [1234.5, 2000]),
        ("a,b\n1 234,x\n5'678,y\n", [1234, 5678]),
        ("a|b\n1|x\ninf|y\n", [1, np.inf]),
        ("a;b\n1,5;x\ninf;y\n", [1.5, np.inf]),
        ("a,b\n1e3,x\n-Infinity,y\n", [1000, -np.inf]),
    ],
)
def test_numbers_in_many_notations(tmp_path, text, numbers):
    assert read_table(write(tmp_path, text)).numbers("a").tolist() == numbers


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_any_encoding_is_read(tmp_path, encoding):
    path = tmp_path / "data.csv"
    path.write_bytes("länge,stadt\r\n1,Köln\r\n".encode(encoding))
    table = read_table(path)
    assert table.column("länge").tolist() == [1]
    assert table.column("stadt").tolist() == ["Köln"]
    remark = ("the file is not in UTF-8: read as cp1252",) if encoding == "latin-1" else ()
    assert table.remarks == remark


def test_lines_are_those_of_the_file(tmp_path):
    """Blank lines and line breaks in quotes count."""
    table = read_table(write(tmp_path, 'a,b\n\n1,"two\nlines"\n,,\n'.replace(",,", ",") + "3,x\n"))
    assert table.lines.tolist() == [4, 6]


def test_a_column_without_a_name_is_called_after_its_place(tmp_path):
    assert list(read_table(write(tmp_path, ",a\n0,5\n1,6\n")).columns) == ["column 1", "a"]


def test_parquet_is_read_too(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": [1, 2], "b": ["x", "y"]}).write_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.column("a").tolist() == [1, 2]
    assert table.column("b").tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 field, but the header has 2"),
        ("a,a\n1,2\n", "every column needs a unique name; these are repeated: 'a'"),
        ("a,b\n", "must have a header and at least one row"),
        ("1,2\n3,4\n", "has no header: its first line holds only numbers"),
        ('a,b\n"1,2\n', "is not a csv file: line 2"),
        ("a\0b", "is not a csv file: it does not hold text"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    with pytest.raises(TableError, match=message):
        read_table(write(tmp_path, text))


NUMBERS = "".join(f"{k},{k}.5\n" for k in range(20))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NUMBERS + "about 3,1\n", "column 'a' holds numbers, but line 22 has 'about 3'"),
        ('"1,234",x\n"2,345",y\n', "line 2: '1,234' may be 1.234 or 1234"),
        ("1 234,x\n1.234,y\n", "line 3: '1.234' may be 1234 or 1.234"),
        (NUMBERS + '"1,5",1\n1.5,2\n', "decimal points and others with decimal commas"),
    ],
)
def test_faults_matter_only_where_they_are(tmp_path, text, message):
    table = read_table(write(tmp_path, "a,b\n" + text))
    table.column("b")
    with pytest.raises(TableError, match=message):
        table.column("a")


def test_a_csv_that_was_written_is_read_again(tmp_path):
    columns = {"x, y": np.array([0.1, 1e-9]), "label": np.array(['say "no"', "yes"], dtype=object)}
    table = read_table(write(tmp_path, to_csv(columns)))
    assert table.column("x, y").tolist() == [0.1, 1e-9]
    assert table.column("label").tolist() == columns["label"].tolist()
