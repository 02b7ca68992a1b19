"""What all forms of Newton's linear system share: see `newton_system`."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..base.arguments import per_row
from ..problems.features.base import Moments
from ..problems.problem import FiniteSum
from .cloud import SeenCloud, covariance_product

JITTER, RISE, MOST_RIDGES = 1e-7, 16.0, 7
"""What is added to the diagonal of a matrix before its factorisation, relative to its mean. Single
precision cannot tell it from zero; without it rounding could make the matrix indefinite. Where that
is not enough, because the weights are very uneven, it rises by the second factor, at most so many
times: Newton's steps are then shorter, but they still climb."""

FLAT = 1e-6
"""Curvatures below this fraction of the largest one count as none."""


class NewtonSystem(eqx.Module):
    """(I + beta J) D = r at the moments H, for a cloud with weights p that sum to one."""

    trace_is_cheaper: ClassVar[bool] = False
    """Whether the trace of the influence matrix costs less than its diagonal blocks."""

    problem: FiniteSum
    cloud: SeenCloud
    moments: Moments
    strength: Float[Array, ""]
    """beta / temperature, which multiplies the covariance."""
    weights: Float[Array, "m"]
    root: Float[Array, "n *kk"]
    """R with R R' = loss''(H), row by row."""

    @abstractmethod
    def halved(self, right: Moments) -> tuple[Moments, Array]:
        """y with (I + K) y = right, and the number of products it took."""

    @abstractmethod
    def influence(self) -> tuple[Float[Array, ""], Float[Array, "n *kk"]]:
        """The trace of S, and its diagonal blocks."""

    def degrees(self) -> Float[Array, ""]:
        """The trace of S alone, perhaps less precisely."""
        return self.influence()[0]

    def solve(self, right: Moments) -> tuple[Moments, Moments, Array]:
        """D for the right-hand side r; y = Z' D; and the number of products it took.

        D = r - strength Cov Z y holds in all rows, but where Newton's matrix makes D smaller than r
        by orders of magnitude the difference cancels, and the next residual is that of rounding.
        Z' D = y holds without a difference, in the rows and directions in which the loss is curved.
        """
        y, count = self.halved(self.times_transpose(right))
        # Cov Z y = Cov W (R x) with x = y / sqrt(w); rows without weight have y = 0.
        x = y / per_row(nonzero(jnp.sqrt(self.problem.weights)), y)
        image = covariance_product(self.problem, self.cloud, root_times(self.root, x), self.weights)
        direction = right - self.strength * image
        missing = x - root_transpose_times(self.root, direction)
        exact = direction + _lifted(self.root, missing)
        weighted = per_row(self.problem.weights > 0, y)
        return jnp.where(weighted, exact, direction), y, count + 2

    def times(self, y: Moments) -> Moments:
        """Z y, row by row."""
        return per_row(jnp.sqrt(self.problem.weights), y) * root_times(self.root, y)

    def times_transpose(self, x: Moments) -> Moments:
        """Z' x, row by row."""
        return per_row(jnp.sqrt(self.problem.weights), x) * root_transpose_times(self.root, x)


def _lifted(root: Float[Array, "n *kk"], x: Moments) -> Moments:
    """(R R')^{-1} R x, row by row, or the smallest such vector where R R' is singular."""
    if x.ndim == 1:
        square = root**2
        return root * x / (square + nonzero(FLAT * jnp.max(square)))
    square = root @ jnp.swapaxes(root, 1, 2)
    largest = jnp.max(jnp.trace(square, axis1=1, axis2=2))
    ridge = nonzero(FLAT * largest) * jnp.eye(x.shape[1], dtype=x.dtype)[None]
    return jnp.linalg.solve(square + ridge, root_times(root, x)[:, :, None])[:, :, 0]


class Factored(NamedTuple):
    """A Cholesky factorisation."""

    factor: Float[Array, "q q"]
    """Lower triangular."""
    ridge: Float[Array, ""]
    """What was added to the diagonal."""


def cholesky_factor(matrix: Float[Array, "q q"], error: Float[Array, ""] | float = 0.0) -> Factored:
    """The factor of a matrix that is positive definite up to rounding, which is at most `error`."""
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    least = jnp.maximum(JITTER * jnp.trace(matrix) / matrix.shape[0], error)

    def attempt(carry: tuple[Factored, Array]) -> tuple[Factored, Array]:
        last, tries = carry
        ridge = jnp.maximum(RISE * last.ridge, least)
        return Factored(jnp.linalg.cholesky(matrix + ridge * identity), ridge), tries + 1

    def failed(carry: tuple[Factored, Array]) -> Array:
        # A failed factorisation is not a number anywhere.
        last, tries = carry
        return ~jnp.isfinite(last.factor[-1, -1]) & (tries <= MOST_RIDGES)

    begin = Factored(jnp.full_like(matrix, jnp.nan), jnp.zeros_like(least))
    return jax.lax.while_loop(failed, attempt, (begin, jnp.zeros((), jnp.int32)))[0]


def nonzero(x: Array) -> Array:
    """x, with ones in the place of zeros."""
    return jnp.where(x > 0, x, 1)


def root_times(root: Array, x: Moments) -> Moments:
    """R x, row by row."""
    return root * x if x.ndim == 1 else jnp.einsum("nkl,nl->nk", root, x)


def root_transpose_times(root: Array, x: Moments) -> Moments:
    """R' x, row by row."""
    return root * x if x.ndim == 1 else jnp.einsum("nkl,nk->nl", root, x)
