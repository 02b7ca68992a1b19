"""Where the mass of a Gibbs measure is: a search over the whole guaranteed box, for d <= 2.

Coordinates u are parameters in units of the prior's deviations, theta = deviations * u. The
logarithm of a Gibbs density is then -<tilt, h(theta)> - |u|^2 / 2, up to a constant, where the tilt
w g / temperature is the only thing that depends on the dual and on the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..problems.problem import FiniteSum
from .quadrature import TAIL, in_double
from .uniform import ENLARGEMENTS, no_box

LEAST_BATCH, BATCH_ELEMENTS = 256, 4 * 10**6
"""Smallest number of points that is evaluated at once, and the approximate number of entries of the
feature matrix above which points are evaluated in several batches. Batches are padded to powers of
two, so that few shapes are compiled."""
GRADED = {1: 20_001, 2: 201}
"""Number of lattice points along an axis whose spacing grows with the distance from the origin."""
EVEN, EVEN_WIDTH = {1: 20_001, 2: 241}, 10.0
"""Number of evenly spaced lattice points along an axis, and the largest of them in deviations."""
LATTICE_ELEMENTS = 2 * 10**7
"""Approximate maximum number of entries of the feature matrix on a lattice."""
THINNING = {1: 8, 2: 2}
"""Stride of a thinned lattice, by the number of parameters."""
CANDIDATES = 48
"""Maximum number of local minima of the lattice that are descended from, for one measure."""
WILD = 24
"""Number of further descents that start at random points of the box."""
DESCENT_STEPS = 70
"""Number of rounds of a descent. A step that fails shrinks by SHRINK, one that succeeds doubles."""
SHRINK = 0.4


@dataclass(frozen=True)
class Landscape:
    """The features of a problem at any point, in float64 and in units of the prior's deviations."""

    problem: FiniteSum

    @staticmethod
    def of(problem: FiniteSum) -> Landscape:
        """The landscape of a problem in any precision."""
        return Landscape(in_double(problem))

    @property
    def dim(self) -> int:
        """d."""
        return self.problem.dim

    @cached_property
    def deviations(self) -> np.ndarray:
        """The prior's deviation along each coordinate, of shape (d,)."""
        l2 = np.broadcast_to(np.asarray(self.problem.l2, np.float64), (self.dim,))
        return np.sqrt(self.problem.temperature / (2 * l2))

    @cached_property
    def lattices(self) -> dict[float, Lattice]:
        """Lattices that were evaluated before, by half the width of their box."""
        return {}

    def tilt(self, dual: np.ndarray, temperature: float) -> np.ndarray:
        """w g / temperature as a flat vector."""
        with jax.enable_x64(True):
            weighted = np.asarray(self.problem.weigh(jnp.asarray(dual)), np.float64)
        return weighted.ravel() / temperature

    def matrix(self, u: np.ndarray) -> np.ndarray:
        """The features at points u of shape (N, d): an array of shape (N, n k)."""
        width = int(np.prod(self.problem.features.shape))
        largest = LEAST_BATCH
        while 2 * largest * width <= BATCH_ELEMENTS:
            largest *= 2
        out = np.empty((len(u), width))
        with jax.enable_x64(True):
            for start in range(0, len(u), largest):
                block = u[start : start + largest] * self.deviations
                size = min(largest, max(LEAST_BATCH, 1 << (len(block) - 1).bit_length()))
                padded = np.zeros((size, self.dim))
                padded[: len(block)] = block
                values = np.asarray(_values(self.problem.features, jnp.asarray(padded)))
                out[start : start + largest] = values.reshape(size, width)[: len(block)]
        return out

    def logs(self, u: np.ndarray, tilts: np.ndarray) -> np.ndarray:
        """The log-densities at u, up to constants; `tilts` is (n k, J), the result (N, J)."""
        return -(self.matrix(u) @ tilts) - 0.5 * (u**2).sum(axis=1, keepdims=True)

    def lattice(self, half: float) -> Lattice:
        """The lattice on [-half, half]^d, evaluated once."""
        if half not in self.lattices:
            self.lattices[half] = Lattice.on(self, half)
        return self.lattices[half]

    def box(self, tilts: np.ndarray) -> Lattice:
        """A lattice whose box holds the measures of all tilts.

        Where |u|^2 / 2 exceeds the range of the linear part plus TAIL, a density is negligible.
        Half the width is a power of two: few lattices are then evaluated.
        """
        half = 2.0 ** np.ceil(np.log2(np.sqrt(2 * TAIL)))
        for _ in range(ENLARGEMENTS):
            lattice = self.lattice(half)
            needed = float(np.sqrt(2 * (np.ptp(lattice.matrix @ tilts, axis=0).max() + TAIL)))
            if needed <= half:
                return lattice
            half = 2.0 ** np.ceil(np.log2(needed))
        raise no_box()


