"""Photographs of all kinds, as arrays with values from 0 (black) to 1 (white)."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from ..base.arguments import invalid, is_number, whole

Colour = tuple[float, ...]


class ImageError(ValueError):
    """The file is not a picture that can be read."""


def read_image(image: object, *, size: int | None = None, matte: object = "white") -> np.ndarray:
    """(height, width, 1 or 3), float32, in [0, 1]: turned as its EXIF data say, transparency laid over `matte`.

    Args:
        image: a path, a Pillow image, or an array: (height, width) or (height, width, 1 to 4), whole numbers of 8 or 16 bits,
            or real numbers from 0 to 1.
        size: the length of the longer side to which a larger picture is reduced.
        matte: a colour, see `colour`.
    """
    pixels = (
        _from_array(image)
        if isinstance(image, np.ndarray) or hasattr(image, "__array_interface__")
        else None
    )
    if pixels is None:
        pixels = _from_pillow(_opened(image) if isinstance(image, str | os.PathLike) else image)
    if pixels.shape[2] in (2, 4):
        solid, alpha = pixels[:, :, :-1], pixels[:, :, -1:]
        pixels = alpha * solid + (1 - alpha) * np.asarray(colour(matte, solid.shape[2]), np.float32)
    if size is not None:
        pixels = _reduced(pixels, whole("read_image", "size", size))
    return np.ascontiguousarray(pixels, np.float32)


def colour(value: object, channels: int) -> Colour:
    """A colour as `channels` numbers in [0, 1]: from a name ("white", "#336699"), a number, or that many numbers."""
    must_be = f"a colour: a name, '#rrggbb', or {channels} numbers from 0 to 1"
    if isinstance(value, str):
        from PIL import ImageColor

        try:
            rgb = tuple(c / 255 for c in ImageColor.getrgb(value)[:3])
        except ValueError:
            raise invalid("paint", "background", must_be, value) from None
        return rgb if channels == 3 else (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2],)
    values: Any = [value] * channels if is_number(value) else value
    array = (
        np.asarray(values, np.float64)
        if isinstance(values, list | tuple | np.ndarray)
        else np.zeros(0)
    )
    if array.shape != (channels,) or not ((array >= 0) & (array <= 1)).all():
        raise invalid("paint", "background", must_be, value)
    return tuple(array.tolist())


def _opened(path: str | os.PathLike[str]) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.load()
                return image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(f"{path} claims more pixels than is safe to unpack: {error}") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{path} is not a picture in a format that Pillow reads.") from error
    except (SyntaxError, ValueError, EOFError, Image.UnidentifiedImageError) as error:
        raise ImageError(f"{path} is damaged: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise ImageError(f"{path} cannot be read: {error.strerror}.") from error
        raise ImageError(f"{path} is damaged: {error}") from error


def _from_pillow(image: Any) -> np.ndarray:
    from PIL import Image, ImageOps

    if not isinstance(image, Image.Image):
        raise invalid("paint", "image", "a path, a Pillow image or an array", type(image).__name__)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # whole numbers of more than eight bits: in practice sixteen
        return np.clip(np.asarray(image, np.float32)[:, :, None] / 65535, 0, 1)
    if image.mode == "F":
        return np.clip(np.asarray(image, np.float32)[:, :, None], 0, 1)
    transparent = (
        "A" in image.getbands()
        or "transparency" in image.info
        or image.mode in ("PA", "La", "RGBa")
    )
    grey = image.mode in ("1", "L", "LA", "La")
    mode = ("LA" if transparent else "L") if grey else ("RGBA" if transparent else "RGB")
    pixels = np.asarray(image.convert(mode), np.float32) / 255
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _from_array(image: Any) -> np.ndarray:
    array = np.asarray(image)
    array = array[:, :, None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4) or array.size == 0:
        raise invalid(
            "paint",
            "image",
            "an array of shape (height, width) or (height, width, 1 to 4)",
            array.shape,
        )
    if array.dtype.kind in "ub" and array.dtype.itemsize <= 2:
        return array.astype(np.float32) / (
            1 if array.dtype.kind == "b" else np.iinfo(array.dtype).max
        )
    if (
        array.dtype.kind != "f"
        or not np.isfinite(array).all()
        or array.min() < 0
        or array.max() > 1
    ):
        raise invalid(
            "paint",
            "image",
            "an array of uint8, of uint16, or of real numbers from 0 to 1",
            f"{array.dtype} values",
        )
    return array.astype(np.float32)


def _reduced(pixels: np.ndarray, size: int) -> np.ndarray:
    """Channel by channel in real numbers, so that sixteen bits stay sixteen."""
    from PIL import Image

    height, width = pixels.shape[:2]
    if max(height, width) <= size:
        return pixels
    shape = (
        max(1, round(width * size / max(height, width))),
        max(1, round(height * size / max(height, width))),
    )
    channels = [
        Image.fromarray(np.ascontiguousarray(c)).resize(shape, Image.Resampling.LANCZOS)
        for c in np.moveaxis(pixels, 2, 0)
    ]
    return np.clip(np.stack([np.asarray(c) for c in channels], axis=2), 0, 1)
