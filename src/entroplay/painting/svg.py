"""Triangles as SVG, which can do less than `Triangles`.

A painting adds signed colours in no order; SVG lays one shape over the other: I <- (1 - a) I + a C where it covers, with opacity a
and a colour C between black and white. The corners stay; opacities and colours are fitted anew to the picture, by gradient
descent through that composition. What comes out is measured and written into the file: it is a little less close.

Viewers keep eight bits and an opacity of eight bits, and differ in how: some round after each layer, others cut off and so lose
half a level each time, which a thousand faint layers make ten levels of. So opacities do not become too small, and the fit lies
half-way between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..problems.features.raster import gather, lay
from .painting import Painting

STEPS = 120
"""Of the fit."""
LOWEST, HIGHEST = 0.06, 0.98
"""Opacities."""
LEVELS = 255


@dataclass(frozen=True)
class Layers:
    """Triangles to be laid over each other, the first one lowest."""

    vertices: np.ndarray
    colours: np.ndarray
    opacities: np.ndarray
    background: np.ndarray
    mse: float
    """The mean squared distance from the picture in a viewer with eight bits: the larger one of those that round after every layer
    and those that cut off."""


def layers(painting: Painting) -> Layers:
    """Opacities and colours with which the painting's triangles, the largest lowest, come closest to the picture."""
    vertices, added = painting.triangles
    height, width, channels = painting.shape
    edges = vertices[:, 1:] - vertices[:, :1]
    area = np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0]) / 2
    order = np.argsort(-area)
    vertices, added = vertices[order], added[order]
    corners = jnp.asarray((vertices * [width, height]).reshape(-1, 6), jnp.float32)
    target, background = (
        jnp.asarray(a, jnp.float32) for a in (painting.target, painting.background)
    )
    # A first guess: what a triangle adds, over the mean of the picture where it lies.
    opacity = np.clip(3 * np.abs(added).max(axis=1), 0.05, 0.6)
    covered = np.asarray(
        gather(
            corners,
            jnp.ones((len(corners), 1), jnp.float32),
            jnp.ones((height, width, 1), jnp.float32),
        )[0]
    )
    integral = np.asarray(
        gather(corners, jnp.ones((len(corners), channels), jnp.float32), target)[0]
    )
    under = np.where(covered > 1e-6, integral / np.maximum(covered, 1e-6), np.asarray(background))
    colour = np.clip(under + added / opacity[:, None], 0.02, 0.98)

    def laid(colour: np.ndarray, opacity: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        found = _lay(
            corners,
            jnp.asarray(colour, jnp.float32),
            jnp.asarray(opacity, jnp.float32),
            background,
            target,
        )
        distance = float(jnp.mean((found.picture - target) ** 2))
        return distance, np.asarray(found.in_colours), np.asarray(found.in_opacities)

    colour, opacity = _descend(laid, colour, opacity)
    colour, canvas = (np.round(np.asarray(a) * LEVELS) / LEVELS for a in (colour, background))
    opacity = np.round(opacity * LEVELS) / LEVELS
    return Layers(
        vertices,
        colour,
        opacity,
        canvas,
        max(shown_error(corners, colour, opacity, canvas, target)),
    )


def shown_error(
    corners: Array, colour: np.ndarray, opacity: np.ndarray, canvas: np.ndarray, target: Array
) -> tuple[float, float]:
    """The mean squared distance in viewers that round, and in those that cut off."""
    # Viewers multiply colours by opacities first, and keep eight bits of that as well.
    seen = np.round(colour * opacity[:, None] * LEVELS) / (opacity[:, None] * LEVELS)
    shown, shares, ground = (jnp.asarray(a, jnp.float32) for a in (seen, opacity, canvas))
    pictures = [
        lay(corners, shown, shares, ground, target, levels=LEVELS, lost=lost).picture
        for lost in (0.0, 0.5 / LEVELS)
    ]
    rounding, cutting = (float(jnp.mean((picture - target) ** 2)) for picture in pictures)
    return rounding, cutting


_lay = jax.jit(partial(lay, lost=0.25 / LEVELS))


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
        lines.append(
            f'<polygon points="{path}" fill="{_hex(colour)}" fill-opacity="{opacity:.4f}"/>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n", found.mse


def _descend(
    laid: Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray, np.ndarray]],
    colour: np.ndarray,
    opacity: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Adam on colours and opacities, each kept within its range by a logistic function; the best of all steps."""
    hidden = [_logit(colour), _logit((opacity - LOWEST) / (HIGHEST - LOWEST))]
    first, second = [np.zeros_like(h) for h in hidden], [np.zeros_like(h) for h in hidden]
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for step in range(1, STEPS + 1):
        colour, share = (1 / (1 + np.exp(-h)) for h in hidden)
        opacity = LOWEST + (HIGHEST - LOWEST) * share
        distance, in_colour, in_opacity = laid(colour, opacity)
        if best is None or distance < best[0]:
            best = distance, colour, opacity
        gradients = [
            in_colour * colour * (1 - colour),
            in_opacity * (HIGHEST - LOWEST) * share * (1 - share),
        ]
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
