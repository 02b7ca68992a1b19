"""Compiled programs are kept where the user says, and not without end."""

import os

import jax
import pytest

from entroplay.base import program_cache
from entroplay.base.program_cache import keep_programs, program_folder, prune


@pytest.fixture
def told(monkeypatch):
    """What JAX is told, without telling it."""
    settings = {}
    monkeypatch.setattr(program_cache, "keep_programs", keep_programs.__wrapped__)
    return settings


def test_the_switch(monkeypatch, tmp_path):
    monkeypatch.setenv("ENTROPLAY_CACHE", "off")
    assert program_folder() is None
    monkeypatch.setenv("ENTROPLAY_CACHE", str(tmp_path))
    assert program_folder().parent == tmp_path
    monkeypatch.delenv("ENTROPLAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert program_folder().is_relative_to(tmp_path / "entroplay")


def test_jax_is_told_the_folder_unless_it_has_one(told, monkeypatch, tmp_path):
    monkeypatch.setenv("ENTROPLAY_CACHE", str(tmp_path / "new"))
    monkeypatch.setattr(program_cache, "_processor", lambda: "here")
    config = type("Config", (), {"jax_compilation_cache_dir": "elsewhere", "update": None})()
    config.update = told.__setitem__
    monkeypatch.setattr(jax, "config", config)
    program_cache.keep_programs()
    assert not told
    config.jax_compilation_cache_dir = None
    program_cache.keep_programs()
    assert told["jax_compilation_cache_dir"] == str(tmp_path / "new" / "here")
    assert (tmp_path / "new" / "here").is_dir()
    told.clear()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ENTROPLAY_CACHE", str(tmp_path / "file"))
    program_cache.keep_programs()
    assert not told


def test_the_programs_used_longest_ago_go_first(tmp_path):
    for i in range(10):
        path = tmp_path / f"program{i}"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 + i, 1000 + i))
    prune(tmp_path, largest=1000)
    assert len(list(tmp_path.iterdir())) == 10
    prune(tmp_path, largest=900)
    # 1000 bytes are above 900: removed until 630 or fewer are left.
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"program{i}" for i in range(4, 10)]
