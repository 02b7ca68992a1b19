"""`entroplay density`: from a table to a certified mixture density of its rows."""

from __future__ import annotations

import argparse
from typing import Any

from .options import Command, Say, add_data, add_held_out, add_number, need_sklearn


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `entroplay density`."""
    add_data(parser)
    parser.add_argument(
        "--columns", metavar="A,B", help="the columns to use (default: all that hold numbers)"
    )
    add_number(
        parser,
        "--bandwidth",
        "width of the kernel relative to the spread of the data (default: cross-validated)",
    )
    parser.add_argument(
        "--covariance",
        choices=("local", "full", "diag"),
        default="local",
        help="shape of the kernel (default: %(default)s)",
    )
    add_number(parser, "--temperature", "strength of the entropy term (default: 0.1)")
    add_held_out(parser, model="density", picture="density")


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Score on held-out rows beside baselines, then fit all rows, save and draw."""
    need_sklearn()
    from .density_study import DensityStudy

    return DensityStudy.of(options).run(say)


COMMAND = Command(
    description="Fit a mixture of normals with a free mixing measure to the numeric columns of a "
    "table. Prints its log-likelihood on held-out rows beside those of baseline models, and a "
    "bound on its distance to the global optimum. Writes a model file and a picture.",
    add=add,
    run=run,
)
