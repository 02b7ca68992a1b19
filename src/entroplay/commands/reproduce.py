"""`entroplay reproduce`: run the paper's figures and theorems, and write what was measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..reproduce.names import PAINTED, PARTS, SCALES
from .options import Command, Say, UsageError


def add(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "parts",
        nargs="+",
        choices=("all", *PARTS),
        metavar="PART",
        help="all, or some of: " + ", ".join(PARTS),
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reproduced"),
        metavar="DIR",
        help="folder for the files (default: %(default)s)",
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="full",
        help="quick: small problems, a minute; full (default): the paper's, about six minutes",
    )
    parser.add_argument(
        "--target",
        metavar="IMAGE",
        help="picture to paint (default: the Mona Lisa of the package mvtb-data if it is "
        "installed, otherwise the astronaut)",
    )


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Run the requested parts and return the summary."""
    from ..reproduce import parts

    chosen = PARTS if "all" in options.parts else tuple(dict.fromkeys(options.parts))
    if any(name in PAINTED for name in chosen):
        _check_target(options.target)
    request = parts.Request(chosen, options.scale, options.seed, options.target, options.out)
    return parts.reproduce(request, say)


def _check_target(path: str | None) -> None:
    """Report a missing or unreadable picture before any work is done."""
    from ..painting.images import ImageError
    from ..reproduce.parts import check_target

    try:
        check_target(path)
    except (ImageError, ImportError) as error:
        # Without Pillow no picture can be read; without scikit-image there is no default one.
        if isinstance(error, ImportError) or isinstance(error.__cause__, ImportError):
            raise UsageError(
                "Figures 3 to 5 need a picture: pip install 'entroplay[paint]', "
                "or give one with --target."
            ) from error
        raise UsageError(str(error)) from error


COMMAND = Command(
    "Run what the paper claims and write figures (PNG and SVG), numbers (JSON) and one page that "
    "puts claim and measurement side by side.",
    add,
    run,
)
