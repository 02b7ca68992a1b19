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
from .linear import conjugate_gradients
from .newton_base import NewtonSystem, cholesky_factor

BLOCK = 4096
"""Number of rows whose influence is computed at once."""
REFINEMENTS, REFINED = 8, 0.01
"""Maximum number of conjugate gradient steps after a factorisation, and their tolerance relative to
the solution. One or two are enough, unless single precision is nearly exhausted."""


class FactoredSketch(NewtonSystem):
    """The matrix I + B B' over the particles of a cloud that keeps its features as two factors.

    The columns of B are computed one channel at a time.
    """

    rounding: ClassVar[float] = 0.0
    """The matrix's rounding error, in units of the precision times its largest entry."""

    mean: Moments
    """E_p[h]."""
    factor: Float[Array, "m m"]
    ridge: Float[Array, ""]
    """What the factor has beyond the identity: (I + ridge + B B')^{-1} damps the solution."""

    def __init__(self, problem, cloud, moments, strength, weights, root):
        self.problem, self.cloud, self.moments = problem, cloud, moments
        self.strength, self.weights, self.root = strength, weights, root
        self.mean = cloud.average(weights)
        matrix = self._matrix()
        error = self.rounding * jnp.finfo(matrix.dtype).eps * jnp.max(jnp.diag(matrix))
        self.factor, self.ridge = cholesky_factor(matrix, error)

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
        # With a large ridge (I + ridge + K)^{-1}, which is shorter than the solution everywhere.
        y = (right - self._times_transpose(solved)) / (1 + self.ridge)
        return y, jnp.ones((), jnp.int32)

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
    # Inner products are differences from their means, which a few heavy particles dominate.
    rounding: ClassVar[float] = 32.0

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
        # magnitude there. Products with B keep their digits, and a few of them restore those of y.
        def operator(y: Moments) -> Moments:
            return y + self._times_transpose(self._times(y))

        return conjugate_gradients(
            operator,
            right,
            jnp.ones_like(self.problem.weights),
            iterations=REFINEMENTS,
            tolerance=REFINED,
            of_solution=True,
            preconditioner=lambda r: FactoredSketch.halved(self, r)[0],
        )

    def degrees(self) -> Float[Array, ""]:
        # With r = 1 + ridge and G = B B' it is tr G (r I + G)^{-1} = m - r tr (r I + G)^{-1}.
        m = self.weights.shape[0]
        inverse = solve_triangular(self.factor, jnp.eye(m, dtype=self.factor.dtype), lower=True)
        return jnp.sum(1 - (1 + self.ridge) * jnp.sum(inverse**2, axis=0))

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
