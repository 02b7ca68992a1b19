"""What every command shares: its record, its options, and how it reports bad ones.

This module imports nothing heavy: help texts and usage errors must not wait for JAX.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Say = Callable[..., None]
"""Prints a line for people, unless `--quiet`; goes to stderr with `--json`."""
PICTURES = (".png", ".svg", ".pdf")
"""Endings of the pictures that are drawn from tables."""


class UsageError(Exception):
    """A request that cannot be carried out as given; nothing has been written."""


class Command(NamedTuple):
    """One command of `entroplay`; each module of this folder that holds one calls it `COMMAND`."""

    description: str
    """Shown by `entroplay NAME --help`."""
    add: Callable[[argparse.ArgumentParser], None]
    """Adds the options of this command."""
    run: Callable[[argparse.Namespace, Say], dict[str, Any]]
    """Does the work and returns the summary that `--json` prints."""


def count(text: str) -> int:
    """A whole number of at least one."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, got {text}")
    return value


def seed(text: str) -> int:
    """A seed that JAX takes without truncating it."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 2**32 - 1, got {text}")
    return value


def number(text: str) -> float:
    """A real number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text}") from None


def positive(text: str) -> float:
    """A finite positive number."""
    value = number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return value


def share(text: str) -> float:
    """A number strictly between 0 and 1."""
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, got {text}")
    return value


def new_file(*endings: str) -> Callable[[str], Path]:
    """The type of a file to write: in a folder that exists, with one of these endings if given."""

    def file(text: str) -> Path:
        path = Path(text)
        if endings and path.suffix.lower() not in endings:
            raise argparse.ArgumentTypeError(f"must end in {', '.join(endings)}, got {text}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(
                f"there is no folder {path.parent} to write to: make it first"
            )
        return path

    return file


def add_number(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add an option that takes a positive number."""
    parser.add_argument(name, type=positive, metavar="NUMBER", help=text)


def add_data(parser: argparse.ArgumentParser, columns: str = "with a header") -> None:
    """Add the argument that names a table."""
    help_text = f"a .csv, .tsv or .parquet file {columns}"
    parser.add_argument("data", type=Path, metavar="DATA", help=help_text)


def add_held_out(parser: argparse.ArgumentParser, model: str, picture: str) -> None:
    """Add the options that `fit` and `density` share: how to score, and the files to write."""
    parser.add_argument(
        "--held-out",
        type=share,
        default=0.2,
        metavar="SHARE",
        help="share of the rows to hold out for the score (default: %(default)s)",
    )
    parser.add_argument("--no-baselines", action="store_true", help="skip the baseline models")
    parser.add_argument(
        "--model",
        type=new_file(),
        metavar="FILE",
        help=f"file for the model (default: <data>-{model}.safetensors)",
    )
    parser.add_argument(
        "--out",
        type=new_file(*PICTURES),
        metavar="PICTURE",
        help=f"file for the picture: {', '.join(PICTURES)} (default: <data>-{picture}.png)",
    )


def need_sklearn() -> None:
    """Fail without scikit-learn, with an error message that says how to install it."""
    from .. import sklearn  # noqa: F401
