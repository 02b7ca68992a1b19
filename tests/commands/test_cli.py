"""The command line as a whole: options, output, exit codes, and a quick start."""

import argparse
import importlib
import resource
import subprocess
import sys

import pytest

from entroplay import commands as cli
from entroplay.base.program_cache import program_folder
from entroplay.commands import demo, main, options
from entroplay.painting import paint as painter

HEAVY = ("jax", "numpy", "equinox", "matplotlib", "sklearn", "PIL")
"""Libraries that take long to import."""
MOST_SECONDS = 1.0
"""Maximum CPU time of a help text or a usage error; about 0.07 is usual."""


@pytest.mark.parametrize(
    ("options", "out", "err"),
    [([], "words\n", ""), (["--quiet"], "", ""), (["--json"], "{}\n", "words\n")],
)
def test_where_words_and_summaries_go(options, out, err, monkeypatch, capsys):
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


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("entroplay ")


def fresh(*arguments):
    """Run a command in a new process: its exit code, its imported modules, its CPU time."""
    script = (
        "import sys\nfrom entroplay.commands import run\ncode = None\n"
        "try:\n    run()\nexcept SystemExit as end:\n    code = end.code\n"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, *modules = done.stderr.splitlines()[-1].split()
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return int(code), set(modules), seconds


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        *[([name, "--help"], 0) for name in cli.COMMANDS],
        (["paint", "--triangles", "x"], 2),
        (["fly"], 2),
    ],
)
def test_help_and_usage_errors_appear_at_once(arguments, code):
    """They import nothing heavy, and of the commands only the one that was asked for."""
    ended, modules, seconds = fresh(*arguments)
    assert ended == code
    assert not modules.intersection(HEAVY)
    named = {name for name in cli.COMMANDS if f"entroplay.commands.{name}" in modules}
    assert named == {arguments[0]}.intersection(cli.COMMANDS)
    assert seconds < MOST_SECONDS


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
    assert cli.os.environ["JAX_COMPILATION_CACHE_DIR"] == str(program_folder())
    assert program_folder().parent == tmp_path / "entroplay"
    assert cli.os.environ["MPLBACKEND"] == "Agg"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    cli._set_environment()
    assert cli.os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("ENTROPLAY_CACHE", "off")
    cli._set_environment()
    assert "JAX_COMPILATION_CACHE_DIR" not in cli.os.environ
