"""Gibbs measures on a grid: exact integrals, in float64, for problems with one or two parameters."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..base.arguments import invalid, whole
from ..problems.losses.base import row_dot
from ..problems.problem import FiniteSum

Axes = tuple[np.ndarray, ...]

TAIL = 40.0
"""What is cut off the box has a density below exp(-TAIL) times the largest."""
MATRIX_ELEMENTS = 10**8
"""The feature matrix on the grid may have this many entries (800 MB)."""


def in_double(problem: FiniteSum) -> FiniteSum:
    """The same problem with all its arrays in float64. To be used with `jax.enable_x64(True)` in force."""
    with jax.enable_x64(True):
        return jax.tree.map(
            lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x, problem
        )


@dataclass(frozen=True)
class Quadrature:
    """A problem on a uniform grid. Densities are arrays of shape (G,) that sum to one when multiplied by `cell`.

    The trapezoidal rule on a uniform grid converges faster than any power of the spacing for densities that are smooth
    and vanish at the border, as these do.
    """

    problem: FiniteSum
    axes: Axes
    points: np.ndarray
    """(G, d), all grid points."""
    matrix: np.ndarray
    """(G, n) or (G, n k), the features at all grid points."""

    @staticmethod
    def on(problem: FiniteSum, axes: Axes) -> Quadrature:
        """Lay the grid out and evaluate the features on it."""
        problem = in_double(problem)
        points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        width = int(np.prod(problem.features.shape))
        with jax.enable_x64(True):
            blocks = np.array_split(points, max(1, len(points) * width // 10**7))
            values = [
                np.asarray(_values(problem.features, jnp.asarray(b))).reshape(len(b), width)
                for b in blocks
            ]
        return Quadrature(problem, axes, points, np.concatenate(values))

    @property
    def cell(self) -> float:
        """The volume of a grid cell."""
        return float(np.prod([a[1] - a[0] for a in self.axes]))

    @property
    def penalty(self) -> np.ndarray:
        """l2 |theta|^2 at the grid points."""
        return (np.asarray(self.problem.l2) * self.points**2).sum(axis=1)

    def energy(self, dual: np.ndarray) -> np.ndarray:
        """U_g at the grid points."""
        return self._linear(dual) + self.penalty

    def gibbs(self, dual: np.ndarray) -> tuple[np.ndarray, float]:
        """The density q_g and the logarithm of Z_g, the integral of exp(-U_g / temperature)."""
        return normalise(-self.energy(dual) / self.problem.temperature, self.cell)

    def log_gibbs(self, dual: np.ndarray) -> np.ndarray:
        """log q_g, finite everywhere."""
        return -self.energy(dual) / self.problem.temperature - self.gibbs(dual)[1]

    @property
    def prior(self) -> np.ndarray:
        """The density of nu = q_0."""
        return normalise(-self.penalty / self.problem.temperature, self.cell)[0]

    def moments(self, density: np.ndarray) -> np.ndarray:
        """E_mu[h]."""
        return ((density * self.cell) @ self.matrix).reshape(self.problem.features.shape)

    def covariance(self, density: np.ndarray) -> np.ndarray:
        """Cov_mu(h), of shape (n k, n k)."""
        mass = density * self.cell
        mean = mass @ self.matrix
        centred = (self.matrix - mean) * np.sqrt(mass)[:, None]
        return centred.T @ centred

    def primal(self, density: np.ndarray) -> float:
        """L(mu)."""
        mass = density * self.cell
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
        """W loss''(H): (n,), or (n, k, k)."""
        with jax.enable_x64(True):
            return np.asarray(self.problem.weigh(self.problem.loss.curvature(jnp.asarray(moments))))

    def dual_at(self, moments: np.ndarray) -> float:
        """D(g) at g = loss'(H), where conj(g) = <g, H> - loss(H) needs no conjugate."""
        with jax.enable_x64(True):
            pairing = float(
                self.problem.weights
                @ row_dot(self.problem.slope(jnp.asarray(moments)), jnp.asarray(moments))
            )
        return (
            self.loss(moments)
            - pairing
            - self.problem.temperature * self.gibbs(self.slope(moments))[1]
        )

    def dual(self, dual: np.ndarray) -> float:
        """D(g) at any g, by the loss's conjugate."""
        with jax.enable_x64(True):
            conjugate = float(self.problem.weights @ self.problem.loss.conjugate(jnp.asarray(dual)))
        return -conjugate - self.problem.temperature * self.gibbs(dual)[1]

    def cut(self, dual: np.ndarray) -> bool:
        """Whether the box cuts mass off q_g: its density on the border exceeds exp(-TAIL) times the largest."""
        log_density = -self.energy(dual) / self.problem.temperature
        shape = tuple(len(a) for a in self.axes)
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


