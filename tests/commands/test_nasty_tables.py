"""Tables as they are found: each is read right, or refused in one clear sentence."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from entroplay.commands import main
from entroplay.commands.csv_files import TableError
from entroplay.commands.density_study import DensityStudy
from entroplay.commands.fit_study import PredictionStudy
from entroplay.commands.table_model import TableModel
from entroplay.commands.tables import read_table, write_csv
from entroplay.sklearn.columns import Columns
from entroplay.sklearn.columns.numbers import NumberColumn

NASTY = Path(__file__).parent / "nasty"

READ = {
    "missing.csv": (
        ["width", "width is missing", "depth", "colour = blue", "colour = red"],
        ["2 rows without a value of 'price' left out", "width: missing values filled"],
    ),
    "dates.csv": (
        ["sold: year", "sold: month", "sold: weekday", "sold: days", "stamp: year"],
        ["sold: date (day-month-year) as year, month, weekday, days since 2019-01-12"],
    ),
    "decimal_commas.csv": (
        ["width", "depth", "income"],
        ["width, depth, income, price: decimal commas"],
    ),
    "quoted_commas.csv": (["width", "income"], ["income: commas between thousands"]),
    "ids.csv": (["width"], ["column 1, user_id, name: left out, all values differ"]),
    "hundred_classes.csv": (["position", "noise"], []),
    "constant_columns.csv": (["width"], ["unit, year: left out, the same value in every row"]),
    "latin_1.csv": (
        ["länge", "stadt = Besançon", "stadt = Köln", "stadt = Málaga"],
        ["the file is not in UTF-8: read as cp1252", "stadt: an indicator for each value"],
    ),
    "semicolons.csv": (
        ["width", "note = small, thin", "note = wide; very"],
        ["note: an indicator for each value"],
    ),
    "tabs.tsv": (["width", "depth"], []),
    "infinite.csv": (["width", "depth"], ["width: infinite values replaced"]),
    "booleans.csv": (
        ["width", "heated = false", "heated = true", "heated is missing"],
        ["heated: an indicator for each value"],
    ),
    "many_levels.csv": (
        ["town = town 1", "town = town 10"],
        ["town: an indicator for each frequent value, one for all others, and the frequency"],
    ),
}
"""Tables that can be learned from: the first inputs, and how the notes begin."""
REFUSED = {
    "three_rows.csv": "has 3 rows; a fit with held-out rows needs at least 10",
    "constant_target.csv": "column 'price' has the same value in every row, 3.5: there is nothing",
    "one_class.csv": "column 'kind' has the same value in every row, apple: there is nothing",
    "names_as_target.csv": "column 'name' has 60 different labels in 60 rows",
    "stray.csv": "column 'width' holds numbers, but line 18 has 'about 2'",
    "ambiguous.csv": "column 'width', line 2: '1,100' may be 1.1 or 1100",
    "no_header.csv": "has no header: its first line holds only numbers",
    "ragged.csv": "line 3 has 3 fields, but the header has 2",
    "empty.csv": "must have a header and at least one row",
}
"""Tables that cannot be learned from, and what the sentence says."""
TARGETS = {
    "hundred_classes.csv": "place",
    "one_class.csv": "kind",
    "latin_1.csv": "größe",
    "names_as_target.csv": "name",
}
"""Names of the targets that are not called "price"."""


def study(name, **options):
    common = {"target": TARGETS.get(name, "price"), "ignore": [], "keep": [], "task": None}
    return PredictionStudy.of(
        Namespace(data=NASTY / name, held_out=0.2, seed=0, **common | options)
    )


def test_every_nasty_table_is_tried():
    assert {path.name for path in NASTY.iterdir()} == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READ)
def test_it_is_read_as_it_should(name):
    inputs, notes = READ[name]
    found = study(name)
    assert found.inputs.names[: len(inputs)] == inputs
    said = [*found.table.remarks, *found.remarks, *found.inputs.notes]
    assert all(line.startswith(note) for line, note in zip(said, notes, strict=False))
    assert len(said) >= len(notes)
    train, test = found._split()
    X = found.learned_from(train).data[0]
    assert np.isfinite(X).all()
    assert len(X) == len(train) + len(test)


@pytest.mark.parametrize("name", ["decimal_commas.csv", "quoted_commas.csv", "tabs.tsv"])
def test_the_numbers_are_right(name):
    """Width, depth and price = 2 width + depth are the same in all of these tables."""
    table, plain = read_table(NASTY / name), read_table(NASTY / "tabs.tsv")
    for column in {"width", "depth"} & table.columns.keys():
        np.testing.assert_array_equal(table.column(column), plain.column(column))
    if name == "quoted_commas.csv":
        depth = (table.column("income") - 1e6) / 2e6
        np.testing.assert_allclose(depth, plain.column("depth"), atol=1e-3)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_sentence(name, capsys):
    target = TARGETS.get(name, "price")
    assert main(["fit", str(NASTY / name), "--target", target]) == 2
    error = capsys.readouterr().err
    assert REFUSED[name] in error
    assert error.count("\n") == 1


def test_an_identifier_may_be_kept_or_ignored():
    assert study("ids.csv", keep=["user_id"]).inputs.names == ["user_id", "width"]
    with pytest.raises(TableError, match="no column left to learn from"):
        study("stray.csv", ignore=["width"])  # the fault of a column that is ignored is ignored
    assert "unit" not in str(study("constant_columns.csv", ignore=["unit"]).inputs.notes)


def test_nothing_left_to_learn_from_is_explained(tmp_path, capsys):
    path = tmp_path / "data.csv"
    path.write_text("id,unit,price\n" + "".join(f"{k},cm,{k % 7}\n" for k in range(20)))
    assert main(["fit", str(path), "--target", "price"]) == 2
    reason = "(id: left out, all values differ; unit: left out, the same value in every row)"
    assert f"no column left to learn from {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "columns", "remarks", "notes"),
    [
        ("missing.csv", "width, depth, price", ["9 rows with missing or infinite values"], []),
        ("ids.csv", "width, price", [], ["column 1, user_id: left out, all values differ"]),
        ("constant_columns.csv", "width, price", [], ["year: left out, the same value in every"]),
        ("stray.csv", "price", [], []),
    ],
)
def test_densities_use_columns_of_numbers(name, columns, remarks, notes):
    found = DensityStudy.of(Namespace(data=NASTY / name, columns=None))
    assert found.describe().endswith(f"rows of {columns}")
    said = [*found.remarks, *found.inputs.notes]
    assert all(a.startswith(b) for a, b in zip(said, remarks + notes, strict=True))
    assert np.isfinite(found.data[0]).all()


def test_a_density_needs_numbers(tmp_path, capsys):
    path = tmp_path / "data.csv"
    path.write_text("unit,kind\n" + "1,a\n" * 20)
    assert main(["density", str(path)]) == 2
    assert "no column with numbers that differ" in capsys.readouterr().err
    model = TableModel(None, Columns((NumberColumn.untouched("unit"),)), None)
    path.write_text("unit,kind\n1,a\n,b\n")
    with pytest.raises(TableError, match="column 'unit' has no value in line 3"):
        model.predict(read_table(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["missing.csv", "decimal_commas.csv", "latin_1.csv"])
def test_fit_and_predict_on_nasty_tables(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    target, data = TARGETS.get(name, "price"), str(NASTY / name)
    options = ["--temperature", "0.1", "--no-baselines", "--model", "model"]
    assert main(["fit", data, "--target", target, *options]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {note}" in said for note in READ[name][1])
    assert main(["predict", "model", data, "--out", "out.csv", "--out", "out.png"]) == 0
    truth, predicted = (read_table(p).column(target) for p in (NASTY / name, Path("out.csv")))
    known = ~np.isnan(truth)
    assert np.corrcoef(truth[known], predicted[known])[0, 1] > 0.9
    # Values that were never seen do not fail.
    columns = read_table(NASTY / name).columns
    new = {
        column.name: np.array([np.nan if columns[column.name].dtype.kind == "f" else "unheard of"])
        for column in TableModel.load(Path("model")).inputs.used
    }
    write_csv(Path("new.csv"), new)
    assert main(["predict", "model", "new.csv"]) == 0
