"""`entroplay predict`: apply a model that `fit` or `density` saved to a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import PICTURES, Command, Say, add_data, new_file


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `entroplay predict`."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="a file written by `entroplay fit` or `entroplay density`",
    )
    add_data(parser, "with the columns of the training data")
    parser.add_argument(
        "--out",
        type=new_file(".csv", *PICTURES),
        action="append",
        default=[],
        metavar="FILE",
        help=f"a .csv file for the predictions, or a picture ({', '.join(PICTURES)}); may be "
        "repeated (default: csv on stdout)",
    )


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Write predictions, or log-densities, for the rows of a table."""
    from . import drawing, table_model, tables

    table = tables.read_table(options.data)
    model = table_model.TableModel.load(options.model)
    columns = model.predict(table)
    if not options.out and not options.json:
        print(tables.to_csv(columns), end="", flush=True)
    for path in options.out:
        if path.suffix.lower() == ".csv":
            tables.write_csv(path, columns)
        else:
            drawing.draw_predicted(model, table, columns, path)
        say(f"Wrote {path}")
    summary = {
        "rows": len(table),
        "columns": list(columns),
        **model.verdict(),
        "files": [str(path) for path in options.out],
    }
    if not options.out:
        summary["predictions"] = {name: values.tolist() for name, values in columns.items()}
    return summary


COMMAND = Command(
    description="Apply a model that `fit` or `density` saved to a table.", add=add, run=run
)
