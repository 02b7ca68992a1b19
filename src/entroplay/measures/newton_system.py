r"""The linear system of Newton's step on the fixed point of fictitious play.

The fixed point H = E_p[h], p = q_{beta loss'(H)}, has the residual r = E_p[h] - H, whose derivative
by H is -(I + beta J) with J = Cov_p(h) W loss''(H) / temperature. Newton's direction D solves

    (I + beta J) D = r.

With R R' = loss''(H), row by row, and Z = sqrt(W) R, the matrix

    K = (beta / temperature) Z' Cov_p(h) Z

is symmetric, y = Z' D satisfies (I + K) y = Z' r, and D = r - (beta / temperature) Cov_p(h) Z y.
S = K (I + K)^{-1} is the influence matrix: its trace is the effective number of degrees of freedom,
its diagonal blocks give leave-one-out predictions.

Four forms of the same system, chosen by its shape:

* `RowsSystem` factorises I + K over all rows and channels, where these are few;
* `ParticlesSystem` factorises the matrix of as many rows as there are particles, where these are
  fewer: with B = sqrt(beta p / temperature) (h - E_p[h]) Z, K = B'B and S = B'(I + B B')^{-1} B;
* `InnerProductSystem` is that form for the squared loss: B B' follows from inner products of the
  particles' features, which one iteration computes once;
* `ProductsSystem` uses products only: conjugate gradients, preconditioned by the second form for a
  subset of the particles, or by nothing. `FactoredSketch` is that form for features of several
  channels that are kept as two factors; it works channel by channel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..base.arguments import per_row
from ..problems.features.base import Moments
from ..problems.problem import FiniteSum
from .cloud import KEPT_ELEMENTS, SeenCloud, covariance_product
from .factored_sketch import FactoredSketch, InnerProductSystem
from .linear import conjugate_gradients
from .newton_base import NewtonSystem, cholesky_factor, nonzero, root_times

DIRECT, DIRECT_WITHOUT_MATRIX = 2048, 1024
"""Maximum size of a matrix that is factorised: if the cloud's features are kept, and if they are
not and every product costs a pass."""
CG_ITERATIONS, CG_TOLERANCE = 300, 0.01
"""Maximum number of conjugate gradient iterations, and their tolerance relative to the direction.

Relative to the right-hand side, a tolerance would be too strict for warm problems and too lax for
cold ones, where Newton's matrix makes the direction shorter by orders of magnitude."""
PRECONDITIONER, SKETCH = 128, 512
"""Maximum number of particles in the preconditioner, and in the matrix whose influence is known
exactly where that of the whole cloud is estimated."""
SKETCH_ELEMENTS = 2**21
"""Maximum number of features of these particles where they are formed as one array."""
PROBES, FEW_PROBES = 8, 4
"""Number of random signs with which the influence matrix is estimated without a matrix, and with
which its trace alone is. The trace has a standard error of at most sqrt(2 tr S / PROBES)."""


def newton_system(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    beta: Array | float,
    weights: Float[Array, "m"],
    *,
    direct: bool = True,
) -> NewtonSystem:
    """The system in the form that suits its shape; the weights p sum to one.

    Without `direct` it is solved by products alone. Systems with few large eigenvalues take few
    products, and no matrix has to be multiplied with itself.
    """
    m, width = cloud.particles.shape[0], moments.size
    form: Callable[..., NewtonSystem]
    if not direct:
        form = partial(ProductsSystem, sketched=False)
    elif cloud.matrix is None:
        form = RowsSystem if width <= DIRECT_WITHOUT_MATRIX else ProductsSystem
    elif width <= min(m, DIRECT):
        form = RowsSystem
    elif cloud.inner is not None:
        form = InnerProductSystem
    elif m <= DIRECT and cloud.outputs is None and m * width <= KEPT_ELEMENTS:
        form = ParticlesSystem
    else:
        form = RowsSystem if width <= DIRECT else ProductsSystem
    strength = jnp.asarray(beta / problem.temperature, problem.dtype)
    return form(
        problem, cloud, moments, strength, weights, root=problem.loss.curvature_root(moments)
    )