def normalise(log_density: np.ndarray, cell: float) -> tuple[np.ndarray, float]:
    """A density from its logarithm up to a constant, and the logarithm of its integral."""
    largest = float(log_density.max())
    density = np.exp(log_density - largest)
    total = float(density.sum()) * cell
    return density / total, largest + float(np.log(total))


def kl(density: np.ndarray, log_reference: np.ndarray, cell: float) -> float:
    """KL(density | reference) on a common grid, from the reference's logarithm, which does not underflow."""
    inside = density > 0
    return float((density[inside] * cell) @ (np.log(density[inside]) - log_reference[inside]))


def check_dimension(problem: FiniteSum, owner: str) -> None:
    """Refuse problems that no grid can hold."""
    if problem.dim > 2:
        raise invalid(
            owner, "problem", "a problem with one or two parameters (d <= 2)", f"d = {problem.dim}"
        )


def points_per_axis(problem: FiniteSum, points: int | None) -> int:
    """The number of grid points along an axis: the user's, or 4001 in one dimension and 301 in two."""
    size = (
        (4001 if problem.dim == 1 else 301)
        if points is None
        else whole("grid.solve", "points", points, least=5)
    )
    elements = size**problem.dim * int(np.prod(problem.features.shape))
    if elements > MATRIX_ELEMENTS:
        raise ValueError(
            f"{size} points per axis and {problem.features.shape[0]} rows make a feature matrix of {elements:.3g} numbers, "
            f"more than {MATRIX_ELEMENTS:.3g}. Ask for fewer 'points'."
        )
    return size


def guaranteed_box(problem: FiniteSum, points: int, duals_of) -> Quadrature:
    """A box that loses no mass of q_g for any of the duals that `duals_of(quadrature)` returns.

    Where l2 |theta|^2 exceeds the range of the linear part plus TAIL temperatures, the density is negligible; for
    unbounded features that range grows with the box, so the box grows until it holds (linear growth loses to l2).
    """
    weakest = float(np.min(np.asarray(problem.l2)))
    half = float(np.sqrt(TAIL * problem.temperature / weakest))
    for _ in range(30):
        quadrature = Quadrature.on(
            problem, tuple(np.linspace(-half, half, points) for _ in range(problem.dim))
        )
        spread = max(float(np.ptp(quadrature._linear(g))) for g in duals_of(quadrature))
        needed = float(np.sqrt((spread + TAIL * problem.temperature) / weakest))
        if needed <= half * (1 + 1e-9):
            return quadrature
        half = 1.02 * needed
    raise ValueError(
        "No finite box holds the measure: the features grow too fast for the l2 penalty."
    )


def tightened(quadrature: Quadrature, points: int, duals: list[np.ndarray]) -> Quadrature:
    """The same problem on the smallest box that still holds the prior and all the given Gibbs measures, so that the
    points stand where the mass is.
    """
    problem = quadrature.problem
    keep = quadrature.penalty <= TAIL * problem.temperature
    for dual in duals:
        energy = quadrature.energy(dual)
        keep |= energy - energy.min() <= (TAIL + 5) * problem.temperature
    axes = []
    for j, axis in enumerate(quadrature.axes):
        inside = quadrature.points[keep, j]
        margin = 2 * (axis[1] - axis[0])
        axes.append(np.linspace(inside.min() - margin, inside.max() + margin, points))
    return Quadrature.on(problem, tuple(axes))
