"""The container: damage is found, and a file on disk is always whole, the old or the new one."""

import os
import random
import stat

import numpy as np
import pytest
from runs.cases import altered, assert_same, flip

import entroplay as ep
from entroplay.runs import container
from entroplay.runs.container import FileFormatError
from entroplay.runs.files import kind_in


def test_a_file_cut_anywhere_is_refused(path, small):
    ep.save(small, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"solution\.safetensors"):
            ep.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(FileFormatError, match="damaged"):
        ep.load(path)


@pytest.mark.parametrize(
    "flips", [500, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_flipped_bit_is_found(path, small, flips):
    ep.save(small, path)
    whole = path.read_bytes()
    bits = range(8 * len(whole))
    for bit in bits if flips is None else random.Random(0).sample(bits, flips):
        path.write_bytes(flip(whole, bit))
        with pytest.raises(FileFormatError, match=r"solution\.safetensors"):
            ep.load(path)


def test_random_bytes_are_refused(path):
    rng = random.Random(0)
    for length in [0, 1, 7, 8, 9, *range(10, 400, 13)]:
        path.write_bytes(rng.randbytes(length))
        with pytest.raises(FileFormatError):
            ep.load(path)
        path.write_bytes(length.to_bytes(8, "little") + b"[" * length)  # JSON as deep as it is long
        with pytest.raises(FileFormatError):
            ep.load(path)
    path.write_bytes((10**5).to_bytes(8, "little") + b"[" * 10**5)
    with pytest.raises(FileFormatError):
        ep.load(path)


def test_the_kind_is_read_from_the_header_alone(path, small):
    ep.save(small, path)
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    path.write_bytes(whole[:end])
    assert kind_in(path) == "solution"
    for raw in (b"", whole[: end - 1], b"x" * 100, (2**63).to_bytes(8, "little") + b"{}"):
        path.write_bytes(raw)
        with pytest.raises(FileFormatError, match=r"solution\.safetensors"):
            kind_in(path)


def test_a_file_too_large_is_refused_unread(path, small):
    ep.save(small, path)
    size = path.stat().st_size
    assert_same(small, ep.load(path, max_bytes=size))
    with pytest.raises(FileFormatError, match=rf"{size} bytes, more than max_bytes={size - 1}"):
        ep.load(path, max_bytes=size - 1)
    with open(path, "r+b") as file:
        file.truncate(container.MAX_BYTES + 1)  # sparse: takes no room
    with pytest.raises(FileFormatError, match="more than max_bytes"):
        ep.load(path)
    for length in (2**63, 2**64 - 1, container.MAX_HEADER + 1):  # of the header, says the file
        path.write_bytes(length.to_bytes(8, "little") + b"{}" * 100)
        with pytest.raises(FileFormatError, match="cut short"):
            ep.load(path)


def test_memory_that_does_not_suffice_is_reported_as_such(path, small, monkeypatch):
    def fail(raw):
        raise MemoryError

    ep.save(small, path)
    monkeypatch.setattr(container.safetensors.numpy, "load", fail)
    with pytest.raises(FileFormatError, match="MemoryError"):
        ep.load(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["particles", "moments", "dual", "weights", "path"])
def test_what_is_not_finite_is_not_written(path, small, field, bad):
    ep.save(small, path)
    before = path.read_bytes()
    array = getattr(small, field)
    with pytest.raises(ValueError, match=rf"^{field}\[.*\] is {bad}"):
        ep.save(altered(small, **{field: array.at[-1].set(bad)}), path)
    loss = altered(small.problem.loss, y=small.problem.loss.y.at[0].set(bad))
    with pytest.raises(ValueError, match=rf"problem\.loss\.y\[0\] is {bad}"):
        ep.save(altered(small, problem=altered(small.problem, loss=loss)), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("where", ["fsync", "replace", "open", "write"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(
    path, small, monkeypatch, where, error
):
    ep.save(small, path)

    def fail(*args, **kwargs):
        raise error

    class FullDisk:
        """A file of which only the first half can be written."""

        def __init__(self, *args):
            self.file = open(*args)  # noqa: SIM115

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self.file.close()

        def write(self, raw):
            self.file.write(raw[: len(raw) // 2])
            raise error

    with monkeypatch.context() as patch:
        if where in ("fsync", "replace"):
            patch.setattr(container.os, where, fail)
        else:
            patch.setattr(container, "open", fail if where == "open" else FullDisk, raising=False)
        with pytest.raises(type(error)):
            ep.save(altered(small, seed=8), path)
    assert_same(small, ep.load(path))
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_forced_to_the_disk_is_no_failure(path, small, monkeypatch):
    fsync = os.fsync

    def only_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(container.os, "fsync", only_files)
    ep.save(small, path)
    assert_same(small, ep.load(path))


def test_modes_links_and_folders(path, tmp_path, small):
    before = os.umask(0o027)
    try:
        ep.save(small, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / "link"
    link.symlink_to(path)
    ep.save(altered(small, seed=8), str(link))
    assert link.is_symlink()
    assert ep.load(path).seed == 8
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere.*make it first"):
        ep.save(small, tmp_path / "nowhere" / "file")
