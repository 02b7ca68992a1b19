"""The work behind `entroplay paint`: read photographs, paint each of them, write the files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..painting.export import FILMS, check_output, write
from ..painting.images import astronaut, read_image
from ..painting.paint import paint
from ..painting.painting import Painting
from ..painting.watching import Progress
from ..runs.files import kind_in, load
from .options import Say, UsageError

DEFAULT_OUTPUTS = ("{name}-triangles.png", "{name}-triangles.svg", "{name}-triangles.gif")
ASTRONAUT = "astronaut"
"""Name of the photograph that is painted if none is given."""
TRIANGLES = 1000
"""Number of triangles of a new painting."""
REPORT_SECONDS = 1.0
"""Minimum time between two lines of progress."""


@dataclass(frozen=True)
class Job:
    """A photograph to paint."""

    image: str
    pixels: np.ndarray
    outputs: list[Path]


@dataclass(frozen=True)
class Origin:
    """What the paintings continue from, and where they are saved while they are painted."""

    start: Painting | None = None
    checkpoint: Path | None = None


def paint_all(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Check everything, then paint one image after the other."""
    images = options.images or [ASTRONAUT]
    several = len(images) > 1
    try:
        # All outputs are checked before the first image is read.
        outputs = [_outputs(options.out or DEFAULT_OUTPUTS, image, several) for image in images]
        pixels = [_pixels(image, options) for image in images]
        origin = _origin(options, several)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    reports, status = [], "done"
    for job in map(Job, images, pixels, outputs):
        painting = _paint(job, origin, options, say)
        # Files first: whoever interrupts the certificate keeps the painting.
        files = _write(painting, job, options, say)
        say(painting)
        reports.append(_report(job, painting) | {"files": files})
        if painting.solution.status == "interrupted":
            status = "interrupted"
            break
    return {"status": status, "seed": options.seed, "paintings": reports}


def _outputs(patterns: Sequence[str], image: str, several: bool) -> list[Path]:
    """The files for one image, with its name filled in."""
    for pattern in patterns:
        if several and "{name}" not in pattern:
            raise UsageError(
                f"--out {pattern} would be written once per image: put {{name}} into it."
            )
    return [check_output(pattern.replace("{name}", Path(image).stem)) for pattern in patterns]


def _pixels(image: str, options: argparse.Namespace) -> np.ndarray:
    if image == ASTRONAUT and not Path(image).exists():
        return read_image(astronaut(), size=options.size)
    return read_image(image, size=options.size, matte=options.background or "white")


def _origin(options: argparse.Namespace, several: bool) -> Origin:
    """Sort out `--resume`, which takes a painting or a checkpoint, and `--checkpoint`."""
    if options.checkpoint is not None and several:
        raise UsageError("--checkpoint takes one image: the file holds one painting.")
    if options.resume is None:
        return Origin(checkpoint=options.checkpoint)
    kind = kind_in(options.resume)
    if kind == "painting":
        return Origin(load(options.resume), options.checkpoint)
    if kind != "checkpoint":
        raise UsageError(f"{options.resume} holds a {kind}, not a painting or a checkpoint.")
    if several:
        raise UsageError(f"{options.resume} is the checkpoint of one painting: name one image.")
    if options.checkpoint not in (None, options.resume):
        raise UsageError("--checkpoint and --resume name two different checkpoints.")
    return Origin(checkpoint=options.resume)


def _paint(job: Job, origin: Origin, options: argparse.Namespace, say: Say) -> Painting:
    last = -REPORT_SECONDS

    def tell(report: Progress) -> None:
        nonlocal last
        if report.seconds - last >= REPORT_SECONDS or report.iteration == report.iterations:
            last = report.seconds
            say(f"{Path(job.image).name}: {report}")

    start = origin.start
    triangles = TRIANGLES if start is None else len(start.solution.particles)
    try:
        return paint(
            job.pixels,
            options.triangles or triangles,
            seconds=options.seconds,
            iterations=options.iterations,
            target_mse=options.target_mse,
            seed=options.seed,
            method=options.method,
            preset=options.preset,
            size=options.size,
            background=options.background,
            start=start,
            checkpoint=origin.checkpoint,
            callback=tell,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _report(job: Job, painting: Painting) -> dict[str, Any]:
    """What the summary says about one painting."""
    solution, certificate = painting.solution, painting.certificate
    seconds = solution.history["seconds"]
    return {
        "image": job.image,
        "status": str(solution.status.reason),
        "triangles": len(solution.particles),
        "iterations": len(solution.history["iteration"]),
        "mse": painting.mse,
        "psnr": painting.psnr,
        "seconds": float(seconds[-1]) if len(seconds) else 0.0,
        "temperature": float(solution.problem.temperature),
        "l2": np.asarray(solution.problem.l2).tolist(),
        "bound": certificate.bound,
        "best_constant": certificate.best_constant,
        "optimality": certificate.verdict,
    }


def _write(
    painting: Painting, job: Job, options: argparse.Namespace, say: Say
) -> list[dict[str, Any]]:
    """Write the files of one painting, and return what is worth knowing about each."""
    written = []
    for path in job.outputs:
        # Films of the size of a print would be huge, so they keep their own size.
        size = None if path.suffix.lower() in FILMS else options.render_size
        facts = write(painting, path, size=size)
        error = f", whose own MSE is {facts['mse']:.6f}" if "mse" in facts else ""
        say(f"Wrote {path}{error}")
        written.append(facts)
    return written
