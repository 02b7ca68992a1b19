"""`entroplay demo`: the paper's two-layer network, trained by several methods."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import Command, Say, count


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `entroplay demo`."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        metavar="DIR",
        help="folder for the files (default: %(default)s)",
    )
    parser.add_argument(
        "--particles",
        type=count,
        default=1000,
        metavar="M",
        help="number of particles (default: %(default)s)",
    )
    parser.add_argument(
        "--iterations",
        type=count,
        default=600,
        metavar="T",
        help="iterations of the paper's EFP (default: %(default)s)",
    )


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Solve, certify, and write a picture and a summary."""
    from .comparison import compare

    return compare(options, say)


COMMAND = Command(
    description="Train the paper's two-layer network (n = 500, d = 5, cosine teacher, tanh student "
    "with bias, temperature = l2 = 0.01) by several methods. Writes a picture and a summary.",
    add=add,
    run=run,
)
