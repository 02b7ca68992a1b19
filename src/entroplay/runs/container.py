"""The container of all files: arrays as raw bytes in the safetensors format, and one JSON text.

The text says which records the arrays belong to. A SHA-256 digest covers everything, so what can be
opened is what was saved. It detects accidents, not forgeries: anyone can compute a digest, which is
why `codec` also checks types, and the results check shapes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

SCHEMA = 1
"""Version of the format, raised whenever an older reader would misread a newer file."""
MAX_BYTES = 2**34
"""Largest file (16 GiB) that is read unless the caller allows more."""
MAX_HEADER = 2**24
"""Longest header of a file written here; a longer one is damaged or forged."""
FilePath = str | os.PathLike[str]


class FileFormatError(ValueError):
    """The file is damaged, or not one that this version of entroplay reads."""


class Contents(NamedTuple):
    """What a file holds: its kind, the JSON description of the record, and the arrays by name."""

    kind: str
    description: Any
    tensors: dict[str, np.ndarray]


def write(path: FilePath, contents: Contents) -> None:
    """Write a file in place of what was there: after a crash it is the old one or the new one."""
    _check_finite(contents.tensors)
    raw = safetensors.numpy.save(contents.tensors, {"entroplay": _header(contents)})
    write_atomically(path, raw)


def read(path: FilePath, max_bytes: int = MAX_BYTES) -> Contents:
    """Read a file and check its integrity; a `FileFormatError` says why it cannot be read."""
    raw = _bytes(path, max_bytes)
    text = _header_text(path, raw)
    header = json.loads(text)
    if isinstance(header["schema"], int) and header["schema"] > SCHEMA:
        version = f"schema {header['schema']}, this one reads {SCHEMA}"
        raise FileFormatError(
            f"{path} was written by a newer version of entroplay: {version}. Upgrade entroplay."
        )
    contents = Contents(header["kind"], header["content"], safetensors.numpy.load(raw))
    # The header is compared as text: there is one text for one value, so no byte of it is free.
    if text != _header(contents):
        raise FileFormatError(
            f"{path} was altered: its content does not match its digest. "
            "Restore it, or save it again."
        )
    _check_finite(contents.tensors)
    return contents


def header_kind(path: FilePath) -> str:
    """The kind that a file's header states, without reading or checking the rest."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        start = size.to_bytes(8, "little") + file.read(min(size, MAX_HEADER))
    return str(json.loads(_header_text(path, start))["kind"])


def write_atomically(path: FilePath, raw: bytes) -> None:
    """Write beside the old file, force the bytes to disk, then replace the old file."""
    target = Path(os.path.realpath(path))  # a symbolic link stays one
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {target.parent} to write to: make it first.")
    temporary = target.parent / f".entroplay-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # The rename itself survives a power cut only once the folder is on disk, too. Some systems
    # cannot do that; the file is complete all the same.
    with suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def digest(contents: Contents) -> str:
    """SHA-256 of the description, of every array's name, type and shape, and of all bytes."""
    kind, description, tensors = contents
    names = sorted(tensors)
    outline = [[name, tensors[name].dtype.name, tensors[name].shape] for name in names]
    sha = hashlib.sha256(_json([SCHEMA, kind, description, outline]).encode())
    for name in names:
        sha.update(tensors[name].ravel().view(np.uint8).data)
    return sha.hexdigest()


def _header(contents: Contents) -> str:
    return _json(
        {
            "schema": SCHEMA,
            "kind": contents.kind,
            "content": contents.description,
            "sha256": digest(contents),
        }
    )


def _json(value: object) -> str:
    """The one JSON text of a value, which makes texts comparable character by character."""
    return json.dumps(value, separators=(",", ":"))


def _bytes(path: FilePath, max_bytes: int) -> bytes:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise FileFormatError(
                f"{path} has {size} bytes, more than max_bytes={max_bytes}: raise that if you "
                "trust the file."
            )
        return file.read(size)  # never beyond the stated size: a device has no end


def _header_text(path: FilePath, raw: bytes) -> str:
    """The JSON text that entroplay put into the safetensors header."""
    end = 8 + int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or end > min(len(raw), MAX_HEADER):
        raise FileFormatError(
            f"{path} is cut short, or not a safetensors file. Restore it, or save it again."
        )
    text = json.loads(raw[8:end]).get("__metadata__", {}).get("entroplay")
    if text is None:
        raise FileFormatError(
            f"{path} is a safetensors file, but not one that entroplay wrote: "
            "only those can be read."
        )
    return text


def _check_finite(tensors: Mapping[str, np.ndarray]) -> None:
    """Allow NaN only in the history: methods without a gap record it, and no result uses it."""
    for name, array in tensors.items():
        if array.dtype.kind != "f" or "history" in name.split(".") or np.isfinite(array).all():
            continue
        index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise ValueError(
            f"{name}{list(index)} is {array[index]}; only finite numbers are stored. "
            "Has the run diverged?"
        )
