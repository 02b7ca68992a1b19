"""Tables in files: columns, formats, and what is refused."""

import json

import numpy as np
import pytest
from commands.cases import HEADER, write

from entroplay.commands.tables import Inputs, TableError, read_table, to_csv


def test_columns_are_numbers_or_texts(tmp_path):
    table = read_table(write(tmp_path, 'a;"b, c";d\n1;x;2\n3.5;"y ""z""";1e3\n'))
    assert list(table.columns) == ["a", "b, c", "d"]
    assert table.column("a").tolist() == [1, 3.5]
    assert table.column("b, c").tolist() == ["x", 'y "z"']
    assert len(table) == 2


def test_texts_become_indicators_and_unknown_ones_none(tmp_path):
    inputs = Inputs.of(
        read_table(write(tmp_path, HEADER + "1,red,5\n2,blue,6\n")), leave_out=["price"]
    )
    assert Inputs.from_list(json.loads(json.dumps(inputs.to_list()))) == inputs
    other = read_table(write(tmp_path, HEADER + "3,red,0\n4,green,0\n", "other.csv"))
    assert inputs.matrix(other).tolist() == [[3, 0, 1], [4, 0, 0]]


def test_parquet_is_read_too(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": [1, 2], "b": ["x", "y"]}).write_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.column("a").tolist() == [1, 2]
    assert table.column("b").tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "row 3 has 1 fields, but the header has 2"),
        ("a,b\n1,\n", "column 'b' has no value in row 2"),
        ("a,b\nNA,1\n", "column 'a' has no value in row 2"),
        ("a,a\n1,2\n", "every column needs a unique name"),
        ("a,b\n", "must have a header and at least one row"),
        ("a,b\n1,inf\n", "column 'b' has entries that are not finite"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    with pytest.raises(TableError, match=message):
        read_table(write(tmp_path, text))


def test_a_csv_that_was_written_is_read_again(tmp_path):
    columns = {"x, y": np.array([0.1, 1e-9]), "label": np.array(['say "no"', "yes"], dtype=object)}
    table = read_table(write(tmp_path, to_csv(columns)))
    assert table.column("x, y").tolist() == [0.1, 1e-9]
    assert table.column("label").tolist() == columns["label"].tolist()
