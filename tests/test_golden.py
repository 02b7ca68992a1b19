"""Files that version 0.1.0 wrote still load, predict the same and can be continued."""

import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import entroplay as ep
from entroplay.base.registry import HOMES, KINDS, load_home
from entroplay.commands import main
from entroplay.runs.checkpoints import read_checkpoint
from entroplay.runs.files import kind_in

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
SOLVERS = ("newton_efp", "efp", "naive_efp", "mfld", "pda", "psdca")
ESTIMATORS = {"regressor": "predict", "classifier": "predict_proba", "density": "score_samples"}


def maker():
    """The script that wrote the files, for the problems that it posed."""
    specification = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


MAKE = maker()


def close(values, expected):
    """Equal to rounding: another processor may sum in another order, within a few units of 1e-7."""
    np.testing.assert_allclose(values, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solution_of_every_solver_predicts_the_same(name):
    solution = ep.load(GOLDEN / f"{name}.safetensors")
    close(solution.predict(MAKE.ROWS), EXPECTED[name])
    assert type(solution.solver).__name__.lower() == name.replace("_", "")
    assert solution.history["iteration"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_painting_shows_the_same_picture():
    painting = ep.load(GOLDEN / "painting.safetensors")
    close(painting.picture.mean(axis=(0, 1)), EXPECTED["painting"]["mean"])
    assert painting.mse == pytest.approx(EXPECTED["painting"]["mse"], rel=1e-5)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_predicts_the_same(name):
    estimator = ep.load(GOLDEN / f"{name}.safetensors")
    X = MAKE.table()[0][:6] + 0.1
    close(getattr(estimator, ESTIMATORS[name])(X), EXPECTED[name])
    certificate = estimator.certificate_
    assert certificate.bound == estimator.duality_gap_ or not certificate.mixed


def continued(tmp_path, checkpoint, name):
    """A run that goes on from a golden checkpoint of 4 iterations of 6."""
    path = tmp_path / "run.ckpt"
    path.write_bytes((GOLDEN / f"{checkpoint}.safetensors").read_bytes())
    assert read_checkpoint(path).iteration == 4
    return ep.solve(MAKE.squared(), MAKE.solvers()[name], **MAKE.MOMENTS_FROM, checkpoint=path)


def test_a_run_continues_from_its_checkpoint(tmp_path):
    """Continued, it is the run that was never stopped."""
    run = continued(tmp_path, "checkpoint_naive_efp", "naive_efp")
    whole = ep.load(GOLDEN / "naive_efp.safetensors")
    close(run.moments, whole.moments)
    np.testing.assert_array_equal(run.history["iteration"], whole.history["iteration"])


def test_a_run_goes_on_although_the_moves_draw_other_numbers_now(tmp_path):
    """MALA's noise has changed since: what was done stays, what follows differs within noise."""
    run, whole = continued(tmp_path, "checkpoint", "efp"), ep.load(GOLDEN / "efp.safetensors")
    close(run.history["loss_moments"][:4], whole.history["loss_moments"][:4])
    np.testing.assert_array_equal(run.history["iteration"], whole.history["iteration"])
    # Each of two iterations moves the moments by a tenth of the mean of 24 neurons in [-1, 1],
    # whose standard error is at most 1/sqrt(24): five of them for a difference of two runs.
    error = 0.1 * np.sqrt(2 * 2 / 24)
    assert np.abs(np.asarray(run.moments) - np.asarray(whole.moments)).max() < 5 * error


def test_a_checkpoint_of_another_method_is_refused(tmp_path):
    """NewtonEFP has become another method, whose runs cannot continue those of the first one."""
    path = tmp_path / "run.ckpt"
    old = GOLDEN / "checkpoint_before_the_cold.safetensors"
    path.write_bytes(old.read_bytes())
    with pytest.raises(ValueError, match="belongs to another run"):
        ep.solve(MAKE.squared(), MAKE.solvers()["newton_efp"], **MAKE.MOMENTS_FROM, checkpoint=path)
    assert path.read_bytes() == old.read_bytes()


def test_a_model_of_the_command_line_still_predicts(tmp_path, capsys):
    """`entroplay predict` finds the table's columns in the model file."""
    data, out = tmp_path / "data.csv", tmp_path / "predictions.csv"
    data.write_text(EXPECTED["table_model"]["data"])
    model = GOLDEN / "table_model.safetensors"
    assert main(["predict", str(model), str(data), "--out", str(out), "--quiet"]) == 0
    rows, expected = (
        np.array([line.split(",") for line in text.splitlines()[1:]], float)
        for text in (out.read_text(), EXPECTED["table_model"]["predictions"])
    )
    close(rows, expected)


def test_there_is_a_golden_file_of_every_kind():
    for kind in HOMES:
        load_home(kind)
    assert set(KINDS) == {"solution", "painting", "model", "checkpoint"}
    assert {kind_in(path) for path in GOLDEN.glob("*.safetensors")} == set(KINDS)


@pytest.mark.parametrize("name", [*SOLVERS, "painting", *ESTIMATORS])
def test_saving_again_changes_nothing(name, tmp_path):
    """Loaded and saved, a file differs in no array; its header may know more fields."""
    first = ep.load(GOLDEN / f"{name}.safetensors")
    ep.save(first, tmp_path / "again.safetensors")
    second = ep.load(tmp_path / "again.safetensors")
    parts = [getattr(item, "solution_", item) for item in (first, second)]
    for a, b in zip(*map(jax.tree.leaves, parts), strict=True):
        np.testing.assert_array_equal(a, b)
