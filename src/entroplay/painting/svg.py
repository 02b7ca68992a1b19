"""Triangles as SVG, which can express less than `Triangles` can.

A painting adds signed colours, in no order. SVG lays one shape over the other: where a shape of
opacity a covers, it replaces the picture I by (1 - a) I + a C, with a colour C between black and
white. The corners stay; opacities and colours are fitted to the picture again, by gradient descent
through that composition. The result is a little less close; its error is measured and written into
the file.

Viewers keep eight bits of the picture and of the opacities, and differ in how. Some round after
each layer; others truncate and so lose half a level each time, which adds up to ten levels over a
thousand faint layers. Opacities are therefore bounded below, and the fit is made for a viewer
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

LEVELS = 255
"""Number of steps from black to white in eight bits."""
TRUNCATED = 0.5 / LEVELS
"""Mean loss per layer in a viewer that truncates."""
LOWEST, HIGHEST = 0.06, 0.98
"""Range of the opacities."""
STEPS = 120
"""Number of steps of the fit."""

FIRST_OPACITY, FIRST_LOWEST, FIRST_HIGHEST = 3.0, 0.05, 0.6
"""First guess of an opacity: this factor times what the triangle adds, and its bounds."""
FIRST_DARKEST, FIRST_BRIGHTEST = 0.02, 0.98
"""Bounds of the first guess of a colour."""
LEAST_COVER = 1e-6
"""Area in pixels below which a triangle is taken to cover nothing."""

RATE = 0.15
"""Adam's first step length, in logits; it falls to zero like a quarter of a cosine."""
MEAN_RATE, SQUARE_RATE = 0.1, 0.01
"""Weights of the newest gradient, and of its square, in Adam's running means."""
TINY = 1e-12
"""Keeps Adam's step finite where the gradient vanishes."""
LARGEST_LOGIT = 12.0
"""Bound of the logits, beyond which the logistic function is flat."""
LOGIT_MARGIN = 1e-3
"""Minimum distance of a first guess from 0 and from 1, where logits are infinite."""

Judge = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray, np.ndarray]]
"""From colours and opacities to the mean squared error and its gradient in both, up to a factor."""


@dataclass(frozen=True)
class Layers:
    """Triangles to be laid over each other, the first one lowest."""

    vertices: np.ndarray
    colours: np.ndarray
    opacities: np.ndarray
    background: np.ndarray
    mse: float
    """Mean squared error of what viewers with eight bits show: the larger one of viewers that round
    after every layer and of those that truncate."""