@eqx.filter_jit
def _values(features, particles):
    return features.values(particles, features.rows)


@dataclass(frozen=True)
class Lattice:
    """A tensor grid over a box, dense around the origin, and the features on it."""

    half: float
    axis: np.ndarray
    points: np.ndarray
    matrix: np.ndarray

    @staticmethod
    def on(landscape: Landscape, half: float) -> Lattice:
        """Evaluate the features on the lattice."""
        d = landscape.dim
        width = int(np.prod(landscape.problem.features.shape))
        # Fewer points where there are many rows, at least a tenth.
        share = (LATTICE_ELEMENTS / (width * (GRADED[d] + EVEN[d]) ** d)) ** (1 / d)
        graded, even = (int(max(0.1, min(1, share)) * c[d]) | 1 for c in (GRADED, EVEN))
        # sinh is even near the origin and geometric far from it.
        steps = np.linspace(-1, 1, graded) * np.arcsinh(half / 0.1)
        near = np.linspace(-1, 1, even) * min(EVEN_WIDTH, half)
        axis = np.unique(np.concatenate([0.1 * np.sinh(steps), near]))
        axis = axis[np.concatenate([[True], np.diff(axis) > 1e-9 * (1 + np.abs(axis[1:]))])]
        axis = np.clip(axis, -half, half)
        points = np.stack([a.ravel() for a in np.meshgrid(*[axis] * d, indexing="ij")], axis=1)
        return Lattice(half, axis, points, landscape.matrix(points))

    @property
    def volumes(self) -> np.ndarray:
        """The weights of the trapezoidal rule, in units of the prior's deviations."""
        widths = np.gradient(self.axis)
        widths[[0, -1]] /= 2
        return widths if self.points.shape[1] == 1 else np.outer(widths, widths).ravel()

    def logs(self, tilts: np.ndarray) -> np.ndarray:
        """The log-densities at all points, up to constants; `tilts` is (n k, J)."""
        return -(self.matrix @ tilts) - 0.5 * (self.points**2).sum(axis=1, keepdims=True)

    def marks(self, tilts: np.ndarray, best: np.ndarray) -> list[np.ndarray]:
        """For each column of a lattice in the plane, the neighbours of local maxima along it.

        Maxima are left out where the differences between neighbours do not allow for mass.
        """
        size = len(self.axis)
        logs = self.logs(tilts).reshape(size, size, -1)
        change = np.diff(logs, axis=1)
        allowed = logs[:, 1:-1] + np.maximum(np.abs(change[:, :-1]), np.abs(change[:, 1:]))
        local = (change[:, :-1] >= 0) & (change[:, 1:] <= 0) & (allowed > best - TAIL)
        return [
            self.axis[np.concatenate([found, found + 2])]
            for found in (np.flatnonzero(column) for column in np.asarray(local.any(axis=2)))
        ]

    def thinned(self) -> Lattice:
        """The lattice with every THINNING-th point along each axis."""
        d = self.points.shape[1]
        stride = THINNING[d]
        kept = np.zeros((len(self.axis),) * d, bool)
        kept[(slice(None, None, stride),) * d] = True
        flat = kept.ravel()
        return Lattice(self.half, self.axis[::stride], self.points[flat], self.matrix[flat])

    def maxima(self, tilt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The highest local maxima of the log-density on the lattice, and the spacing around each.

        Half of them are the highest by value, half by what the neighbouring differences allow.
        """
        d = self.points.shape[1]
        shape = (len(self.axis),) * d
        logs = self.logs(tilt[:, None]).reshape(shape)
        padded = np.pad(logs, 1, constant_values=-np.inf)
        highest, drop = np.full(shape, -np.inf), np.zeros(shape)
        for shift in np.ndindex(*(3,) * d):
            if shift == (1,) * d:
                continue
            window = tuple(slice(s, s + len(self.axis)) for s in shift)
            highest = np.maximum(highest, padded[window])
            drop = np.maximum(drop, np.where(np.isfinite(padded[window]), logs - padded[window], 0))
        local = np.flatnonzero((logs >= highest).ravel())
        values, allowed = logs.ravel()[local], (logs + drop).ravel()[local]
        half = CANDIDATES // 2
        chosen = np.union1d(np.argsort(-values)[:half], np.argsort(-allowed)[:half])
        index = np.stack(np.unravel_index(local[chosen], shape), axis=1)
        return self.points[local[chosen]], np.gradient(self.axis)[index].max(axis=1)


def modes(
    landscape: Landscape, lattice: Lattice, tilts: np.ndarray, known: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Points near all modes of the measures, and the greatest log-density of each measure.

    Descents start from the local minima of the energy on the lattice, from the points in `known`,
    from the data if they live in the space of the parameters, and from random points.
    """
    rng = np.random.default_rng(seed)
    d = landscape.dim
    rows = np.asarray(landscape.problem.features.rows, np.float64)
    data = rows / landscape.deviations if rows.ndim == 2 and rows.shape[1] == d else known[:0]
    found, best = [], []
    for tilt in tilts.T:
        starts, steps = lattice.maxima(tilt)
        # Random points: the logarithm of the radius is uniform.
        direction = rng.normal(size=(WILD, d))
        radius = np.exp(rng.uniform(np.log(0.1), np.log(lattice.half), size=(WILD, 1)))
        wild = radius * direction / np.linalg.norm(direction, axis=1, keepdims=True)
        others = np.concatenate([known, data[:CANDIDATES], wild])
        starts = np.concatenate([starts, others])
        steps = np.concatenate([steps, 0.1 * (1 + np.linalg.norm(others, axis=1))])
        ends, values = _descend(landscape, tilt, starts, steps, rng)
        inside = (np.abs(ends) <= lattice.half).all(axis=1)
        ends, values = ends[inside], values[inside]
        found.append(ends[values > values.max() - TAIL])
        best.append(values.max())
    return np.concatenate(found), np.array(best)


def _descend(landscape, tilt, points, steps, rng) -> tuple[np.ndarray, np.ndarray]:
    """Pattern search from many points at once; it needs no derivative and so passes kinks.

    Each round tries the axes, the radial direction, along which the features of homogeneous
    neurons have their kinks, a random direction and the last successful one, all with both signs.
    """
    points, steps = points.copy(), steps.copy()
    count, d = points.shape
    column = tilt[:, None]
    values = landscape.logs(points, column)[:, 0]
    last = np.zeros((count, 1, d))
    for _ in range(DESCENT_STEPS):
        axes = np.broadcast_to(np.eye(d), (count, d, d))
        if d == 1:
            ways = axes
        else:
            radial = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-300)
            angle = rng.uniform(0, np.pi, size=count)
            random = np.stack([np.cos(angle), np.sin(angle)], axis=1)
            ways = np.concatenate([axes, radial[:, None], random[:, None], last], axis=1)
        ways = np.concatenate([ways, -ways], axis=1)
        trials = points[:, None] + steps[:, None, None] * ways
        logs = landscape.logs(trials.reshape(-1, d), column).reshape(count, -1)
        choice = logs.argmax(axis=1)
        rows = np.arange(count)
        better = logs[rows, choice] > values
        points = np.where(better[:, None], trials[rows, choice], points)
        values = np.where(better, logs[rows, choice], values)
        last = np.where(better[:, None, None], ways[rows, choice][:, None], last)
        steps = np.where(better, 2 * steps, SHRINK * steps)
    return points, values
