"""`entroplay paint`: files, one-line errors, checkpoints, and signals sent to a process."""

import json
import signal
import time
from pathlib import Path

import pytest
from children import COMMAND, child
from painting.cases import photograph, pixels_of, saved
from PIL import Image

import entroplay as ep
from entroplay.commands import main
from entroplay.painting.paint import CHECKPOINT_SECONDS
from entroplay.runs.checkpoints import read_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden"
SHORT = ["--triangles", "20", "--iterations", "40"]


@pytest.fixture
def file(tmp_path):
    return saved(Image.fromarray(photograph()), tmp_path / "photo.png")


@pytest.mark.slow
def test_the_command_paints_several_images_into_several_files(file, tmp_path, capsys):
    second = saved(Image.fromarray(photograph()).convert("L"), tmp_path / "grey.png")
    painting = tmp_path / "photo.safetensors"
    outputs = ["--out", f"{tmp_path}/{{name}}-out.png", "--out", f"{tmp_path}/{{name}}.safetensors"]
    options = [*outputs, *SHORT, "--render-size", "50", "--json"]
    assert main(["paint", str(file), str(second), *options]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [p["image"] for p in summary["paintings"]] == [str(file), str(second)]
    for report in summary["paintings"]:
        assert f"at most {report['bound']:.3g} above" in report["optimality"]
        assert report["l2"] == 1.5 * report["temperature"] > 0
    assert pixels_of(tmp_path / "photo-out.png").shape == (38, 50, 3)
    assert pixels_of(tmp_path / "grey-out.png").shape == (38, 50)
    further = ["--out", str(tmp_path / "b.png"), "--resume", str(painting), "--iterations", "3"]
    assert main(["paint", str(file), *further]) == 0
    assert "MSE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["missing.png"], "missing.png"),
        (["PHOTO", "--out", "nowhere/a.png"], "nowhere"),
        (["PHOTO", "--out", "a.bmpx"], "a.bmpx"),
        (["PHOTO", "--seconds", "-1"], "--seconds"),
        (["PHOTO", "--seconds", "1", "--iterations", "2"], "not allowed with argument --seconds"),
        (["PHOTO", "--target-mse", "0"], "--target-mse"),
        (["PHOTO", "--background", "nocolour"], "nocolour"),
        (["PHOTO", "PHOTO", "--out", "a.png"], "{name}"),
        (["PHOTO", "--resume", "PHOTO"], "photo.png"),
        (["PHOTO", "--resume", "SOLUTION"], "holds a solution, not a painting or a checkpoint"),
        (["PHOTO", "--resume", "missing"], "missing"),
        (["PHOTO", "--checkpoint", "nowhere/a"], "nowhere"),
        (["PHOTO", "PHOTO", "--out", "{name}.png", "--checkpoint", "a"], "takes one image"),
    ],
)
def test_wrong_usage_is_one_line_and_writes_nothing(
    arguments, word, file, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    words = {"PHOTO": str(file), "SOLUTION": str(GOLDEN / "efp.safetensors")}
    try:
        code = main(["paint", *[words.get(a, a) for a in arguments]])
    except SystemExit as end:  # of the parser
        code = end.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert word in captured.err
    assert sorted(tmp_path.iterdir()) == before


def test_no_triangles_is_wrong_usage(file, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["paint", str(file), "--triangles", "0"])
    assert caught.value.code == 2
    assert "--triangles" in capsys.readouterr().err


def test_the_command_continues_from_a_checkpoint(file, tmp_path, capsys):
    """A checkpoint takes up the same painting; --resume reads one, and asks for one image."""
    kept, out = tmp_path / "kept", str(tmp_path / "{name}-out.png")
    options = ["paint", str(file), "--out", out, *SHORT]
    twice = ["paint", str(file), str(file), "--out", out]
    assert main([*options, "--checkpoint", str(kept), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["paintings"][0]
    assert main([*options, "--resume", str(kept), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["paintings"][0]
    assert (again["iterations"], again["mse"]) == (whole["iterations"], whole["mse"])
    assert main([*twice, "--resume", str(kept)]) == 2
    assert "is the checkpoint of one painting" in capsys.readouterr().err
    assert main([*options, "--resume", str(kept), "--checkpoint", str(tmp_path / "b")]) == 2
    assert "two different checkpoints" in capsys.readouterr().err
    assert main([*options, "--resume", str(kept), "--seed", "1"]) == 2
    assert "belongs to another run" in capsys.readouterr().err


def test_a_time_budget_is_planned_once(file, tmp_path, capsys):
    """The command continues, with another budget, what was planned for 0.1 seconds."""
    kept = tmp_path / "kept"

    def interrupt(report):
        raise KeyboardInterrupt

    begun = ep.paint(file, triangles=20, seconds=0.1, checkpoint=kept, callback=interrupt)
    planned = int(begun.solution.solver.iterations)
    assert read_checkpoint(kept).iteration < planned
    options = ["--triangles", "20", "--seconds", "60", "--checkpoint", str(kept), "--json"]
    assert main(["paint", str(file), "--out", str(tmp_path / "a.png"), *options]) == 0
    summary = json.loads(capsys.readouterr().out)["paintings"][0]
    assert (summary["iterations"], summary["status"]) == (planned, "iterations")


def test_an_interruption_keeps_what_there_is(file, tmp_path):
    out = tmp_path / "kept.png"
    options = ["--out", str(out), "--triangles", "20", "--iterations", "100000000"]
    with child("-c", COMMAND, "paint", str(file), *options) as process:
        line = process.stdout.readline()
        assert "MSE" in line
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        printed, error = process.communicate(timeout=60)
        assert process.returncode == 130, error
    assert "interrupted" in printed
    assert pixels_of(out).shape == (24, 32, 3)


OFTEN = """
from functools import partial
from entroplay.commands import photographs
photographs.paint = partial(photographs.paint, checkpoint_seconds=0.1)
"""
"""First lines of a script whose painting is saved more often than usual."""


def test_a_killed_painting_loses_only_what_came_after_its_checkpoint(file, tmp_path):
    """SIGKILL leaves a checkpoint, from which the command ends with the same picture."""
    assert CHECKPOINT_SECONDS <= 5
    iterations, kept = 8_000, tmp_path / "kept"
    pictures = {name: tmp_path / f"{name}.png" for name in ("killed", "continued", "whole")}

    def command(name):
        length = ["--triangles", "20", "--iterations", str(iterations)]
        return ["paint", str(file), "--quiet", "--out", str(pictures[name]), *length]

    with child("-c", OFTEN + COMMAND, *command("killed"), "--checkpoint", str(kept)) as process:
        while not kept.exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.005)
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    assert 0 < read_checkpoint(kept).iteration < iterations
    assert not pictures["killed"].exists()
    assert main([*command("continued"), "--resume", str(kept)]) == 0
    assert main(command("whole")) == 0
    assert pictures["continued"].read_bytes() == pictures["whole"].read_bytes()
