"""Tables in files, and the commands that learn from them."""

import json
from pathlib import Path

import numpy as np
import pytest

import entroplay as ep
from entroplay.commands import main
from entroplay.commands.drawing import marginal
from entroplay.commands.fit_study import task_of
from entroplay.commands.table_model import TableModel
from entroplay.commands.tables import Inputs, Table, TableError, read_table, to_csv
from entroplay.sklearn import MeanFieldDensity

RNG = np.random.default_rng(1)
HEADER = "width,colour,price\n"


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text)
    return path


def shop(folder, rows=60, target=None):
    """Price = 3 width, and ten more if red; text, numbers and a quoted header."""
    width = RNG.uniform(0, 2, rows)
    colour = RNG.choice(["red", "blue"], rows)
    price = 3 * width + np.where(colour == "red", 10, 0)
    kinds = np.where(price > 8, "dear", "cheap") if target == "kind" else price
    lines = [f'{w:.6f},{c},"{v}"' for w, c, v in zip(width, colour, kinds, strict=True)]
    return write(folder, HEADER + "\n".join(lines) + "\n"), width, colour, price


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


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (np.array(["a", "b"] * 20, dtype=object), "classification"),
        (np.arange(100.0) % 3, "classification"),
        (np.arange(100.0), "regression"),
        (np.linspace(0, 1, 100), "regression"),
        (np.arange(20.0) % 7, "regression"),  # seven values in twenty rows
    ],
)
def test_the_task_follows_from_the_target(values, task):
    assert task_of(values) == task


@pytest.mark.slow
def test_a_marginal_of_all_columns_is_the_density():
    rows = RNG.normal(size=(80, 2)) @ np.array([[1.0, 0.5], [0.0, 2.0]])
    model = MeanFieldDensity(0.7, particles=1024, random_state=0).fit(rows)
    np.testing.assert_allclose(marginal(model, rows, [0, 1]), model.score_samples(rows), rtol=1e-9)
    grid = np.linspace(-40, 40, 8001)
    assert np.trapezoid(np.exp(marginal(model, grid[:, None], [1])), grid) == pytest.approx(
        1, abs=1e-9
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["fit", "data.csv", "--target", "cost"],
            "data.csv has no column 'cost'; it has 'width', 'colour', 'price'",
        ),
        (["fit", "nothing.csv", "--target", "price"], "There is no file nothing.csv"),
        (
            ["fit", "data.csv", "--target", "colour", "--task", "regression"],
            "data.csv: column 'colour' must hold numbers, got",
        ),
        (["fit", "data.csv", "--target", "price", "--ignore", "size"], "has no column 'size'"),
        (
            ["density", "data.csv", "--columns", "width,colour"],
            "column 'colour' must hold numbers",
        ),
        (["predict", "nothing", "data.csv"], "No such file or directory: 'nothing'"),
        (["predict", "data.csv", "data.csv"], "data.csv is cut short, or not a safetensors file"),
    ],
)
def test_wrong_commands_say_why_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "--target", "y", "--out", "picture.bmp"], "--out: must end in .png, .svg, .pdf"),
        (["fit", "--target", "y", "--model", "no/where"], "--model: there is no folder no to"),
        (["predict", "model", "--out", "x.txt"], "--out: must end in .csv, .png, .svg, .pdf"),
    ],
)
def test_files_that_cannot_be_written_are_wrong_options(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "data.csv"])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_stored_model_predicts_as_it_did(tmp_path, capsys):
    """The file was written by version 0.1.0; its predictions are those of that version."""
    golden = Path(__file__).parents[1] / "golden"
    expected = json.loads((golden / "expected.json").read_text())["table_model"]
    data = write(tmp_path, expected["data"])
    assert main(["predict", str(golden / "table_model.safetensors"), str(data)]) == 0
    predicted = read_table(write(tmp_path, capsys.readouterr().out, "predicted.csv"))
    before = read_table(write(tmp_path, expected["predictions"], "before.csv"))
    np.testing.assert_allclose(predicted.column("height"), before.column("height"), rtol=1e-5)
    model = TableModel.load(golden / "table_model.safetensors")
    model.save(tmp_path / "again")
    again = TableModel.load(tmp_path / "again")
    assert (again.target, again.inputs) == (model.target, model.inputs)
    np.testing.assert_array_equal(
        again.predict(read_table(data))["height"], model.predict(read_table(data))["height"]
    )


@pytest.mark.slow
def test_a_model_without_column_names_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path, *_ = shop(tmp_path)
    model = MeanFieldDensity(0.7, particles=1024, random_state=0).fit(RNG.normal(size=(80, 2)))
    ep.save(model, "model")
    assert main(["predict", "model", str(path)]) == 2
    assert "was not saved by `entroplay fit`" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_fit_and_predict(tmp_path, monkeypatch, capsys, task):
    monkeypatch.chdir(tmp_path)
    path, _, _, price = shop(tmp_path, target="kind" if task == "classification" else None)
    assert main(["fit", str(path), "--target", "price", "--json"]) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert summary["task"] == task
    assert summary["held_out"][0]["model"] == "entroplay"
    assert len(summary["held_out"]) == 3
    assert summary["held_out"][0]["score"] > 0.9
    assert summary["verified"]
    assert "Certified: at most" in captured.err
    assert (tmp_path / "data-fit.png").read_bytes().startswith(b"\x89PNG")
    assert (
        main(
            [
                "predict",
                "data-model.safetensors",
                str(path),
                "--out",
                "predicted.csv",
                "--out",
                "predicted.png",
            ]
        )
        == 0
    )
    predicted = read_table(tmp_path / "predicted.csv").column("price")
    if task == "regression":
        assert np.corrcoef(predicted, price)[0, 1] > 0.98
    else:
        assert (predicted == np.where(price > 8, "dear", "cheap")).mean() > 0.9
    assert (tmp_path / "predicted.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_density_and_predict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = Table("t", {"x": RNG.normal(size=60), "y": RNG.normal(size=60)})
    path = write(tmp_path, to_csv(table.columns))
    assert main(["density", str(path), "--bandwidth", "0.8", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in summary["held_out"]][:2] == ["entroplay", "one normal"]
    assert (tmp_path / "data-density.png").read_bytes().startswith(b"\x89PNG")
    assert main(["predict", "data-density.safetensors", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "log_density"
    assert len(lines) == 61