class RowsSystem(NewtonSystem):
    """The matrix I + K over all rows and channels, which is at least the identity."""

    factor: Float[Array, "nk nk"]

    def __init__(self, problem, cloud, moments, strength, weights, root):
        self.problem, self.cloud, self.moments = problem, cloud, moments
        self.strength, self.weights, self.root = strength, weights, root
        covariance = cloud.covariance_matrix(weights)

        def half(columns: Array) -> Array:
            """Z' applied to each column."""
            shaped = columns.reshape(*moments.shape, -1)
            image = jax.vmap(self.times_transpose, -1, -1)(shaped)
            return image.reshape(columns.shape)

        # Cov is symmetric: two applications of `half` make K.
        matrix = strength * half(half(covariance).T)
        self.factor = cholesky_factor(jnp.eye(matrix.shape[0], dtype=matrix.dtype) + matrix).factor

    def halved(self, right: Moments) -> tuple[Moments, Array]:
        y = cho_solve((self.factor, True), right.ravel()).reshape(right.shape)
        return y, jnp.ones((), jnp.int32)

    def influence(self) -> tuple[Float[Array, ""], Float[Array, "n *kk"]]:
        # S = I - (I + K)^{-1}, and (I + K)^{-1} = L^{-T} L^{-1}: diagonal blocks are products of
        # columns of L^{-1}.
        size, identity = self.moments.size, jnp.eye(self.moments.size, dtype=self.factor.dtype)
        inverse = solve_triangular(self.factor, identity, lower=True)
        rest = _blocks(inverse, self.moments.shape)
        return size - jnp.sum(inverse**2), _identity_blocks(rest, self.moments) - rest


class ParticlesSystem(NewtonSystem):
    """The matrix I + B B' over all particles, by which (I + K)^{-1} = I - B'(I + B B')^{-1} B."""

    rows: Float[Array, "m nk"]
    """B, see the module."""
    factor: Float[Array, "m m"]
    ridge: Float[Array, ""]

    def __init__(self, problem, cloud, moments, strength, weights, root):
        self.problem, self.cloud, self.moments = problem, cloud, moments
        self.strength, self.weights, self.root = strength, weights, root
        self.rows = _scaled_deviations(self, cloud.matrix, weights, cloud.average(weights))
        identity = jnp.eye(weights.shape[0], dtype=self.rows.dtype)
        self.factor, self.ridge = cholesky_factor(identity + self.rows @ self.rows.T)

    def halved(self, right: Moments) -> tuple[Moments, Array]:
        def nearly(r: Array) -> Array:
            solved = self.rows.T @ cho_solve((self.factor, True), self.rows @ r)
            return (r - solved) / (1 + self.ridge)

        # Along the large eigenvalues of K the difference cancels: y is smaller than r by orders of
        # magnitude there. A step of iterative refinement restores its digits.
        flat = right.ravel()
        y = nearly(flat)
        y = y + nearly(flat - y - self.rows.T @ (self.rows @ y))
        return y.reshape(right.shape), jnp.ones((), jnp.int32)

    def influence(self) -> tuple[Float[Array, ""], Float[Array, "n *kk"]]:
        # S = B'(I + B B')^{-1} B = (L^{-1} B)'(L^{-1} B).
        columns = solve_triangular(self.factor, self.rows, lower=True)
        return jnp.sum(columns**2), _blocks(columns, self.moments.shape)


