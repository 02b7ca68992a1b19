"""Triangles as SVG, which can do less than `Triangles`.

A painting adds signed colours in no order; SVG lays one shape over the other: I <- (1 - a) I + a C where it covers, with opacity a
and a colour C between black and white. The corners stay; opacities and colours are fitted anew to the picture, by gradient
descent through that composition. What comes out is measured and written into the file: it is a little less close.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ..raster import deposit
from .painting import Painting

STEPS = 80
"""Of the fit."""
OPACITIES = (0.02, 0.98)


@dataclass(frozen=True)
class _Shape:
    """What a triangle covers: a box of the canvas, and how much of each of its pixels."""

    box: tuple[slice, slice]
    covered: np.ndarray


@dataclass(frozen=True)
class Layers:
    """Triangles to be laid over each other, the first one lowest."""

    vertices: np.ndarray
    colours: np.ndarray
    opacities: np.ndarray
    background: np.ndarray
    mse: float
    """The mean squared distance from the picture, as a viewer shows it that rounds to eight bits after every layer."""


def layers(painting: Painting) -> Layers:
    """Opacities and colours with which the painting's triangles, the largest lowest, come closest to the picture."""
    vertices, added = painting.triangles
    height, width, _ = painting.shape
    edges = vertices[:, 1:] - vertices[:, :1]
    area = np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0]) / 2
    order = np.argsort(-area)
    vertices, added, area = vertices[order], added[order], area[order]
    shapes = [_shape(v * [width, height], height, width) for v in vertices]
    target, background = painting.target.astype(np.float32), painting.background.astype(np.float32)
    # A first guess: what a triangle adds, over the mean of the picture where it lies.
    opacity = np.clip(3 * np.abs(added).max(axis=1), 0.05, 0.6)
    under = np.array([_mean_under(s, target, background) for s in shapes])
    colour = np.clip(under + added / opacity[:, None], 0.02, 0.98)
    hidden = [_logit(colour), _logit((opacity - OPACITIES[0]) / (OPACITIES[1] - OPACITIES[0]))]
    colour, opacity = _descend(hidden, shapes, target, background)
    rounded, canvas = np.round(colour * 255) / 255, np.round(background * 255) / 255
    picture, _ = _compose(shapes, rounded, np.round(opacity, 3), canvas, target.shape, eight_bits=True)
    mse = float(np.mean((picture - target) ** 2))
    return Layers(vertices, rounded, np.round(opacity, 3), canvas, mse)


def to_svg(painting: Painting, size: tuple[int, int]) -> tuple[str, float]:
    """The text of an SVG file that is shown at `size` = (height, width), and the mean squared error of what it shows."""
    found = layers(painting)
    height, width, _ = painting.shape
    points = found.vertices * [width, height]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[1]}" height="{size[0]}" viewBox="0 0 {width} {height}">',
        f"<desc>{len(points)} triangles by entroplay, mean squared error {found.mse:.6f}</desc>",
        f'<rect width="{width}" height="{height}" fill="{_hex(found.background)}"/>',
    ]
    for corners, colour, opacity in zip(points, found.colours, found.opacities, strict=True):
        path = " ".join(f"{x:.2f},{y:.2f}" for x, y in corners)
        lines.append(f'<polygon points="{path}" fill="{_hex(colour)}" fill-opacity="{opacity:.3f}"/>')
    return "\n".join([*lines, "</svg>"]) + "\n", found.mse


def _shape(corners: np.ndarray, height: int, width: int) -> _Shape:
    low = np.clip(np.floor(corners.min(axis=0)), 0, [width, height]).astype(int)
    high = np.clip(np.ceil(corners.max(axis=0)), 0, [width, height]).astype(int)
    picture = np.asarray(deposit(jnp.asarray(corners.reshape(1, 6), jnp.float32), jnp.ones((1, 1), jnp.float32), height, width))
    box = slice(low[1], max(high[1], low[1])), slice(low[0], max(high[0], low[0]))
    return _Shape(box, picture[box].astype(np.float32))


def _mean_under(shape: _Shape, target: np.ndarray, background: np.ndarray) -> np.ndarray:
    total = shape.covered.sum()
    return background if total <= 0 else (shape.covered * target[shape.box]).sum(axis=(0, 1)) / total


def _compose(
    shapes: list[_Shape],
    colour: np.ndarray,
    opacity: np.ndarray,
    background: np.ndarray,
    size: tuple[int, ...],
    *,
    eight_bits: bool = False,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The picture, and what lay under each shape."""
    picture = np.broadcast_to(background, size).astype(np.float32)
    below = []
    for shape, c, a in zip(shapes, colour.astype(np.float32), opacity.astype(np.float32), strict=True):
        region = picture[shape.box]
        below.append(region.copy())
        region += (a * shape.covered) * (c - region)
        if eight_bits:
            region[:] = np.round(region * 255) / 255
    return picture, below


def _descend(
    hidden: list[np.ndarray], shapes: list[_Shape], target: np.ndarray, background: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Adam on colours and opacities, each kept within its range by a logistic function; the best of all steps."""
    low, high = OPACITIES
    first, second = [np.zeros_like(h) for h in hidden], [np.zeros_like(h) for h in hidden]
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for step in range(1, STEPS + 1):
        colour, share = (1 / (1 + np.exp(-h)) for h in hidden)
        opacity = low + (high - low) * share
        picture, below = _compose(shapes, colour, opacity, background, target.shape)
        error = picture - target
        loss = float(np.mean(error**2))
        if best is None or loss < best[0]:
            best = loss, colour, opacity
        in_colour, in_opacity = np.zeros_like(colour), np.zeros_like(opacity)
        for j in range(len(shapes) - 1, -1, -1):
            slope, covered = error[shapes[j].box], shapes[j].covered
            seen = covered * slope
            in_colour[j] = opacity[j] * seen.sum(axis=(0, 1))
            in_opacity[j] = np.sum(seen * (colour[j].astype(np.float32) - below[j]))
            slope -= opacity[j].astype(np.float32) * seen
        gradients = [in_colour * colour * (1 - colour), in_opacity * (high - low) * share * (1 - share)]
        rate = 0.15 * np.cos(np.pi / 2 * (step - 1) / STEPS)
        for i, gradient in enumerate(gradients):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.99 * second[i] + 0.01 * gradient**2
            scale = np.sqrt(second[i] / (1 - 0.99**step)) + 1e-12
            hidden[i] = np.clip(hidden[i] - rate * first[i] / (1 - 0.9**step) / scale, -12, 12)
    assert best is not None
    return best[1], best[2]


def _logit(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, 1e-3, 1 - 1e-3)
    return np.log(x / (1 - x))


def _hex(colour: np.ndarray) -> str:
    values = np.clip(np.round(np.broadcast_to(colour, 3) * 255), 0, 255).astype(int)
    return "#" + "".join(f"{v:02x}" for v in values)
