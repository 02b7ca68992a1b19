r"""Newton's system over particles whose features are never formed as one scaled matrix.

With B = sqrt(beta p / temperature) (h - E_p[h]) Z it is solved by

    (I + K)^{-1} = I - B'(I + B B')^{-1} B,

and products with B are potentials and averages of the cloud.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..base.arguments import per_row
from ..problems.features.base import Moments
from .cloud import centred
from .newton_base import NewtonSystem, cholesky_factor

BLOCK = 4096
"""Number of rows whose influence is computed at once."""


class FactoredSketch(NewtonSystem):
    """The matrix I + B B' over the particles of a cloud that keeps its features as two factors.

    The columns of B are computed one channel at a time.
    """

    mean: Moments
    """E_p[h]."""
    factor: Float[Array, "m m"]

    def __init__(self, problem, cloud, moments, strength, weights, root):
        self.problem, self.cloud, self.moments = problem, cloud, moments
        self.strength, self.weights, self.root = strength, weights, root
        self.mean = cloud.average(weights)
        self.factor = cholesky_factor(self._matrix())

    def _matrix(self) -> Float[Array, "m m"]:
        """I + B B'."""

        def add(channel: Array, gram: Array) -> Array:
            columns = self._columns(channel)
            return gram + columns @ columns.T

        identity = jnp.eye(self.weights.shape[0], dtype=self.moments.dtype)
        return jax.lax.fori_loop(0, self.moments.shape[1], add, identity)

    @property
    def scale(self) -> Float[Array, "m"]:
        """The root of beta p / temperature."""
        return jnp.sqrt(self.strength * jnp.maximum(self.weights, 0))

    @property
    def _roots(self) -> Float[Array, "n k k"]:
        """Z, one block per row."""
        return per_row(jnp.sqrt(self.problem.weights), self.root) * self.root

    def _columns(self, channel: Array) -> Float[Array, "m n"]:
        """The columns of B that belong to one channel of all rows."""
        u, v = self.cloud.matrix, self.cloud.outputs
        assert u is not None
        assert v is not None
        root = self._roots[:, :, channel]
        return self.scale[:, None] * (u * (v @ root.T) - jnp.sum(self.mean * root, axis=1)[None])

    def _times(self, y: Moments) -> Float[Array, "m"]:
        """B y."""
        potential = self.cloud.potential(self.times(y))
        return self.scale * (potential - self.weights @ potential)

    def _times_transpose(self, x: Float[Array, "m"]) -> Moments:
        """B' x."""
        scaled = self.scale * x
        return self.times_transpose(self.cloud.average(scaled) - jnp.sum(scaled) * self.mean)

    def halved(self, right: Moments) -> tuple[Moments, Array]:
        solved = cho_solve((self.factor, True), self._times(right))
        return right - self._times_transpose(solved), jnp.ones((), jnp.int32)

    def influence(self) -> tuple[Float[Array, ""], Float[Array, "n *kk"]]:
        # S = B'X with X = (I + B B')^{-1} B, channel by channel of X.
        u, v, roots = self.cloud.matrix, self.cloud.outputs, self._roots
        assert u is not None
        assert v is not None

        # A product with the inverse takes half the time of two triangular solves.
        inverse = cho_solve((self.factor, True), jnp.eye(v.shape[0], dtype=v.dtype))

        def block(channel: Array) -> Float[Array, "n k"]:
            x = self.scale[:, None] * (inverse @ self._columns(channel))
            products = (u * x).T @ v - jnp.sum(x, axis=0)[:, None] * self.mean
            return jnp.einsum("nck,nc->nk", roots, products)

        blocks = jax.lax.map(block, jnp.arange(self.moments.shape[1]))
        blocks = jnp.moveaxis(blocks, 0, 2)
        blocks = (blocks + jnp.swapaxes(blocks, 1, 2)) / 2
        return jnp.trace(blocks, axis1=1, axis2=2).sum(), blocks


class InnerProductSystem(FactoredSketch):
    """The same matrix for a quadratic loss, from inner products that the whole iteration shares.

    A Newton step then costs a factorisation over the particles and a few passes over the kept
    features, instead of a product of matrices over particles and rows.
    """

    trace_is_cheaper: ClassVar[bool] = True

    def __init__(self, problem, cloud, moments, strength, weights, root):
        super().__init__(problem, cloud, moments, strength, weights, root)

    def _matrix(self) -> Float[Array, "m m"]:
        inner = self.cloud.inner
        assert inner is not None
        # The squared loss has the same curvature in all rows and channels.
        curvature = jnp.ravel(self.root)[0] ** 2
        matrix = curvature * self.scale[:, None] * centred(inner, self.weights) * self.scale[None]
        return matrix + jnp.eye(self.weights.shape[0], dtype=matrix.dtype)

    def halved(self, right: Moments) -> tuple[Moments, Array]:
        # Along the large eigenvalues of K the difference cancels: y is smaller than r by orders of
        # magnitude there. A step of iterative refinement restores its digits.
        y, count = super().halved(right)
        rest = right - y - self._times_transpose(self._times(y))
        return y + super().halved(rest)[0], count

    def degrees(self) -> Float[Array, ""]:
        # tr S = m - tr (I + B B')^{-1}.
        m = self.weights.shape[0]
        inverse = solve_triangular(self.factor, jnp.eye(m, dtype=self.factor.dtype), lower=True)
        return jnp.sum(1 - jnp.sum(inverse**2, axis=0))

    def influence(self) -> tuple[Float[Array, ""], Float[Array, "n *kk"]]:
        if self.cloud.outputs is not None:
            return super().influence()
        n = self.mean.shape[0]
        length = min(n, BLOCK)

        def block(i: Array, own: Array) -> Array:
            # The last block begins earlier, so as to be as long as the others.
            first = jnp.minimum(i * length, n - length)
            columns = solve_triangular(self.factor, self._rows(first, length), lower=True)
            return jax.lax.dynamic_update_slice_in_dim(own, jnp.sum(columns**2, 0), first, 0)

        own = jax.lax.fori_loop(0, -(-n // length), block, jnp.zeros_like(self.mean))
        return jnp.sum(own), own

    def _rows(self, first: Array, length: int) -> Float[Array, "m q"]:
        """The columns of B that belong to some rows, which come one after the other."""

        def cut(array: Array, axis: int = 0) -> Array:
            return jax.lax.dynamic_slice_in_dim(array, first, length, axis)

        assert self.cloud.matrix is not None
        root = cut(jnp.sqrt(self.problem.weights) * self.root)
        deviation = cut(self.cloud.matrix, 1) - cut(self.mean)[None]
        return self.scale[:, None] * deviation * root[None]
