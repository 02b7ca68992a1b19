"""The parts of the reproduction: running them, in two processes, and writing what they return."""

from __future__ import annotations

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

from ..painting.images import read_image
from ..verbs.plot import pyplot
from . import densities, figure1, figure2, memory, names, pictures, theorems
from .claims import Part, plain
from .page import write_page

REPRODUCE: dict[str, Callable[..., Part]] = {
    "fig1": figure1.reproduce,
    "fig2": figure2.reproduce,
    "fig3": pictures.figure3,
    "fig4": pictures.figure4,
    "fig5": pictures.figure5,
    "density": densities.reproduce,
    "theorems": theorems.reproduce,
    "memory": memory.reproduce,
}
"""The function behind each name of `names.PARTS`."""
PROCESSES = 2
DPI, QUICK_DPI = 120, 70
"""Resolution of the PNG files."""


@dataclass(frozen=True)
class Request:
    """What to reproduce, how, and where to write it."""

    parts: tuple[str, ...]
    scale: str
    seed: int
    target: str | None
    """Path of the picture to paint; None for the default."""
    out: Path


def check_target(path: str | None) -> None:
    """Raise the error that painting this target would raise, before any work is done."""
    read_image(pictures.find_target(path)[1], size=16)


def reproduce(request: Request, say: Callable[..., None]) -> dict[str, Any]:
    """Run the parts and return a summary; each part's files are written once it is done."""
    request.out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Part] = {}
    status = "done"
    try:
        for part in run_parts(request, say):
            done[part.name] = part
            say(f"{part.name}: {part.found} ({part.seconds:.0f} s)")
            write_page(_in_order(done), request.out, f"Scale {request.scale}, seed {request.seed}.")
    except KeyboardInterrupt:
        status = "interrupted"
        say("interrupted; the finished parts are kept")
    summary = _summary(request, status, _in_order(done))
    (request.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if done:
        expected = summary["statements"] - len(summary["surprises"])
        say(
            f"{expected} of {summary['statements']} statements as expected. Wrote {summary['page']}"
        )
    for surprise in summary["surprises"]:
        say(f"NOT as expected: {surprise}")
    return summary


def _in_order(done: dict[str, Part]) -> list[Part]:
    """The finished parts in the order of the page."""
    return [done[name] for name in names.PARTS if name in done]


def _summary(request: Request, status: str, parts: list[Part]) -> dict[str, Any]:
    """The contents of summary.json."""
    return {
        "status": status,
        "scale": request.scale,
        "seed": request.seed,
        "parts": [part.name for part in parts],
        "statements": sum(len(part.claims) for part in parts),
        "surprises": [
            f"{part.name}: {claim.where}: {claim.statement}"
            for part in parts
            for claim in part.claims
            if not claim.as_expected
        ],
        "seconds": {part.name: round(part.seconds, 1) for part in parts},
        "page": str(request.out / "index.html"),
    }


@dataclass(frozen=True)
class _Job:
    """Parts that share their work and therefore run in one process."""

    parts: tuple[str, ...]
    request: Request

    def run(self) -> list[Part]:
        # Figures only go to files: neither a window nor a display is needed.
        pyplot().switch_backend("Agg")
        return [self._part(name) for name in self.parts]

    def _part(self, name: str) -> Part:
        """Run one part and write its files."""
        before = time.perf_counter()
        quick = self.request.scale == "quick"
        extra = {"target": self.request.target} if name in names.PAINTED else {}
        part = REPRODUCE[name](quick=quick, seed=self.request.seed, **extra)
        write_part(part, self.request.out, dpi=QUICK_DPI if quick else DPI)
        # The figures have been written; they need not be sent to the first process.
        return dataclasses.replace(
            part, figures=dict.fromkeys(part.figures), seconds=time.perf_counter() - before
        )


def run_parts(request: Request, say: Callable[..., None]) -> Iterator[Part]:
    """Yield each part once it is done; several groups of parts are shared by two processes."""
    groups = [tuple(name for name in group if name in request.parts) for group in names.GROUPS]
    jobs = [_Job(group, request) for group in groups if group]
    if len(jobs) == 1:
        yield from jobs[0].run()
        return
    say(f"{len(request.parts)} parts in two processes ...")
    cache = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    context = multiprocessing.get_context("spawn")
    # Leaving the block ends the processes, after an interruption too.
    with context.Pool(PROCESSES, _prepare, (cache,)) as pool:
        for parts in pool.imap_unordered(_Job.run, jobs):
            yield from parts


def _prepare(cache: str | None) -> None:
    """Set up a new process: it leaves Ctrl-C to the first one and shares its compilation cache."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jax.config.update("jax_compilation_cache_dir", cache)


def write_part(part: Part, folder: Path, *, dpi: int = DPI) -> None:
    """Write figures as PNG and SVG, numbers and claims as JSON.

    One seed gives the same files: they contain no date and no random identifiers.
    """
    plt = pyplot()
    for name, figure in part.figures.items():
        assert figure is not None
        figure.savefig(folder / f"{name}.png", dpi=dpi, metadata={"Software": None})
        with plt.rc_context({"svg.hashsalt": "entroplay"}):
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
