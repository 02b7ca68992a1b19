"""Gibbs measures on a grid: exact integrals in float64, for problems with one or two parameters.

Symbols are those of the paper: L of eq. (6), D of eq. (11), nu below eq. (12).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..problems.losses.base import row_dot
from ..problems.problem import FiniteSum

Axes = tuple[np.ndarray, ...]

TAIL = 40.0
"""Outside the box the density is below exp(-TAIL) times its maximum."""
GRID_ELEMENTS = 10**8
"""Maximum number of entries of the feature matrix on the grid (800 MB)."""
BLOCK_ELEMENTS = 10**7
"""Approximate number of entries of the feature matrix that are evaluated at once."""


class UnresolvedError(ArithmeticError):
    """A measure is too narrow for the grid, or its integrals are less exact than promised."""


def in_double(problem: FiniteSum) -> FiniteSum:
    """The same problem with all its arrays in float64, for use within `jax.enable_x64(True)`."""
    with jax.enable_x64(True):
        return jax.tree.map(
            lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x, problem
        )


@dataclass(frozen=True)
class Quadrature:
    """A problem on a uniform grid, or on one that follows the mass of narrow measures.

    Densities are arrays of shape (G,) that sum to one when multiplied by `cell`. The trapezoidal
    rule on a uniform grid converges faster than any power of the spacing for densities that are
    smooth and vanish at the border, as these do. A grid that follows the mass has `volumes`, one
    per point; in two dimensions its points lie on lines and are no product of the axes.
    """

    problem: FiniteSum
    axes: Axes
    points: np.ndarray
    """All grid points, of shape (G, d)."""
    matrix: np.ndarray
    """The features at all grid points, of shape (G, n) or (G, n k)."""
    volumes: np.ndarray | None = None
    """The weight of each point, of shape (G,); None on a uniform grid."""

    @staticmethod
    def on(problem: FiniteSum, axes: Axes) -> Quadrature:
        """The problem on the grid with these axes; evaluates the features on it."""
        problem = in_double(problem)
        points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        width = int(np.prod(problem.features.shape))
        # In blocks, which bounds the memory of the feature map's intermediate arrays.
        with jax.enable_x64(True):
            blocks = np.array_split(points, max(1, len(points) * width // BLOCK_ELEMENTS))
            values = [
                np.asarray(_values(problem.features, jnp.asarray(b))).reshape(len(b), width)
                for b in blocks
            ]
        return Quadrature(problem, axes, points, np.concatenate(values))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a density: that of the product of the axes, or (G,) if there is none."""
        product = tuple(len(a) for a in self.axes)
        return product if int(np.prod(product)) == len(self.points) else (len(self.points),)

    @property
    def cell(self) -> float | np.ndarray:
        """The volume of a grid cell, or one volume per point, of shape (G,)."""
        if self.volumes is not None:
            return self.volumes
        return float(np.prod([a[1] - a[0] for a in self.axes]))

    @cached_property
    def penalty(self) -> np.ndarray:
        """l2 |theta|^2 at the grid points."""
        return (np.asarray(self.problem.l2) * self.points**2).sum(axis=1)

    def energy(self, dual: np.ndarray) -> np.ndarray:
        """U_g at the grid points."""
        return self._linear(dual) + self.penalty

    def gibbs(self, dual: np.ndarray) -> tuple[np.ndarray, float]:
        """The density q_g and log Z_g, where Z_g integrates exp(-U_g / temperature).

        With g = loss'(E_mu[h]) the density is mu-hat of eq. (5).
        """
        return normalise(-self.energy(dual) / self.problem.temperature, self.cell)

    def log_gibbs(self, dual: np.ndarray) -> np.ndarray:
        """log q_g, finite everywhere."""
        return -self.energy(dual) / self.problem.temperature - self.gibbs(dual)[1]

    @property
    def prior(self) -> np.ndarray:
        """The density of the prior nu = q_0."""
        return normalise(-self.penalty / self.problem.temperature, self.cell)[0]

    def moments(self, density: np.ndarray) -> np.ndarray:
        """E_mu[h]."""
        return ((density * self.cell) @ self.matrix).reshape(self.problem.features.shape)

    def covariance(self, density: np.ndarray) -> np.ndarray:
        """Cov_mu(h), of shape (n k, n k)."""
        mass = density * self.cell
        mean = mass @ self.matrix
        matrix = self.matrix
        if self.volumes is not None:  # at low temperatures most of the mass underflows to zero
            inside = mass > 0
            matrix, mass = matrix[inside], mass[inside]
        centred = (matrix - mean) * np.sqrt(mass)[:, None]
        return centred.T @ centred

    def primal(self, density: np.ndarray) -> float:
        """L(mu), eq. (6)."""
        mass = density * self.cell
        # Ent(mu) = E[log mu], with 0 log 0 = 0 where the density underflows.
        entropy = float(mass @ np.log(np.where(density > 0, density, 1)))
        return (
            self.loss(self.moments(density))
            + float(mass @ self.penalty)
            + self.problem.temperature * entropy
        )

    def loss(self, moments: np.ndarray) -> float:
        """F_0 = sum_i w_i loss_i(H_i)."""
        with jax.enable_x64(True):
            return float(self.problem.empirical_loss(jnp.asarray(moments)))

    def slope(self, moments: np.ndarray) -> np.ndarray:
        """loss'(H)."""
        with jax.enable_x64(True):
            return np.asarray(self.problem.slope(jnp.asarray(moments)))

    def retract(self, moments: np.ndarray, step: np.ndarray) -> np.ndarray:
        """moments + step, kept inside the loss's domain."""
        with jax.enable_x64(True):
            return np.asarray(self.problem.loss.retract(jnp.asarray(moments), jnp.asarray(step)))

    def weighted_curvature(self, moments: np.ndarray) -> np.ndarray:
        """W loss''(H), of shape (n,) or (n, k, k)."""
        with jax.enable_x64(True):
            return np.asarray(self.problem.weigh(self.problem.loss.curvature(jnp.asarray(moments))))

    def dual_at(self, moments: np.ndarray) -> float:
        """D(g), eq. (11), at g = loss'(H), where conj(g) = <g, H> - loss(H) needs no conjugate."""
        with jax.enable_x64(True):
            h = jnp.asarray(moments)
            pairing = float(self.problem.weights @ row_dot(self.problem.slope(h), h))
        log_partition = self.gibbs(self.slope(moments))[1]
        return self.loss(moments) - pairing - self.problem.temperature * log_partition

    def dual(self, dual: np.ndarray) -> float:
        """D(g), eq. (11), at any g in the domain of the loss's conjugate."""
        with jax.enable_x64(True):
            conjugate = float(self.problem.weights @ self.problem.loss.conjugate(jnp.asarray(dual)))
        return -conjugate - self.problem.temperature * self.gibbs(dual)[1]

    def cut(self, dual: np.ndarray) -> bool:
        """Whether the box cuts mass off q_g.

        It does if the density on its border exceeds exp(-TAIL) times the maximum.
        """
        log_density = -self.energy(dual) / self.problem.temperature
        shape = tuple(len(a) for a in self.axes)
        # All points except those inside along every axis.
        border = np.ones(shape, bool)
        border[tuple(slice(1, -1) for _ in shape)] = False
        return bool(log_density[border.ravel()].max() > log_density.max() - TAIL)

    def _linear(self, dual: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            weighted = np.asarray(self.problem.weigh(jnp.asarray(dual)))
        return self.matrix @ weighted.ravel()


@eqx.filter_jit
def _values(features, particles):
    return features.values(particles, features.rows)


def normalise(log_density: np.ndarray, cell: float | np.ndarray) -> tuple[np.ndarray, float]:
    """A density from its logarithm up to a constant, and the logarithm of the integral before."""
    # The maximum is taken out first, which prevents overflow.
    largest = float(log_density.max())
    density = np.exp(log_density - largest)
    single = not isinstance(cell, np.ndarray)
    total = float(density.sum()) * cell if single else float(density @ cell)
    return density / total, largest + float(np.log(total))


def kl(density: np.ndarray, log_reference: np.ndarray, cell: float | np.ndarray) -> float:
    """KL(density | reference) on one grid; the reference's logarithm does not underflow."""
    inside = density > 0
    mass = (density * cell)[inside]
    return float(mass @ (np.log(density[inside]) - log_reference[inside]))