def layers(painting: Painting) -> Layers:
    """Fit opacities and colours of the painting's triangles, the largest lowest, to the picture."""
    height, width, _ = painting.shape
    vertices, added = painting.triangles
    edges = vertices[:, 1:] - vertices[:, :1]
    area = np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0]) / 2
    order = np.argsort(-area)
    vertices, added = vertices[order], added[order]
    corners = jnp.asarray((vertices * [width, height]).reshape(-1, 6), jnp.float32)
    target, background = (
        jnp.asarray(a, jnp.float32) for a in (painting.target, painting.background)
    )

    def judge(colour: np.ndarray, opacity: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        shown, shares = (jnp.asarray(a, jnp.float32) for a in (colour, opacity))
        found = _lay(corners, shown, shares, background, target)
        distance = float(jnp.mean((found.picture - target) ** 2))
        return distance, np.asarray(found.in_colours), np.asarray(found.in_opacities)

    colour, opacity = _descend(judge, *_first_guess(corners, added, target, background))
    # The file has eight bits of each number: the error is that of the rounded ones.
    colour, opacity, canvas = (
        np.round(np.asarray(a) * LEVELS) / LEVELS for a in (colour, opacity, background)
    )
    error = max(shown_error(corners, colour, opacity, canvas, target))
    return Layers(vertices, colour, opacity, canvas, error)


def _first_guess(
    corners: Array, added: np.ndarray, target: Array, background: Array
) -> tuple[np.ndarray, np.ndarray]:
    """Colours and opacities from what each triangle adds to the mean of the picture below it."""
    m, (height, width, channels) = len(corners), target.shape
    ones = jnp.ones((height, width, 1), jnp.float32)
    covered = np.asarray(gather(corners, jnp.ones((m, 1), jnp.float32), ones)[0])
    integral = np.asarray(gather(corners, jnp.ones((m, channels), jnp.float32), target)[0])
    mean = integral / np.maximum(covered, LEAST_COVER)
    under = np.where(covered > LEAST_COVER, mean, np.asarray(background))
    opacity = np.clip(FIRST_OPACITY * np.abs(added).max(axis=1), FIRST_LOWEST, FIRST_HIGHEST)
    # a (C - I) is what the layer adds to the picture I: solved for C.
    colour = np.clip(under + added / opacity[:, None], FIRST_DARKEST, FIRST_BRIGHTEST)
    return colour, opacity


def shown_error(
    corners: Array, colour: np.ndarray, opacity: np.ndarray, canvas: np.ndarray, target: Array
) -> tuple[float, float]:
    """The mean squared error in viewers that round, and in viewers that truncate."""
    # Viewers first multiply colours by opacities, and keep eight bits of the product as well.
    seen = np.round(colour * opacity[:, None] * LEVELS) / (opacity[:, None] * LEVELS)
    shown, shares, ground = (jnp.asarray(a, jnp.float32) for a in (seen, opacity, canvas))
    pictures = [
        lay(corners, shown, shares, ground, target, levels=LEVELS, lost=lost).picture
        for lost in (0.0, TRUNCATED)
    ]
    rounding, truncating = (float(jnp.mean((picture - target) ** 2)) for picture in pictures)
    return rounding, truncating


_lay = jax.jit(partial(lay, lost=TRUNCATED / 2))
"""`lay` in a viewer half-way between those that round and those that truncate."""


def to_svg(painting: Painting, size: tuple[int, int]) -> tuple[str, float]:
    """The text of an SVG file shown at `size` = (height, width), and its mean squared error."""
    found = layers(painting)
    height, width, _ = painting.shape
    points = found.vertices * [width, height]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[1]}" height="{size[0]}" '
        f'viewBox="0 0 {width} {height}">',
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
    judge: Judge, colour: np.ndarray, opacity: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Improve colours and opacities by Adam, and return the best ones of all steps.

    A logistic function keeps each of them within its range; the steps are taken in its argument.
    """
    span = HIGHEST - LOWEST
    logits = [_logit(colour), _logit((opacity - LOWEST) / span)]
    means, squares = [np.zeros_like(z) for z in logits], [np.zeros_like(z) for z in logits]
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for step in range(1, STEPS + 1):
        colour, share = (1 / (1 + np.exp(-z)) for z in logits)
        opacity = LOWEST + span * share
        distance, in_colour, in_opacity = judge(colour, opacity)
        if best is None or distance < best[0]:
            best = distance, colour, opacity
        # Chain rule: the derivative of the logistic function s is s (1 - s).
        gradients = [in_colour * colour * (1 - colour), in_opacity * span * share * (1 - share)]
        rate = RATE * np.cos(np.pi / 2 * (step - 1) / STEPS)
        # Adam: the running means begin at zero, and 1 - (1 - rate)^step corrects for that.
        mean_mass, square_mass = 1 - (1 - MEAN_RATE) ** step, 1 - (1 - SQUARE_RATE) ** step
        for i, gradient in enumerate(gradients):
            means[i] = (1 - MEAN_RATE) * means[i] + MEAN_RATE * gradient
            squares[i] = (1 - SQUARE_RATE) * squares[i] + SQUARE_RATE * gradient**2
            scale = np.sqrt(squares[i] / square_mass) + TINY
            moved = logits[i] - rate * means[i] / mean_mass / scale
            logits[i] = np.clip(moved, -LARGEST_LOGIT, LARGEST_LOGIT)
    assert best is not None
    return best[1], best[2]


def _logit(x: np.ndarray) -> np.ndarray:
    """The inverse of the logistic function, of numbers moved away from 0 and 1."""
    x = np.clip(x, LOGIT_MARGIN, 1 - LOGIT_MARGIN)
    return np.log(x / (1 - x))


def _hex(colour: np.ndarray) -> str:
    """#rrggbb; a single channel is repeated."""
    values = np.clip(np.round(np.broadcast_to(colour, 3) * LEVELS), 0, LEVELS).astype(int)
    return "#" + "".join(f"{v:02x}" for v in values)