class ProductsSystem(NewtonSystem):
    """Products with K only. A subset of the particles makes the preconditioner, if there is one.

    The influence matrix is estimated.
    """

    trace_is_cheaper: ClassVar[bool] = True

    sketch: ParticlesSystem | FactoredSketch | None
    """The preconditioner: the system of evenly spaced particles."""

    def __init__(self, problem, cloud, moments, strength, weights, root, *, sketched=True):
        self.problem, self.cloud, self.moments = problem, cloud, moments
        self.strength, self.weights, self.root = strength, weights, root
        self.sketch = self._sketched(PRECONDITIONER) if sketched else None

    def _sketched(self, most: int) -> ParticlesSystem | FactoredSketch:
        """The system of at most so many particles."""
        cloud, m = self.cloud, self.weights.shape[0]
        factored = cloud.outputs is not None
        few = min(m, most)
        if not factored:
            few = min(few, max(1, SKETCH_ELEMENTS // self.moments.size))
        subset = jnp.arange(few) * (m // few)
        part = (
            cloud.subset(subset)
            if factored
            else SeenCloud.all_values(cloud.features, cloud.particles[subset])
        )
        chosen = self.weights[subset] / nonzero(jnp.sum(self.weights[subset]))
        form = FactoredSketch if factored else ParticlesSystem
        return form(self.problem, part, self.moments, self.strength, chosen, self.root)

    def operator(self, y: Moments) -> Moments:
        """(I + K) y."""
        x = y / per_row(nonzero(jnp.sqrt(self.problem.weights)), y)
        image = covariance_product(self.problem, self.cloud, root_times(self.root, x), self.weights)
        return y + self.strength * self.times_transpose(image)

    def halved(self, right: Moments) -> tuple[Moments, Array]:
        return self._by_gradients(right, self.sketch)

    def _by_gradients(self, right: Moments, sketch: NewtonSystem | None) -> tuple[Moments, Array]:
        """Conjugate gradients, preconditioned by a sketch if there is one."""
        return conjugate_gradients(
            self.operator,
            right,
            jnp.ones_like(self.problem.weights),
            iterations=CG_ITERATIONS,
            tolerance=CG_TOLERANCE,
            of_solution=True,
            preconditioner=lambda r: r if sketch is None else sketch.halved(r)[0],
        )

    def degrees(self) -> Float[Array, ""]:
        return self._estimated(self.sketch, FEW_PROBES)[0]

    def influence(self) -> tuple[Float[Array, ""], Float[Array, "n *kk"]]:
        sketch = None if self.sketch is None else self._sketched(SKETCH)
        return self._estimated(sketch, PROBES)

    def _estimated(
        self, sketch: NewtonSystem | None, probes: int
    ) -> tuple[Float[Array, ""], Float[Array, "n *kk"]]:
        # Random signs z give E[z z' A] = A, block by block. They estimate only the difference of
        # (I + K)^{-1} from that of the sketch, whose own part is exact.
        key = jax.random.key(probes)
        signs = jax.random.rademacher(key, (probes, *self.moments.shape), self.moments.dtype)

        def difference(z: Moments) -> Moments:
            known = z if sketch is None else sketch.halved(z)[0]
            return known - self._by_gradients(z, sketch)[0]

        change = jax.vmap(difference)(signs)
        trace = jnp.sum(signs * change) / probes
        if self.moments.ndim == 1:
            blocks = jnp.mean(signs * change, axis=0)
        else:
            pairs = jnp.einsum("pnk,pnl->nkl", signs, change) / probes
            blocks = (pairs + jnp.swapaxes(pairs, 1, 2)) / 2
        if sketch is not None:
            known, known_blocks = sketch.influence()
            trace, blocks = trace + known, blocks + known_blocks
        return trace, jnp.clip(blocks, 0, 1) if self.moments.ndim == 1 else blocks


def _scaled_deviations(
    system: NewtonSystem, matrix: Array, weights: Array, mean: Moments
) -> Float[Array, "m nk"]:
    """B = sqrt(beta p / temperature) (h - E_p[h]) Z."""
    deviation = jax.vmap(system.times_transpose)(matrix - mean[None])
    scale = jnp.sqrt(system.strength * jnp.maximum(weights, 0))
    return scale[:, None] * deviation.reshape(weights.shape[0], -1)


def _blocks(columns: Float[Array, "q nk"], shape: tuple[int, ...]) -> Float[Array, "n *kk"]:
    """The diagonal blocks of A'A, one per row: (n,), or (n, k, k)."""
    if len(shape) == 1:
        return jnp.sum(columns**2, axis=0)
    by_row = columns.reshape(-1, *shape)
    return jnp.einsum("qnk,qnl->nkl", by_row, by_row)


def _identity_blocks(blocks: Array, moments: Moments) -> Array:
    """The identity in the shape of diagonal blocks."""
    if moments.ndim == 1:
        return jnp.ones_like(blocks)
    return jnp.broadcast_to(jnp.eye(moments.shape[1], dtype=blocks.dtype), blocks.shape)
