"""The command line as a user meets it: output, files, exit codes."""

import argparse
import importlib
import json
import subprocess
import sys

import pytest
from problems.cases import squared

import entroplay as ep
from entroplay import commands as cli
from entroplay.commands import comparison, demo, main, options
from entroplay.painting import paint as painter

HEAVY = ("jax", "numpy", "equinox", "matplotlib", "sklearn", "PIL")
SMALL = ["demo", "--particles", "30", "--iterations", "12"]


@pytest.fixture
def two_methods(monkeypatch):
    """The demo with its first and its last method, one certificate each, and a small problem."""
    everything = comparison._methods

    def few(full):
        methods = everything(full)
        return {
            name: (methods[name][0], methods[name][1][-1:])
            for name in ("Algorithm 2 (paper)", "NewtonEFP")
        }

    monkeypatch.setattr(comparison, "_methods", few)
    monkeypatch.setattr(comparison, "paper_network", lambda: squared(d=2))


@pytest.mark.slow
def test_the_whole_demo_runs(tmp_path):
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    assert len(json.loads((tmp_path / "summary.json").read_text())["methods"]) == 4


@pytest.mark.usefixtures("two_methods")
def test_the_demo_leaves_a_table_a_picture_and_a_summary(tmp_path, capsys):
    """With --json the summary is all that goes to stdout; the table goes to stderr."""
    assert main([*SMALL, "--out", str(tmp_path), "--json", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    for word in (
        "method",
        "iterations",
        "pulls",
        "seconds",
        "loss",
        "own gap",
        "certified bound",
        "Algorithm 2",
        "NewtonEFP",
    ):
        assert word in captured.err
    summary = json.loads(captured.out)
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["seed"]) == ("done", 3)
    assert summary["files"] == [str(tmp_path / "convergence.png"), str(tmp_path / "summary.json")]
    row = summary["methods"]["Algorithm 2 (paper)"]
    assert (row["iterations"], row["pulls"], row["passes"]) == (12, 120, 132)
    assert all(method["bound"] > 0 for method in summary["methods"].values())
    assert (tmp_path / "convergence.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "out", "err"),
    [([], "words\n", ""), (["--quiet"], "", ""), (["--json"], "{}\n", "words\n")],
)
def test_who_hears_what(options, out, err, monkeypatch, capsys):
    words = demo.COMMAND._replace(run=lambda options, say: say("words") or {})
    monkeypatch.setattr(demo, "COMMAND", words)
    assert main(["demo", *options]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (out, err)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["demo", "--seed", "-1"], "2**32"),
        (["demo", "--particles", "0"], ">= 1"),
        (["demo", "--iterations", "many"], "--iterations: must be a whole number >= 1, got many"),
        (["demo", "--seed", "x"], "--seed: must be a whole number from 0 to 2**32 - 1, got x"),
        (["paint", "--seconds", "soon"], "--seconds: must be a number, got soon"),
        (["fit", "data.csv"], "--target"),
        (["fit", "data.csv", "--target", "y", "--held-out", "2"], "between 0 and 1, got 2"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, word, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1


def test_a_failure_exits_with_1_and_says_why(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert main([*SMALL, "--out", str(blocked / "folder")]) == 1
    assert "entroplay demo:" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("two_methods")
def test_interruption_exits_with_130_and_keeps_what_was_done(tmp_path, monkeypatch):
    """Ctrl-C while the second method runs. (test_paint.py sends a real signal to a process.)"""
    solve = comparison.solve

    def interrupt(report):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        comparison,
        "solve",
        lambda p, solver, **k: solve(
            p, solver, **k, callback=interrupt if isinstance(solver, ep.NewtonEFP) else None
        ),
    )
    assert main([*SMALL, "--out", str(tmp_path)]) == 130
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["methods"]["Algorithm 2 (paper)"]["iterations"] == 12
    assert (tmp_path / "convergence.png").exists()


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("entroplay ")


def imported_by(*arguments):
    """The exit code of a command in a new process, and the modules that it has imported."""
    script = (
        "import sys\nfrom entroplay.commands import main\ncode = 0\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code\n"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    code, *modules = done.stderr.splitlines()[-1].split()
    return int(code), set(modules)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        *[([name, "--help"], 0) for name in cli.COMMANDS],
        (["paint", "--triangles", "x"], 2),
        (["fly"], 2),
    ],
)
def test_help_and_usage_errors_import_nothing_heavy(arguments, code):
    """And of the commands only the one that was asked for."""
    ended, modules = imported_by(*arguments)
    assert ended == code
    assert not modules.intersection(HEAVY)
    named = {name for name in cli.COMMANDS if f"entroplay.commands.{name}" in modules}
    assert named == {arguments[0]}.intersection(cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_a_record_with_options_that_are_explained(name):
    command = importlib.import_module(f"entroplay.commands.{name}").COMMAND
    assert isinstance(command, options.Command)
    parser = argparse.ArgumentParser()
    command.add(parser)
    assert all(action.help for action in parser._actions)


def test_the_choices_of_paint_are_those_of_the_painter():
    parser = argparse.ArgumentParser()
    importlib.import_module("entroplay.commands.paint").COMMAND.add(parser)
    choices = {action.dest: action.choices for action in parser._actions}
    assert choices["method"] == painter.METHODS
    assert choices["preset"] == painter.PRESETS


def test_the_environment_is_set_before_the_libraries_are_imported(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    cli._set_environment()
    assert cli.os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "entroplay")
    assert cli.os.environ["MPLBACKEND"] == "Agg"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    cli._set_environment()
    assert cli.os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"
