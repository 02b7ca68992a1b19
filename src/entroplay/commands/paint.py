"""`entroplay paint`: photographs in; pictures, films and vector files out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import Command, Say, count, new_file, positive


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `entroplay paint`."""
    parser.add_argument(
        "images",
        nargs="*",
        metavar="IMAGE",
        help="photographs to paint (default: scikit-image's astronaut)",
    )
    parser.add_argument(
        "--out",
        action="append",
        metavar="FILE",
        help="a file to write; its ending chooses the format: .png (.mean.png: the running mean), "
        ".jpg, .webp, .tiff, .svg, .gif, .mp4, .webm, .jsonl (the log), .safetensors (to continue "
        "from). May be repeated; {name} stands for the image's name (default: a .png, an .svg and "
        "a .gif)",
    )
    parser.add_argument(
        "--size",
        type=count,
        default=256,
        metavar="PIXELS",
        help="longer side of the picture that is fitted (default: %(default)s)",
    )
    parser.add_argument(
        "--render-size",
        type=count,
        metavar="PIXELS",
        help="longer side of the pictures that are written (default: the fitted size)",
    )
    parser.add_argument(
        "--background",
        metavar="COLOUR",
        help="colour of the canvas: a name or #rrggbb (default: the picture's mean colour)",
    )
    _add_run(parser)


def _add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to paint, for how long, and where to start."""
    parser.add_argument(
        "--triangles", type=count, metavar="M", help="number of triangles (default: 1000)"
    )
    parser.add_argument(
        "--method",
        choices=("mfld", "efp"),
        default="mfld",
        help="mfld (default), or efp, the paper's method",
    )
    parser.add_argument(
        "--preset", choices=("paper",), help="paper: the settings of the paper's experiment"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--iterations", type=count, metavar="T", help="number of iterations (default: 2000)"
    )
    length.add_argument(
        "--seconds",
        type=positive,
        metavar="S",
        help="time budget in seconds (excludes --iterations)",
    )
    parser.add_argument(
        "--target-mse",
        type=positive,
        metavar="MSE",
        help="stop once the mean squared error is below this",
    )
    parser.add_argument(
        "--checkpoint",
        type=new_file(),
        metavar="FILE",
        help="save the painting every few seconds while it is painted, and continue from the file "
        "if it exists; for one image only",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="continue from this .safetensors painting or this checkpoint",
    )


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Check everything, then paint one image after the other."""
    from .photographs import paint_all

    return paint_all(options, say)


COMMAND = Command(
    description="Paint photographs with transparent triangles: pictures at any resolution, vector "
    "files, films.",
    add=add,
    run=run,
)
