"""`entroplay reproduce`: run the paper's figures and theorems, and write what came out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..paint.command import UsageError
from ..paint.images import ImageError, read_image
from . import density, figure1, figure2, memory, painting, theorems
from .page import write_page
from .report import Part, plain

PARTS: dict[str, Callable[..., Part]] = {
    "fig1": figure1.reproduce,
    "fig2": figure2.reproduce,
    "fig3": painting.figure3,
    "fig4": painting.figure4,
    "fig5": painting.figure5,
    "density": density.reproduce,
    "theorems": theorems.reproduce,
    "memory": memory.reproduce,
}
PAINTED = ("fig3", "fig4", "fig5")
SCALES = ("quick", "full")


def add_reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "parts", nargs="+", choices=("all", *PARTS), metavar="PART", help="all, or some of: " + ", ".join(PARTS)
    )
    parser.add_argument(
        "--out", type=Path, default=Path("reproduced"), metavar="DIR", help="folder for the files (default: %(default)s)"
    )
    parser.add_argument(
        "--scale", choices=SCALES, default="full", help="quick: small problems, a minute; full (default): the paper's, some ten minutes"
    )
    parser.add_argument("--target", metavar="IMAGE", help="what to paint; default: the Mona Lisa of the package mvtb-data, else the astronaut")


def run_reproduce(options: argparse.Namespace, say: Callable[..., None]) -> dict[str, Any]:
    """Part after part; each one's files are written as soon as it is done."""
    import matplotlib

    matplotlib.use("Agg")
    names = list(PARTS) if "all" in options.parts else list(dict.fromkeys(options.parts))
    if any(name in PAINTED for name in names):
        _check_target(options.target)
    options.out.mkdir(parents=True, exist_ok=True)
    done: list[Part] = []
    status = "done"
    try:
        for name in names:
            done.append(_run(name, options, say))
            write_page(done, options.out, f"Scale {options.scale}, seed {options.seed}.")
    except KeyboardInterrupt:
        status = "interrupted"
        say("interrupted; the parts that were done are kept")
    surprises = [f"{part.name}: {c.where}: {c.statement}" for part in done for c in part.claims if not c.as_expected]
    summary = {
        "status": status, "scale": options.scale, "seed": options.seed, "parts": [part.name for part in done],
        "statements": sum(len(part.claims) for part in done), "surprises": surprises,
        "seconds": {part.name: round(part.seconds, 1) for part in done}, "page": str(options.out / "index.html"),
    }  # fmt: skip
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if done:
        say(f"{summary['statements'] - len(surprises)} of {summary['statements']} statements as expected. Wrote {summary['page']}")
    for surprise in surprises:
        say(f"NOT as expected: {surprise}")
    return summary


def _run(name: str, options: argparse.Namespace, say: Callable[..., None]) -> Part:
    say(f"{name} ...")
    before = time.perf_counter()
    extra = {"target": options.target} if name in PAINTED else {}
    part = PARTS[name](quick=options.scale == "quick", seed=options.seed, **extra)
    part = dataclasses.replace(part, seconds=time.perf_counter() - before)
    write_part(part, options.out)
    say(f"{name}: {part.found} ({part.seconds:.0f} s)")
    return part


def write_part(part: Part, folder: Path) -> None:
    """Figures as PNG and SVG, numbers and claims as JSON. One seed gives the same files: nothing in them tells the time."""
    import matplotlib
    import matplotlib.pyplot as plt

    for name, figure in part.figures.items():
        figure.savefig(folder / f"{name}.png", dpi=120, metadata={"Software": None})
        with matplotlib.rc_context({"svg.hashsalt": "entroplay"}):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
    content = {
        "title": part.title, "found": part.found, "numbers": part.numbers, "claims": [claim.row() for claim in part.claims],
        "choices": part.choices, "remarks": part.remarks,
    }  # fmt: skip
    (folder / f"{part.name}.json").write_text(json.dumps(plain(content), indent=2) + "\n")


def _check_target(path: str | None) -> None:
    """Before any work is done."""
    try:
        read_image(painting.find_target(path)[1], size=16)
    except ImageError as error:
        raise UsageError(str(error)) from error
    except ImportError as error:
        raise UsageError("Figures 3 to 5 need a picture: pip install 'entroplay[paint]', or give one with --target.") from error
