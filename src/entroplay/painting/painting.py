"""The result of `paint`: triangles that make a picture."""

from __future__ import annotations

import io
from os import PathLike
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..base.arguments import invalid, whole
from ..problems.features.triangles import Triangles
from ..runs.solution import Solution

FilePath = str | PathLike[str]


class ColouredTriangles(NamedTuple):
    """All triangles of a painting. What each adds where it lies is signed, and their order does not matter."""

    vertices: np.ndarray
    """(m, 3, 2): x to the right and y down, in sides of the canvas: (0, 0) is its upper left corner, (1, 1) its lower right."""
    colours: np.ndarray
    """(m, channels), on the scale on which 0 is black and 1 is white."""


class Film(eqx.Module):
    """How the painting came about: the triangles after some of the iterations."""

    iterations: np.ndarray
    particles: np.ndarray
    """(frames, m, d)."""


class Painting(eqx.Module):
    """A picture as the mean of m triangles over a plain background.

    Attributes:
        solution: the particles and how they were found, see `Solution`. Its moments are the picture less the background.
        background: (channels,), the colour of the canvas.
        running_mean: (height, width, channels), the mean over the last iterations' pictures, each weighing less the older it
            is; for EFP it is the method's own H. Less the background, not clipped.
        mean_rate: the weight of the newest picture in it.
        film: snapshots of the triangles.
    """

    solution: Solution
    background: Float[np.ndarray, "k"]
    running_mean: Float[np.ndarray, "height width k"]
    mean_rate: float
    film: Film

    @property
    def features(self) -> Triangles:
        features = self.solution.problem.features
        if not isinstance(features, Triangles):
            raise invalid("Painting", "solution", "one of a problem with Triangles", features)
        return features

    @property
    def target(self) -> np.ndarray:
        """(height, width, channels): what was painted, as it was fitted."""
        loss: object = self.solution.problem.loss
        return np.asarray(getattr(loss, "y")).reshape(self.shape) + self.background  # noqa: B009

    @property
    def shape(self) -> tuple[int, int, int]:
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
        """Vertices and colours."""
        particles, features = self.solution.particles, self.features
        vertices = 0.5 + features.spread * np.asarray(particles[:, :6]).reshape(-1, 3, 2)
        return ColouredTriangles(
            vertices, np.asarray(features.colours(particles)) / particles.shape[0]
        )

    def render(self, size: object = None) -> np.ndarray:
        """The picture at any resolution, (height, width, channels) in [0, 1]: triangles are vectors.

        `size` is (height, width), or the length of the longer side; by default the size of the fit.
        """
        return self._render(self.solution.particles, size)

    def render_mean(self, size: object = None) -> np.ndarray:
        """The running mean at any resolution: at that of the fit `mean_picture` itself, else the film's triangles, each
        snapshot in place of the iterations since the one before.
        """
        if size is None or self._size(size) == self.features.size:
            return self.mean_picture
        last = int(self.film.iterations[-1])
        left = (1 - self.mean_rate) ** np.maximum(last - self.film.iterations, 0.0)
        weights = np.diff(left, prepend=0.0)
        kept = weights > 1e-4
        m = self.film.particles.shape[1]
        shares = np.repeat(weights[kept] / weights[kept].sum() / m, m)
        # The mean of pictures is one picture of all their triangles.
        return self._render(self.film.particles[kept].reshape(len(shares), -1), size, shares)

    def _render(
        self, particles: object, size: object = None, shares: np.ndarray | None = None
    ) -> np.ndarray:
        problem = self.solution.problem
        with jax.enable_x64(problem.dtype == jnp.float64):
            features = self.features if size is None else self.features.at(self._size(size))
            weights = None if shares is None else jnp.asarray(shares, problem.dtype)
            picture = np.asarray(_draw(features, jnp.asarray(particles), weights)) + self.background
        return np.clip(picture, 0, 1)

    def _size(self, size: object) -> tuple[int, int]:
        if isinstance(size, tuple | list | np.ndarray):
            return self.features.at(size).size  # type: ignore[return-value]
        longer = whole("render", "size", size)
        height, width = self.features.size
        return max(1, round(longer * height / max(height, width))), max(
            1, round(longer * width / max(height, width))
        )

    def frame(self, number: int, size: object = None) -> np.ndarray:
        """A picture of the film."""
        return self._render(self.film.particles[number], size)

    def save(self, path: FilePath, *, size: object = None) -> None:
        """Write the painting, as what the name's ending says: .png (or .mean.png for the running mean), .jpg, .webp, .svg,
        .gif, .mp4, .webm, .jsonl (a line per snapshot), or .safetensors, which `load` and `paint(start=)` read.
        """
        from .export import write

        write(self, path, size=size)

    def _repr_png_(self) -> bytes:
        from .export import to_image

        buffer = io.BytesIO()
        to_image(self.picture).save(buffer, "PNG")
        return buffer.getvalue()

    def __repr__(self) -> str:
        height, width, channels = self.shape
        solution, times = self.solution, self.solution.history["seconds"]
        seconds = times[-1] if len(times) else 0.0
        m = solution.particles.shape[0]
        lines = [
            f"Painting of {m} triangles, {width} x {height} pixels, {'RGB' if channels == 3 else 'greyscale'}",
            f"  MSE         {self.mse:.6f} ({self.psnr:.1f} dB)",
            f"  by          {type(solution.solver).__name__}, {len(times)} iterations, {seconds:.1f} s, seed {solution.seed}",
            f"  stopped     {solution.status}",
            "  optimality  not verified: at this temperature the chains do not mix, so no bound is known",
        ]
        return "\n".join(lines)


@eqx.filter_jit
def _draw(features: Triangles, particles: Array, weights: Array | None) -> Array:
    return features.picture(particles, weights)


def psnr(mse: float) -> float:
    """Decibels below the square of white."""
    return float(-10 * np.log10(max(mse, 1e-12)))
