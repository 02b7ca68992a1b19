"""`entroplay reproduce`: wrong usage, missing pictures, interruption."""

import json
import sys

import pytest

from entroplay.commands import main
from entroplay.reproduce import parts
from entroplay.reproduce.claims import Part


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["fig9"], "fig9"),
        (["fig3", "--scale", "huge"], "huge"),
        (["fig3", "--target", "no.png"], "no.png"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, word, tmp_path, capsys):
    try:
        code = main(["reproduce", *arguments, "--out", str(tmp_path / "never")])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert word in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


def test_without_any_picture_it_says_where_to_get_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mvtbdata", None)
    monkeypatch.setitem(sys.modules, "skimage.data", None)
    assert main(["reproduce", "fig4", "--out", str(tmp_path / "never")]) == 2
    assert "or give one with --target" in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


def test_an_interruption_keeps_the_parts_that_were_done(tmp_path, monkeypatch, capsys):
    def one_part(request, say):
        part = Part("theorems", "title", "says", "found")
        parts.write_part(part, request.out)
        yield part
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "run_parts", one_part)
    assert main(["reproduce", "all", "--out", str(tmp_path)]) == 130
    assert json.loads((tmp_path / "summary.json").read_text())["parts"] == ["theorems"]
    assert "found" in (tmp_path / "index.html").read_text()
    assert "interrupted" in capsys.readouterr().out
