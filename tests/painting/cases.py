"""A small photograph, and pictures in files."""

from __future__ import annotations

import numpy as np
from PIL import Image

SIZE = (24, 32)
"""Height and width of the photograph."""


def photograph():
    """A disc and a stripe, in colour."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    picture = np.full((*SIZE, 3), [0.2, 0.3, 0.6])
    picture[(y - 12) ** 2 + (x - 12) ** 2 < 50] = [0.9, 0.8, 0.1]
    picture[:, 24:28] = [0.1, 0.5, 0.2]
    return np.round(picture * 255).astype(np.uint8)


def saved(image, path, **options):
    """The path of a Pillow image after it has been written there."""
    image.save(path, **options)
    return path


def pixels_of(path):
    """The values of a picture in a file, from 0 to 1."""
    with Image.open(path) as image:
        return np.asarray(image) / 255
