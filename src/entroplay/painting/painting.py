"""The result of `paint`: triangles that make up a picture."""

from __future__ import annotations

import io
from functools import cached_property
from os import PathLike
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..base.arguments import invalid, whole
from ..base.registry import result
from ..problems.features import Triangles
from ..problems.losses import Squared
from ..runs.solution import Solution
from ..verbs.certificate import Certificate
from ..verbs.mixture_bound import explicit_certificate
from .film import Film

FilePath = str | PathLike[str]

LEAST_WEIGHT = 1e-4
"""Snapshots that weigh less than this in the running mean are left out."""
LEAST_MSE = 1e-12
"""Mean squared error at which the peak signal to noise ratio ends, at 120 decibels."""


class ColouredTriangles(NamedTuple):
    """All triangles of a painting. They add signed colours, so their order does not matter."""

    vertices: np.ndarray
    """(m, 3, 2): x to the right and y down, in sides of the canvas. The upper left corner of the
    canvas is (0, 0), the lower right one (1, 1)."""
    colours: np.ndarray
    """(m, channels), on the scale on which 0 is black and 1 is white."""


@result("painting")
class Painting(eqx.Module):
    """A picture made of m triangles over a plain background.

    Attributes:
        solution: the particles and how they were found, see `Solution`. Its moments are the
            picture minus the background.
        background: (channels,), the colour of the canvas.
        running_mean: (height, width, channels), the mean of the pictures of the last iterations;
            older ones weigh less. For EFP it is the method's H. Minus the background, not clipped.
        mean_rate: the weight of the newest picture in the running mean.
        film: snapshots of the triangles.
    """

    solution: Solution
    background: Float[np.ndarray, "k"]
    running_mean: Float[np.ndarray, "height width k"]
    mean_rate: float
    film: Film

    @property
    def features(self) -> Triangles:
        """The feature map of the problem."""
        features = self.solution.problem.features
        if not isinstance(features, Triangles):
            raise invalid("Painting", "solution", "one of a problem with Triangles", features)
        return features

    @property
    def target(self) -> np.ndarray:
        """(height, width, channels): the photograph at the size of the fit."""
        loss = self.solution.problem.loss
        if not isinstance(loss, Squared):
            raise invalid("Painting", "solution", "one of a problem with Squared", loss)
        return np.asarray(loss.y).reshape(self.shape) + self.background

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of the fit."""
        height, width = self.features.size
        return height, width, self.features.colour_channels

    @property
    def picture(self) -> np.ndarray:
        """(height, width, channels), in [0, 1]: exactly m triangles, at the size of the fit."""
        return self.render()

    @property
    def mean_picture(self) -> np.ndarray:
        """(height, width, channels), in [0, 1]: the running mean."""
        return np.clip(self.running_mean + self.background, 0, 1)

    @property
    def mse(self) -> float:
        """The mean squared distance of `picture` from `target`, over pixels and channels."""
        return float(np.mean((self.picture - self.target) ** 2))

    @property
    def psnr(self) -> float:
        """Peak signal to noise ratio, in decibels."""
        return psnr(self.mse)

    @property
    def triangles(self) -> ColouredTriangles:
        """The vertices and colours of all triangles, whose sum is the picture."""
        particles, features = self.solution.particles, self.features
        # Particles have the origin in the centre of the canvas.
        vertices = 0.5 + features.spread * np.asarray(particles[:, :6]).reshape(-1, 3, 2)
        colours = np.asarray(features.colours(particles)) / particles.shape[0]
        return ColouredTriangles(vertices, colours)

    @cached_property
    def certificate(self) -> Certificate:
        """How far `solution.measure` is from the global optimum, computed when first asked for.

        The objective is that of `solution.problem`, at the temperature and the l2 where cooling
        ends. See `certify`.
        """
        return self.certify()

    def certify(self, *, seed: int = 0) -> Certificate:
        """Bound the distance of an explicit mixture around the triangles from the optimum.

        Chains do not mix at a painting's temperature, so no islands are drawn.
        """
        return explicit_certificate(self.solution, seed=seed)

    def render(self, size: object = None) -> np.ndarray:
        """Draw the triangles at any resolution: (height, width, channels), in [0, 1].

        `size` is (height, width), or the length of the longer side; by default the size of the fit.
        """
        return self._render(self.solution.particles, size)

    def render_mean(self, size: object = None) -> np.ndarray:
        """Draw the running mean at any resolution.

        At the size of the fit it is `mean_picture`. At other sizes it is composed of the film's
        triangles, where each snapshot represents the iterations since the one before.
        """
        if size is None or self.shown_size(size) == self.features.size:
            return self.mean_picture
        last = int(self.film.iterations[-1])
        # (1 - rate)^s is the weight of all pictures that are at least s iterations old. Differences
        # between snapshots are the weights of the iterations between them.
        left = (1 - self.mean_rate) ** np.maximum(last - self.film.iterations, 0.0)
        weights = np.diff(left, prepend=0.0)
        kept = weights > LEAST_WEIGHT
        m = self.film.particles.shape[1]
        shares = np.repeat(weights[kept] / weights[kept].sum() / m, m)
        # A weighted mean of pictures is one picture of all their triangles.
        return self._render(self.film.particles[kept].reshape(len(shares), -1), size, shares)

    def _render(
        self, particles: object, size: object = None, shares: np.ndarray | None = None
    ) -> np.ndarray:
        """The weighted mean of the particles over the background; equal weights by default."""
        problem = self.solution.problem
        with problem.arithmetic():
            features = self.features if size is None else self.features.at(self.shown_size(size))
            weights = None if shares is None else jnp.asarray(shares, problem.dtype)
            picture = np.asarray(_draw(features, jnp.asarray(particles), weights)) + self.background
        return np.clip(picture, 0, 1)

    def shown_size(self, size: object) -> tuple[int, int]:
        """(height, width), given as such or by the length of the longer side."""
        if isinstance(size, tuple | list | np.ndarray):
            return self.features.at(size).size  # type: ignore[return-value]
        longer = whole("render", "size", size)
        height, width = self.features.size
        return (
            max(1, round(longer * height / max(height, width))),
            max(1, round(longer * width / max(height, width))),
        )

    def frame(self, number: int, size: object = None) -> np.ndarray:
        """Draw the snapshot of the film with this number."""
        return self._render(self.film.particles[number], size)

    def save(self, path: FilePath, *, size: object = None) -> None:
        """Write the painting in the format that the ending of the path names.

        The endings are .png, .jpg, .webp and .tiff (.mean.png, for instance, for the running mean),
        .svg, .gif, .mp4, .webm, .jsonl (a line per snapshot), and .safetensors, which `load` reads.
        What `load` returns can be passed to `paint(start=)`. `size` is that of `render`.
        """
        from .export import write

        write(self, path, size=size)

    def _repr_png_(self) -> bytes:
        from .export import to_image

        buffer = io.BytesIO()
        to_image(self.picture).save(buffer, "PNG")
        return buffer.getvalue()

    def validate(self) -> None:
        """Refuse a painting whose parts do not fit each other."""
        self.solution.validate()
        film, cloud = self.film, self.solution.particles.shape
        fit = (
            self.running_mean.shape == self.shape
            and self.background.shape == self.shape[2:]
            and film.particles.shape == (len(film.iterations), *cloud)
        )
        if not fit or len(film.iterations) == 0:
            raise ValueError(
                "The shapes of the painting's arrays do not fit each other: store it as paint "
                "returned it."
            )

    def without_rows(self) -> Painting:
        """Refused: the data of a painting are its picture."""
        raise invalid("save", "data", "True for a painting, whose data are the picture", False)

    def __repr__(self) -> str:
        height, width, channels = self.shape
        solution, times = self.solution, self.solution.history["seconds"]
        seconds = times[-1] if len(times) else 0.0
        m, method = solution.particles.shape[0], type(solution.solver).__name__
        scale = "RGB" if channels == 3 else "greyscale"
        certificate = self.certificate
        work = f"{len(times)} iterations, {seconds:.1f} s, seed {solution.seed}"
        lines = [
            f"Painting of {m} triangles, {width} x {height} pixels, {scale}",
            f"  MSE         {self.mse:.6f} ({self.psnr:.1f} dB)",
            f"  by          {method}, {work}",
            f"  stopped     {solution.status}",
            f"  objective   {solution.problem}",
            f"  optimality  {certificate.verdict}: {certificate.relative_bound:.1%} of what a "
            "plain canvas loses",
        ]
        return "\n".join(lines)


@eqx.filter_jit
def _draw(features: Triangles, particles: Array, weights: Array | None) -> Array:
    return features.picture(particles, weights)


def psnr(mse: float) -> float:
    """Peak signal to noise ratio of a mean squared error, in decibels; the peak is white, 1."""
    return float(-10 * np.log10(max(mse, LEAST_MSE)))
