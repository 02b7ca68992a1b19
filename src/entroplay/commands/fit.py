"""`entroplay fit`: from a table to a certified network that predicts one of its columns."""

from __future__ import annotations

import argparse
from typing import Any

from .options import Command, Say, add_data, add_held_out, add_number, need_sklearn


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `entroplay fit`."""
    add_data(parser)
    parser.add_argument("--target", required=True, metavar="COLUMN", help="the column to predict")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column to leave out; may be repeated",
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column to use even if it looks like an identifier; may be repeated",
    )
    parser.add_argument(
        "--task",
        choices=("regression", "classification"),
        help="what to learn (default: decided by the values of the target)",
    )
    parser.add_argument(
        "--loss",
        choices=("squared", "huber"),
        default="squared",
        help="loss of a regression (default: %(default)s)",
    )
    add_number(
        parser,
        "--temperature",
        "strength of the entropy term (default: chosen by an internal validation split)",
    )
    add_number(parser, "--l2", "strength of the l2 penalty (default: chosen in the same way)")
    add_held_out(parser, model="model", picture="fit")


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Score on held-out rows beside baselines, then fit all rows, save and draw."""
    need_sklearn()
    from .fit_study import PredictionStudy

    return PredictionStudy.of(options).run(say)


COMMAND = Command(
    description="Fit an infinitely wide two-layer network to a table. Prints its score on held-out "
    "rows beside those of baseline models, and a bound on its distance to the global optimum. "
    "Writes a model file and a picture.",
    add=add,
    run=run,
)
