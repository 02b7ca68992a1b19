r"""The linear system of Newton's step, with a Jacobian that the particles estimate.

The fixed point H = E_q[h], q = q_{beta loss'(H)}, has the residual E_q[h] - H. The derivative of
the residual by H is -(I + beta J), with J = Cov_q(h) W loss''(H) / temperature. Its derivative by
beta is -Cov_q(h) W loss'(H) / temperature. A Newton step to beta' has the direction D with

    (I + beta' J) D = (P - H) - ((beta' - beta) / temperature) Cov_q(h) W loss'(H),   P = E_q[h].

With R R' = loss'' (a square root for each row), x = R' D satisfies a self-adjoint system,

    x + (beta'/temperature) R' CW(R x) = R' r,    then D = r - (beta'/temperature) CW(R x),

where r is the right-hand side above and CW(v) = Cov_q(h) W v.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...base.arguments import per_row
from ...measures.cloud import SeenCloud, covariance_product
from ...measures.linear import conjugate_gradients
from ...problems.features.base import Moments
from ...problems.problem import FiniteSum

CG_ITERATIONS, CG_TOLERANCE = 300, 0.01
"""Maximum number of conjugate gradient iterations, and their tolerance relative to the direction.

Relative to the right-hand side, a tolerance would be too strict for warm problems and too lax for
cold ones, where Newton's matrix makes the direction shorter by orders of magnitude."""
DIRECT, DIRECT_WITHOUT_MATRIX = 256, 1024
"""Maximum number of rows (times channels) for solving the system as a matrix: if the cloud's
features are kept, and if they are not and every product costs a pass."""


def newton_direction(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    beta: Array,
    new_beta: Array,
    members: Array,
    others: Array,
) -> tuple[Moments, Array]:
    """The Newton direction D from (beta, H) to beta', and the number of products it took.

    The covariance is that of the particles weighted by `members`, P the mean over `others`.
    """
    # The right-hand side r of the module's first equation; it takes two products.
    mean = cloud.average(others / jnp.sum(others))
    slope = problem.slope(moments)
    change = (new_beta - beta) / problem.temperature
    turning = change * covariance_product(problem, cloud, slope, members)
    system = System(problem, cloud, moments, new_beta, members)
    direction, count = system.solve(mean - moments - turning)
    return direction, count + 2


def crossed_direction(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    beta: Array,
    new_beta: Array,
    crossed: Array,
) -> tuple[Moments, Array]:
    """The Newton direction of the whole cloud or, if `crossed`, the mean of two directions.

    Each of the two takes its covariance from one half of the cloud and its mean from the other.
    Estimated from the same particles, the two are correlated, which biases D by O(1/m).
    """
    # Membership in one half, the particles with odd numbers.
    one = (jnp.arange(cloud.particles.shape[0]) % 2).astype(problem.dtype)

    def both() -> tuple[Moments, Array]:
        first, count = newton_direction(problem, cloud, moments, beta, new_beta, one, 1 - one)
        second, more = newton_direction(problem, cloud, moments, beta, new_beta, 1 - one, one)
        return (first + second) / 2, count + more

    all_members = jnp.ones_like(one)
    return jax.lax.cond(
        crossed,
        both,
        lambda: newton_direction(problem, cloud, moments, beta, new_beta, all_members, all_members),
    )


class System(NamedTuple):
    """(I + beta J) D = r at the moments H, with the covariance of the particles in `members`."""

    problem: FiniteSum
    cloud: SeenCloud
    moments: Moments
    beta: Array
    members: Array

    def solve(self, right: Moments) -> tuple[Moments, Array]:
        """D for the right-hand side r, and the number of products it took."""
        width = self.moments.size
        few = DIRECT if self.cloud.matrix is not None else DIRECT_WITHOUT_MATRIX
        return self._directly(right) if width <= few else self._by_conjugate_gradients(right)

    @property
    def root(self) -> Array:
        """R with R R' = loss''(H), row by row."""
        return self.problem.loss.curvature_root(self.moments)

    @property
    def strength(self) -> Array:
        """beta / temperature, which multiplies the covariance."""
        return self.beta / self.problem.temperature

    def _directly(self, right: Moments) -> tuple[Moments, Array]:
        """The solution for few rows, by the matrix itself, in one or two passes.

        In the unknown y = sqrt(w) x the matrix is I + strength K, with
        K = sqrt(w) R' Cov R sqrt(w). It is symmetric and at least the identity, so its Cholesky
        factor exists.
        """
        root, shape = self.root, self.moments.shape
        scale = per_row(jnp.sqrt(self.problem.weights), self.moments)
        covariance = self.cloud.covariance_matrix(self.members)

        def half(columns: Array) -> Array:
            """sqrt(w) R' applied to each column."""
            return jax.vmap(
                lambda c: (scale * _times_transpose(root, c.reshape(shape))).ravel(), 1, 1
            )(columns)

        identity = jnp.eye(covariance.shape[0], dtype=covariance.dtype)
        # Cov is symmetric: two applications of `half` make K.
        factor = jax.scipy.linalg.cho_factor(identity + self.strength * half(half(covariance).T))
        y = jax.scipy.linalg.cho_solve(factor, (scale * _times_transpose(root, right)).ravel())
        # W R x = sqrt(w) R y.
        image = covariance @ (scale * _times(root, y.reshape(shape))).ravel()
        return right - self.strength * image.reshape(shape), jnp.ones((), jnp.int32)

    def _by_conjugate_gradients(self, right: Moments) -> tuple[Moments, Array]:
        """The solution for many rows, by products only.

        The operator is self-adjoint in the inner product sum_i w_i <x_i, y_i>.
        """
        root, strength = self.root, self.strength

        def image(x: Moments) -> Moments:
            """CW(R x)."""
            return covariance_product(self.problem, self.cloud, _times(root, x), self.members)

        x, count = conjugate_gradients(
            lambda x: x + strength * _times_transpose(root, image(x)),
            _times_transpose(root, right),
            self.problem.weights,
            iterations=CG_ITERATIONS,
            tolerance=CG_TOLERANCE,
            of_solution=True,
        )
        return right - strength * image(x), count


def _times(root: Array, x: Moments) -> Moments:
    """R x, row by row."""
    return root * x if x.ndim == 1 else jnp.einsum("nkl,nl->nk", root, x)


def _times_transpose(root: Array, x: Moments) -> Moments:
    """R' x, row by row."""
    return root * x if x.ndim == 1 else jnp.einsum("nkl,nk->nl", root, x)
