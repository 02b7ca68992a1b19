"""The records that files may hold. Each class registers itself, so file code knows none of them.

Reading a file fills declared fields of registered classes and never calls a constructor or any
other code that the file names. A class that is not registered cannot be read, whatever the file
says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Record = TypeVar("Record", bound=type)

RECORDS: dict[str, type] = {}
"""Registered classes by name. Files name classes without their modules."""
KINDS: dict[str, type] = {}
"""The classes that a whole file may hold, by the kind that its header states."""
HOMES = {"painting": "entroplay.painting", "model": "entroplay.sklearn"}
"""Packages that register the records of a kind of file when they are imported.

The core does not import them: they are loaded when a file of that kind is opened.
"""


def storable(cls: Record) -> Record:
    """Let files hold instances of this class: an Equinox module or a dataclass.

    >>> from dataclasses import dataclass
    >>> @storable
    ... @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    >>> RECORDS.pop("Point") is Point
    True
    """
    known = RECORDS.setdefault(cls.__name__, cls)
    if known.__module__ != cls.__module__:
        raise TypeError(f"{cls.__module__} and {known.__module__} both register {cls.__name__}.")
    RECORDS[cls.__name__] = cls
    return cls


def result(kind: str) -> Callable[[Record], Record]:
    """Let a file of this kind consist of one instance of the decorated class."""

    def register(cls: Record) -> Record:
        KINDS[kind] = storable(cls)
        return cls

    return register


def kind_of(record: object) -> str | None:
    """The kind of file that this record makes up, or None if it makes up none."""
    return next((kind for kind, cls in KINDS.items() if type(record) is cls), None)


def load_home(kind: str) -> None:
    """Import the package that registers this kind of file, if it is not part of the core."""
    if kind in HOMES:
        importlib.import_module(HOMES[kind])


def record_named(name: str) -> type:
    """The registered class of this name, anywhere in the library; `KeyError` if there is none.

    A solution may name a record of an application, such as the painter's solver, whose package has
    not been imported yet.
    """
    for home in HOMES.values():
        if name not in RECORDS:
            with suppress(ImportError):  # an optional dependency is missing, and so is its package
                importlib.import_module(home)
    return RECORDS[name]
