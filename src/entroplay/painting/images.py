"""Photographs of all kinds, as arrays with values from 0 (black) to 1 (white)."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from ..base.arguments import invalid, is_number, whole

Colour = tuple[float, ...]
"""One value per channel, from 0 to 1."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey, as Pillow has them (ITU-R BT.601)."""


class ImageError(ValueError):
    """A picture that cannot be read."""


def read_image(image: object, *, size: int | None = None, matte: object = "white") -> np.ndarray:
    """A picture as an array of shape (height, width, 1 or 3), float32, with values in [0, 1].

    The picture is turned as its EXIF data say, and transparent parts are laid over `matte`.

    Args:
        image: a path, a Pillow image, or an array of shape (height, width) or
            (height, width, 1 to 4), with whole numbers of 8 or 16 bits or real numbers from 0 to 1.
        size: the length of the longer side to which a larger picture is reduced.
        matte: a colour, see `colour`.
    """
    if isinstance(image, np.ndarray) or hasattr(image, "__array_interface__"):
        pixels = _from_array(image)
    else:
        pixels = _from_pillow(_opened(image) if isinstance(image, str | os.PathLike) else image)
    # An even number of channels means that the last one is opacity.
    if pixels.shape[2] in (2, 4):
        solid, alpha = pixels[:, :, :-1], pixels[:, :, -1:]
        pixels = alpha * solid + (1 - alpha) * np.asarray(colour(matte, solid.shape[2]), np.float32)
    if size is not None:
        pixels = _reduced(pixels, whole("read_image", "size", size))
    return np.ascontiguousarray(pixels, np.float32)


def astronaut() -> np.ndarray:
    """The default picture, from scikit-image: whole numbers of 8 bits, (512, 512, 3)."""
    try:
        from skimage.data import astronaut as picture
    except ImportError as error:
        raise ImageError(
            "The default picture needs scikit-image: "
            "pip install 'entroplay[paint]', or name a file."
        ) from error
    return picture()


def colour(value: object, channels: int) -> Colour:
    """A colour as `channels` numbers in [0, 1].

    Args:
        value: a name ("white", "#336699"), a number, or one number per channel.
        channels: 1 or 3.
    """
    must_be = f"a colour: a name, '#rrggbb', or {channels} numbers from 0 to 1"
    if isinstance(value, str):
        from PIL import ImageColor

        try:
            rgb = tuple(c / 255 for c in ImageColor.getrgb(value)[:3])
        except ValueError:
            raise invalid("paint", "background", must_be, value) from None
        if channels == 3:
            return rgb
        return (LUMA[0] * rgb[0] + LUMA[1] * rgb[1] + LUMA[2] * rgb[2],)
    values: Any = [value] * channels if is_number(value) else value
    # Whatever is no sequence becomes an array of the wrong shape, which is refused below.
    sequence = isinstance(values, list | tuple | np.ndarray)
    array = np.asarray(values, np.float64) if sequence else np.zeros(0)
    if array.shape != (channels,) or not ((array >= 0) & (array <= 1)).all():
        raise invalid("paint", "background", must_be, value)
    return tuple(array.tolist())


def _opened(path: str | os.PathLike[str]) -> Any:
    """The file as a Pillow image, read completely; every failure becomes an ImageError."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Pillow only warns of pictures that unpack to about 90 to 180 million pixels.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.load()
                return image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(f"{path} claims more pixels than is safe to unpack: {error}") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{path} is not a picture in a format that Pillow reads.") from error
    except (SyntaxError, ValueError, EOFError) as error:
        raise ImageError(f"{path} is damaged: {error}") from error
    except OSError as error:
        # The operating system numbers its errors, Pillow does not: it found the contents wrong.
        if error.errno is not None:
            raise ImageError(f"{path} cannot be read: {error.strerror}.") from error
        raise ImageError(f"{path} is damaged: {error}") from error


def _from_pillow(image: Any) -> np.ndarray:
    """The pixels of a Pillow image of any mode, with 1 to 4 channels."""
    from PIL import Image, ImageOps

    if not isinstance(image, Image.Image):
        raise invalid("paint", "image", "a path, a Pillow image or an array", type(image).__name__)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # whole numbers of more than eight bits: in practice sixteen
        return np.clip(np.asarray(image, np.float32)[:, :, None] / 65535, 0, 1)
    if image.mode == "F":
        return np.clip(np.asarray(image, np.float32)[:, :, None], 0, 1)
    # Palettes can mark a colour as transparent; some modes name opacity in lower case.
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
    """The array with a channel axis and values in [0, 1]."""
    array = np.asarray(image)
    array = array[:, :, None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4) or array.size == 0:
        must_be = "an array of shape (height, width) or (height, width, 1 to 4)"
        raise invalid("paint", "image", must_be, array.shape)
    if array.dtype.kind in "ub" and array.dtype.itemsize <= 2:
        largest = 1 if array.dtype.kind == "b" else np.iinfo(array.dtype).max
        return array.astype(np.float32) / largest
    real = array.dtype.kind == "f" and bool(np.isfinite(array).all())
    if not real or array.min() < 0 or array.max() > 1:
        must_be = "an array of uint8, of uint16, or of real numbers from 0 to 1"
        raise invalid("paint", "image", must_be, f"{array.dtype} values")
    return array.astype(np.float32)


def _reduced(pixels: np.ndarray, size: int) -> np.ndarray:
    """The picture with its longer side reduced to `size`.

    Channel by channel in real numbers: Pillow would resize colours in eight bits.
    """
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
    # Lanczos filters overshoot at edges.
    return np.clip(np.stack([np.asarray(c) for c in channels], axis=2), 0, 1)
