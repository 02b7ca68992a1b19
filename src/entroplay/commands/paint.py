"""`entroplay paint`: photographs in, pictures, films and vector files out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..painting.export import FILMS, check_output, write
from ..painting.images import ImageError, colour, read_image
from ..painting.paint import METHODS, PRESETS, Progress, paint
from ..painting.painting import Painting

DEFAULT_OUTPUTS = ("{name}-triangles.png", "{name}-triangles.svg", "{name}-triangles.gif")
ASTRONAUT = "astronaut"


class UsageError(Exception):
    """Something in the command itself that cannot be done; nothing has been written."""


def add_paint_arguments(parser: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """The options of the command."""
    parser.add_argument(
        "images", nargs="*", metavar="IMAGE", help="photographs; default: scikit-image's astronaut"
    )
    parser.add_argument(
        "--out", action="append", metavar="FILE",
        help="what to write, by ending: .png (.mean.png: the running mean), .jpg, .webp, .svg, .gif, .mp4, .webm, .jsonl, "
        ".safetensors. May be repeated; {name} stands for the image's name. Default: a .png, an .svg and a .gif",
    )  # fmt: skip
    parser.add_argument(
        "--triangles", type=count, default=None, metavar="M", help="how many (default: 1000)"
    )
    parser.add_argument(
        "--size",
        type=count,
        default=256,
        metavar="PIXELS",
        help="longer side of the fit (default: %(default)s)",
    )
    parser.add_argument(
        "--render-size",
        type=count,
        metavar="PIXELS",
        help="longer side of the pictures that are written (default: the fit's)",
    )
    parser.add_argument(
        "--method", choices=METHODS, default="mfld", help="mfld (default) or the paper's efp"
    )
    parser.add_argument(
        "--preset", choices=PRESETS, help="paper: the setting of the paper's experiment"
    )
    parser.add_argument(
        "--iterations", type=count, metavar="T", help="how many steps (default: 2000)"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="paint for so long, instead of --iterations"
    )
    parser.add_argument(
        "--target-mse", type=float, metavar="MSE", help="stop when the mean squared error is below"
    )
    parser.add_argument(
        "--background",
        metavar="COLOUR",
        help="of the canvas: a name or #rrggbb (default: the mean colour)",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="a .safetensors painting whose triangles to go on from",
    )


def run_paint(options: argparse.Namespace, say: Callable[..., None]) -> dict[str, Any]:
    """Check everything, then paint image after image."""
    images = options.images or [ASTRONAUT]
    jobs = [
        (image, _outputs(options.out or DEFAULT_OUTPUTS, image, len(images) > 1))
        for image in images
    ]
    for number, option in (("--seconds", options.seconds), ("--target-mse", options.target_mse)):
        if option is not None and not 0 < option < float("inf"):
            raise UsageError(f"{number} must be a positive number, got {option}.")
    if options.seconds is not None and options.iterations is not None:
        raise UsageError("--seconds and --iterations exclude each other.")
    try:
        background = None if options.background is None else colour(options.background, 3)
        photographs = {image: _photograph(image, options, background) for image in images}
        start = None if options.resume is None else _resumed(options.resume)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    reports, status = [], "done"
    for image, outputs in jobs:
        painting = _paint(photographs[image], options, background, start, say, image)
        report = {
            "image": str(image), "status": str(painting.solution.status.reason), "triangles": len(painting.solution.particles),
            "iterations": len(painting.solution.history["iteration"]), "mse": painting.mse, "psnr": painting.psnr,
            "seconds": float(painting.solution.history["seconds"][-1]) if len(painting.solution.history["seconds"]) else 0.0,
            "optimality": "not verified", "files": [],
        }  # fmt: skip
        say(painting)
        for path in outputs:
            # A film of print size would be huge; films keep a size of their own.
            facts = write(
                painting, path, size=None if path.suffix.lower() in FILMS else options.render_size
            )
            report["files"].append(facts)
            say(
                f"Wrote {path}"
                + (f", whose own MSE is {facts['mse']:.6f}" if "mse" in facts else "")
            )
        reports.append(report)
        if painting.solution.status == "interrupted":
            status = "interrupted"
            break
    return {"status": status, "seed": options.seed, "paintings": reports}


def _outputs(patterns: Any, image: str, several: bool) -> list[Path]:
    paths = []
    for pattern in patterns:
        if several and "{name}" not in str(pattern):
            raise UsageError(
                f"--out {pattern} would be written once per image: put {{name}} into it."
            )
        try:
            paths.append(check_output(str(pattern).replace("{name}", Path(image).stem)))
        except ValueError as error:
            raise UsageError(str(error)) from error
    return paths


def _photograph(image: str, options: argparse.Namespace, background: Any) -> Any:
    if image == ASTRONAUT and not Path(image).exists():
        return read_image(_astronaut(), size=options.size)
    return read_image(
        image, size=options.size, matte="white" if background is None else options.background
    )


def _astronaut() -> Any:
    try:
        from skimage.data import astronaut
    except ImportError as error:
        raise ImageError(
            "The default picture needs scikit-image: pip install 'entroplay[paint]', or name a file."
        ) from error
    return astronaut()


def _resumed(path: Path) -> Painting:
    from ..runs.files import load

    found = load(path)
    if not isinstance(found, Painting):
        raise ValueError(f"{path} holds a solution, not a painting.")
    return found


def _paint(
    photograph: Any,
    options: argparse.Namespace,
    background: Any,
    start: Painting | None,
    say: Callable[..., None],
    image: str,
) -> Painting:
    last = -1.0

    def tell(report: Progress) -> None:
        nonlocal last
        if report.seconds - last >= 1 or report.iteration == report.iterations:
            last = report.seconds
            say(f"{Path(image).name}: {report}")

    own = 1000 if start is None else len(start.solution.particles)
    channels = photograph.shape[2]
    try:
        return paint(
            photograph, options.triangles or own, seconds=options.seconds, iterations=options.iterations,
            target_mse=options.target_mse, seed=options.seed, method=options.method, preset=options.preset, size=options.size,
            background=None if options.background is None else colour(options.background, channels), start=start, callback=tell,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from error
