"""`entroplay fit`, `predict` and `density`: models of tables, their files and their pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands.cases import shop, write

import entroplay as ep
from entroplay.commands import main
from entroplay.commands.drawing import marginal
from entroplay.commands.fit_study import PredictionStudy, task_of
from entroplay.commands.held_out import Study
from entroplay.commands.table_model import TableModel
from entroplay.commands.tables import read_table, to_csv
from entroplay.sklearn import MeanFieldDensity
from entroplay.sklearn.fit import Trainer


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
    rows = np.random.default_rng(1).normal(size=(80, 2)) @ np.array([[1.0, 0.5], [0.0, 2.0]])
    model = MeanFieldDensity(0.7, particles=1024, random_state=0).fit(rows)
    np.testing.assert_allclose(marginal(model, rows, [0, 1]), model.score_samples(rows), rtol=1e-9)
    grid = np.linspace(-40, 40, 8001)
    integral = np.trapezoid(np.exp(marginal(model, grid[:, None], [1])), grid)
    assert integral == pytest.approx(1, abs=1e-9)


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
        (["predict", "data.csv", "data.csv"], "data.csv is a table, not a model"),
        (["predict", "data.csv", "x.safetensors"], "There is no file x.safetensors"),
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
    rows = np.random.default_rng(1).normal(size=(80, 2))
    ep.save(MeanFieldDensity(0.7, particles=1024, random_state=0).fit(rows), "model")
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
    assert "Certificate: at most" in captured.err
    said = [line.split(" s  ", 1) for line in captured.err.splitlines() if " s  " in line]
    seconds = [float(time) for time, _ in said]
    assert seconds == sorted(seconds)
    work = [what.strip() for _, what in said]
    steps = ["entroplay: learning from 48 of 60 rows", "entroplay: learning from all 60 rows"]
    steps += ["fitting all 60 rows", "wrote data-model.safetensors; its certificate comes next"]
    places = [next(i for i, line in enumerate(work) if line.startswith(step)) for step in steps[:2]]
    places += [max(i for i, line in enumerate(work) if line.startswith(step)) for step in steps[2:]]
    assert places == sorted(places)
    assert any(line.startswith("temperature 1, l2 0.5: ") for line in work)
    assert (tmp_path / "data-fit.png").read_bytes().startswith(b"\x89PNG")
    outputs = ["--out", "predicted.csv", "--out", "predicted.png"]
    assert main(["predict", "data-model.safetensors", str(path), *outputs]) == 0
    predicted = read_table(tmp_path / "predicted.csv").column("price")
    if task == "regression":
        assert np.corrcoef(predicted, price)[0, 1] > 0.98
    else:
        assert (predicted == np.where(price > 8, "dear", "cheap")).mean() > 0.9
    assert (tmp_path / "predicted.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_model_is_there_before_its_certificate(tmp_path, monkeypatch, capsys):
    """Ctrl-C while the certificate is drawn up costs the certificate only."""
    monkeypatch.chdir(tmp_path)
    path, _, _, price = shop(tmp_path)

    def interrupted(*arguments, **options):
        assert Path("data-model.safetensors").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_certificate", interrupted)
    options = ["--target", "price", "--temperature", "0.1", "--l2", "0.05", "--no-baselines"]
    monkeypatch.setattr(Study, "_scored", lambda *_: {"model": "ours", "score": 0.0, "seconds": 0})
    monkeypatch.setattr(PredictionStudy, "draw", lambda *_: None)
    assert main(["fit", str(path), *options]) == 0
    model = TableModel.load(Path("data-model.safetensors"))
    assert np.corrcoef(model.predict(read_table(path))["price"], price)[0, 1] > 0.9
    assert "could not be verified" in capsys.readouterr().out


@pytest.mark.slow
def test_density_and_predict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    path = write(tmp_path, to_csv({"x": rng.normal(size=60), "y": rng.normal(size=60)}))
    assert main(["density", str(path), "--bandwidth", "0.8", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in summary["held_out"]][:2] == ["entroplay", "one normal"]
    assert (tmp_path / "data-density.png").read_bytes().startswith(b"\x89PNG")
    assert main(["predict", "data-density.safetensors", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "log_density"
    assert len(lines) == 61
