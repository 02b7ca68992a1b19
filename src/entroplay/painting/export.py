"""Paintings as files: each kind by its ending, whole or not at all."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arguments import invalid
from .painting import FilePath, Painting, psnr

PICTURES, FILMS = (".png", ".jpg", ".jpeg", ".webp", ".tiff"), (".gif", ".mp4", ".webm")
ENDINGS = (*PICTURES, ".svg", *FILMS, ".jsonl", ".safetensors")
FRAME_SECONDS, LAST_FRAME_SECONDS = 0.06, 2.0
FILM_SIZE = 320
"""Longer side of a film's frames, in pixels, unless asked otherwise."""


def check_output(path: FilePath) -> Path:
    """Refuse, before any work is done, what could not be written in the end."""
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
    """Write the painting as what the path's ending says; returns what is worth knowing about the file."""
    path = check_output(path)
    ending, facts = path.suffix.lower(), {"file": str(path)}
    if ending == ".safetensors":
        from ..runs.files import save

        save(painting, path)
        return facts
    if ending == ".svg":
        from .svg import to_svg

        shown = painting._size(size) if size is not None else painting.features.size
        text, error = to_svg(painting, (shown[0], shown[1]))
        content = text.encode()
        facts |= {"mse": error}  # type: ignore[dict-item]
    elif ending == ".jsonl":
        content = "".join(json.dumps(row) + "\n" for row in log(painting)).encode()
    elif ending == ".gif":
        content = _gif(painting, size)
    elif ending in FILMS:
        content = _video(painting, size, ending)
    else:
        mean = path.stem.endswith(".mean") or path.stem == "mean"
        picture = painting.render_mean(size) if mean else painting.render(size)
        buffer = io.BytesIO()
        to_image(picture).save(
            buffer, {".jpg": "JPEG", ".jpeg": "JPEG"}.get(ending, ending[1:].upper())
        )
        content = buffer.getvalue()
    _replace(path, content)
    return facts


def to_image(picture: np.ndarray) -> Any:
    """A Pillow image of eight bits."""
    from PIL import Image

    values = np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)


def log(painting: Painting) -> list[dict[str, float]]:
    """One row per snapshot of the film."""
    history, rows = painting.solution.history, []
    for iteration in painting.film.iterations:
        if iteration < 1:
            continue
        mse = 2 * float(history["loss_particles"][iteration - 1]) / painting.shape[2]
        seconds = float(history["seconds"][iteration - 1])
        rows.append(
            {"iteration": int(iteration), "seconds": seconds, "mse": mse, "psnr": psnr(mse)}
        )
    return rows


def _frames(painting: Painting, size: object) -> list[np.ndarray]:
    height, width, _ = painting.shape
    shown = size if size is not None else min(FILM_SIZE, max(height, width))
    return [painting.frame(i, shown) for i in range(len(painting.film.iterations))]


def _gif(painting: Painting, size: object) -> bytes:
    """With one palette, that of the last frame, so that colours do not flicker."""
    images = [to_image(frame).convert("RGB") for frame in _frames(painting, size)]
    palette = images[-1].quantize(256)
    frames = [image.quantize(palette=palette) for image in images]
    durations = [round(1000 * FRAME_SECONDS)] * (len(frames) - 1) + [
        round(1000 * LAST_FRAME_SECONDS)
    ]
    buffer = io.BytesIO()
    frames[0].save(
        buffer, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0
    )
    return buffer.getvalue()


def _video(painting: Painting, size: object, ending: str) -> bytes:
    import av

    frames = _frames(painting, size)
    height, width = (s // 2 * 2 for s in frames[0].shape[:2])  # the codecs want even sides
    if min(height, width) < 2:
        raise invalid(
            "save", "size", "at least two pixels on each side of a film", frames[0].shape[:2]
        )
    buffer, rate = io.BytesIO(), 25
    repeats = [max(1, round(FRAME_SECONDS * rate))] * (len(frames) - 1) + [
        round(LAST_FRAME_SECONDS * rate)
    ]
    with av.open(buffer, "w", format=ending[1:]) as container:
        stream: Any = container.add_stream(
            "libx264" if ending == ".mp4" else "libvpx-vp9", rate=rate
        )
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame, times in zip(frames, repeats, strict=True):
            values = np.round(
                np.broadcast_to(frame[:height, :width], (height, width, 3)) * 255
            ).astype(np.uint8)
            for _ in range(times):
                container.mux(
                    stream.encode(
                        av.VideoFrame.from_ndarray(np.ascontiguousarray(values), format="rgb24")
                    )
                )
        container.mux(stream.encode())
    return buffer.getvalue()


def _replace(path: Path, content: bytes) -> None:
    """Write beside the old file, then take its place: nobody ever sees half a file."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
