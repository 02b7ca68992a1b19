"""Small tables in files."""

from __future__ import annotations

import numpy as np

HEADER = "width,colour,price\n"


def write(folder, text, name="data.csv"):
    """The path of a file with this text."""
    path = folder / name
    path.write_text(text)
    return path


def shop(folder, rows=60, target=None):
    """Price = 3 width, and ten more if red; text, numbers and a quoted header."""
    rng = np.random.default_rng(1)
    width = rng.uniform(0, 2, rows)
    colour = rng.choice(["red", "blue"], rows)
    price = 3 * width + np.where(colour == "red", 10, 0)
    kinds = np.where(price > 8, "dear", "cheap") if target == "kind" else price
    lines = [f'{w:.6f},{c},"{v}"' for w, c, v in zip(width, colour, kinds, strict=True)]
    return write(folder, HEADER + "\n".join(lines) + "\n"), width, colour, price
