"""`entroplay reproduce`: run the paper's figures and theorems, and write what came out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from ..painting.images import ImageError, read_image
from ..reproduce import densities as density
from ..reproduce import figure1, figure2, memory, theorems
from ..reproduce import pictures as painting
from ..reproduce.claims import Part, plain
from ..reproduce.page import write_page
from .paint import UsageError

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
GROUPS = (PAINTED, ("fig2",), ("density",), ("fig1",), ("memory",), ("theorems",))
"""Parts that share their work, the longest first."""
SCALES = ("quick", "full")


def add_reproduce_arguments(parser: argparse.ArgumentParser) -> None:
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
        help="quick: small problems, a minute; full (default): the paper's, some six minutes",
    )
    parser.add_argument(
        "--target",
        metavar="IMAGE",
        help="what to paint; default: the Mona Lisa of the package mvtb-data, else the astronaut",
    )


def run_reproduce(options: argparse.Namespace, say: Callable[..., None]) -> dict[str, Any]:
    """Part after part; each one's files are written as soon as it is done."""
    names = list(PARTS) if "all" in options.parts else list(dict.fromkeys(options.parts))
    if any(name in PAINTED for name in names):
        _check_target(options.target)
    options.out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Part] = {}
    status = "done"
    try:
        for part in _all_parts(names, options, say):
            done[part.name] = part
            say(f"{part.name}: {part.found} ({part.seconds:.0f} s)")
            write_page(
                [done[name] for name in PARTS if name in done],
                options.out,
                f"Scale {options.scale}, seed {options.seed}.",
            )
    except KeyboardInterrupt:
        status = "interrupted"
        say("interrupted; the parts that were done are kept")
    parts = [done[name] for name in PARTS if name in done]
    surprises = [
        f"{part.name}: {c.where}: {c.statement}"
        for part in parts
        for c in part.claims
        if not c.as_expected
    ]
    summary = {
        "status": status,
        "scale": options.scale,
        "seed": options.seed,
        "parts": [part.name for part in parts],
        "statements": sum(len(part.claims) for part in parts),
        "surprises": surprises,
        "seconds": {part.name: round(part.seconds, 1) for part in parts},
        "page": str(options.out / "index.html"),
    }
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if parts:
        say(
            f"{summary['statements'] - len(surprises)} of {summary['statements']} statements as expected. Wrote {summary['page']}"
        )
    for surprise in surprises:
        say(f"NOT as expected: {surprise}")
    return summary


@dataclass(frozen=True)
class _Job:
    """Parts that share their work, so that one process does them."""

    names: tuple[str, ...]
    quick: bool
    seed: int
    target: str | None
    out: Path

    def run(self) -> list[Part]:
        import matplotlib

        matplotlib.use("Agg")
        return [self._part(name) for name in self.names]

    def _part(self, name: str) -> Part:
        before = time.perf_counter()
        extra = {"target": self.target} if name in PAINTED else {}
        part = PARTS[name](quick=self.quick, seed=self.seed, **extra)
        write_part(part, self.out, dpi=70 if self.quick else 120)
        # The figures are in their files; they stay in this process.
        return dataclasses.replace(
            part, figures=dict.fromkeys(part.figures), seconds=time.perf_counter() - before
        )


def _all_parts(
    names: list[str], options: argparse.Namespace, say: Callable[..., None]
) -> Iterator[Part]:
    """Each part as soon as it is done; where there are several, two processes share them."""
    groups = [
        group for group in (tuple(n for n in group if n in names) for group in GROUPS) if group
    ]
    jobs = [
        _Job(group, options.scale == "quick", options.seed, options.target, options.out)
        for group in groups
    ]
    if len(jobs) == 1:
        yield from jobs[0].run()
        return
    say(f"{len(names)} parts in two processes ...")
    cache = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    with multiprocessing.get_context("spawn").Pool(
        2, _prepare, (cache,)
    ) as pool:  # leaving it ends the processes
        for parts in pool.imap_unordered(_Job.run, jobs):
            yield from parts


def _prepare(cache: str | None) -> None:
    """In a new process: Ctrl-C is the first one's business, and compiled programs are kept where it keeps them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jax.config.update("jax_compilation_cache_dir", cache)


def write_part(part: Part, folder: Path, *, dpi: int = 120) -> None:
    """Figures as PNG and SVG, numbers and claims as JSON. One seed gives the same files: nothing in them tells the time."""
    import matplotlib
    import matplotlib.pyplot as plt

    for name, figure in part.figures.items():
        assert figure is not None
        figure.savefig(folder / f"{name}.png", dpi=dpi, metadata={"Software": None})
        with matplotlib.rc_context({"svg.hashsalt": "entroplay"}):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
    content = {
        "title": part.title,
        "found": part.found,
        "numbers": part.numbers,
        "claims": [claim.row() for claim in part.claims],
        "choices": part.choices,
        "remarks": part.remarks,
    }
    (folder / f"{part.name}.json").write_text(json.dumps(plain(content), indent=2) + "\n")


def _check_target(path: str | None) -> None:
    """Before any work is done."""
    try:
        read_image(painting.find_target(path)[1], size=16)
    except ImageError as error:
        raise UsageError(str(error)) from error
    except ImportError as error:
        raise UsageError(
            "Figures 3 to 5 need a picture: pip install 'entroplay[paint]', or give one with --target."
        ) from error
