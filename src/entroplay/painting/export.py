"""Paintings as files, in the format that the ending of the path names.

A file is written completely or not at all.
"""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.arguments import invalid
from ..runs.container import write_atomically
from ..runs.files import save
from .painting import FilePath, Painting, psnr
from .svg import to_svg

FRAME_SECONDS, LAST_FRAME_SECONDS = 0.06, 2.0
"""Time for which a film shows each snapshot, and the last one."""
FRAME_RATE = 25
"""Frames per second of a video; each snapshot is repeated in as many frames as its time needs."""
FILM_SIZE = 320
"""Longer side of a film's frames, in pixels, unless the caller says otherwise."""


class Content(NamedTuple):
    """The bytes of a file, and facts about it to report."""

    raw: bytes
    facts: dict[str, Any] = {}  # noqa: RUF012


def check_output(path: FilePath) -> Path:
    """Refuse, before any work is done, a path that could not be written in the end."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"{path} does not end in one of {', '.join(ENDINGS)}: the ending says what to write."
        )
    if not path.parent.is_dir():
        raise ValueError(
            f"There is no folder {path.parent} to write {path.name} to: make it first."
        )
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file.")
    if path.suffix.lower() in (".mp4", ".webm") and importlib.util.find_spec("av") is None:
        raise ValueError(
            f"{path.name} needs PyAV: pip install 'entroplay[film]', or ask for a .gif."
        )
    return path


def write(painting: Painting, path: FilePath, *, size: object = None) -> dict[str, Any]:
    """Write the painting in the format that the path's ending names, and report on the file."""
    path = check_output(path)
    ending = path.suffix.lower()
    if ending == ".safetensors":
        save(painting, path)
        return {"file": str(path)}
    content = WRITERS[ending](painting, path, size)
    write_atomically(path, content.raw)
    return {"file": str(path), **content.facts}


def to_image(picture: np.ndarray) -> Any:
    """A Pillow image with eight bits per channel."""
    from PIL import Image

    values = np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)


def _picture(painting: Painting, path: Path, size: object) -> Content:
    """The painting, or its running mean for paths such as mean.png and photo.mean.png."""
    mean = path.stem.endswith(".mean") or path.stem == "mean"
    picture = painting.render_mean(size) if mean else painting.render(size)
    kind = path.suffix.lower()[1:].upper()
    buffer = io.BytesIO()
    to_image(picture).save(buffer, "JPEG" if kind == "JPG" else kind)
    return Content(buffer.getvalue())


def _svg(painting: Painting, path: Path, size: object) -> Content:
    """Layers that come close to the painting; their error is reported."""
    height, width = painting.features.size if size is None else painting.shown_size(size)
    text, error = to_svg(painting, (height, width))
    return Content(text.encode(), {"mse": error})


def _log(painting: Painting, path: Path, size: object) -> Content:
    """The log, one JSON object per line."""
    return Content("".join(json.dumps(row) + "\n" for row in log(painting)).encode())


def log(painting: Painting) -> list[dict[str, float]]:
    """The log of the painting: one row per snapshot of the film."""
    history, rows = painting.solution.history, []
    for iteration in painting.film.iterations:
        if iteration < 1:
            continue  # the history begins after the first iteration
        # The loss is half the squared error, summed over channels.
        mse = 2 * float(history["loss_particles"][iteration - 1]) / painting.shape[2]
        seconds = float(history["seconds"][iteration - 1])
        rows.append(
            {"iteration": int(iteration), "seconds": seconds, "mse": mse, "psnr": psnr(mse)}
        )
    return rows


def _frames(painting: Painting, size: object) -> list[np.ndarray]:
    """All snapshots of the film as pictures."""
    height, width, _ = painting.shape
    shown = size if size is not None else min(FILM_SIZE, max(height, width))
    return [painting.frame(i, shown) for i in range(len(painting.film.iterations))]


def _gif(painting: Painting, path: Path, size: object) -> Content:
    """An animated GIF. All frames share the palette of the last one, which avoids flicker."""
    images = [to_image(frame).convert("RGB") for frame in _frames(painting, size)]
    palette = images[-1].quantize(256)
    frames = [image.quantize(palette=palette) for image in images]
    durations = [round(1000 * FRAME_SECONDS)] * (len(frames) - 1)  # in milliseconds
    durations.append(round(1000 * LAST_FRAME_SECONDS))
    buffer, rest = io.BytesIO(), frames[1:]
    frames[0].save(buffer, "GIF", save_all=True, append_images=rest, duration=durations, loop=0)
    return Content(buffer.getvalue())


def _video(painting: Painting, path: Path, size: object) -> Content:
    """A film in the container format that the ending names."""
    import av

    frames, kind = _frames(painting, size), path.suffix.lower()[1:]
    height, width = (s // 2 * 2 for s in frames[0].shape[:2])  # the codecs need even sides
    if min(height, width) < 2:
        must_be = "at least two pixels on each side of a film"
        raise invalid("save", "size", must_be, frames[0].shape[:2])
    repeats = [max(1, round(FRAME_SECONDS * FRAME_RATE))] * (len(frames) - 1)
    repeats.append(round(LAST_FRAME_SECONDS * FRAME_RATE))
    buffer, codec = io.BytesIO(), "libx264" if kind == "mp4" else "libvpx-vp9"
    with av.open(buffer, "w", format=kind) as container:
        stream: Any = container.add_stream(codec, rate=FRAME_RATE)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame, times in zip(frames, repeats, strict=True):
            # Greyscale is repeated in all three channels.
            colours = np.broadcast_to(frame[:height, :width], (height, width, 3))
            values = np.ascontiguousarray(np.round(colours * 255).astype(np.uint8))
            for _ in range(times):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(values, format="rgb24")))
        container.mux(stream.encode())  # what the encoder still holds back
    return Content(buffer.getvalue())


PICTURES, FILMS = (".png", ".jpg", ".jpeg", ".webp", ".tiff"), (".gif", ".mp4", ".webm")
"""The endings of still pictures and of films."""
WRITERS: dict[str, Callable[[Painting, Path, object], Content]] = {
    **dict.fromkeys(PICTURES, _picture),
    ".svg": _svg,
    ".gif": _gif,
    ".mp4": _video,
    ".webm": _video,
    ".jsonl": _log,
}
"""The function that writes each format; `save` writes .safetensors, which `load` reads."""
ENDINGS = (*WRITERS, ".safetensors")
"""All endings that a path may have."""
