"""`entroplay demo`: a table, a picture and a summary, also of a demo that was interrupted."""

import json

import pytest
from problems.cases import squared

import entroplay as ep
from entroplay.commands import comparison, main

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
    words = ("method", "iterations", "pulls", "seconds", "loss", "own gap", "certified bound")
    for word in (*words, "Algorithm 2", "NewtonEFP"):
        assert word in captured.err
    summary = json.loads(captured.out)
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["seed"]) == ("done", 3)
    assert summary["files"] == [str(tmp_path / "convergence.png"), str(tmp_path / "summary.json")]
    row = summary["methods"]["Algorithm 2 (paper)"]
    assert (row["iterations"], row["pulls"], row["passes"]) == (12, 120, 132)
    assert all(method["bound"] > 0 for method in summary["methods"].values())
    assert (tmp_path / "convergence.png").read_bytes().startswith(b"\x89PNG")


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

    def interrupted(problem, solver, **options):
        callback = interrupt if isinstance(solver, ep.NewtonEFP) else None
        return solve(problem, solver, **options, callback=callback)

    monkeypatch.setattr(comparison, "solve", interrupted)
    assert main([*SMALL, "--out", str(tmp_path)]) == 130
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["methods"]["Algorithm 2 (paper)"]["iterations"] == 12
    assert (tmp_path / "convergence.png").exists()
