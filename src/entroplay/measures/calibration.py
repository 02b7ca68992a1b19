r"""Weights for a cloud that knows less than the solver does.

m draws of q_g estimate E_q[h] with variance Var(h)/m, but the solver knows the moments H on the training rows far better.
The regression estimator of survey sampling uses that: among all weights that sum to one and reproduce H, take those
closest to 1/m (Deville and Sarndal 1992). What the weights learn on the training rows carries over to new ones.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..base.compilation import traced
from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum
from .cloud import SeenCloud, conjugate_gradients

RIDGE = 1e-6
"""The ridge, relative to the trace of the cloud's Gram matrix: below the noise that H itself still has."""
ITERATIONS, TOLERANCE = 200, 1e-4
DIRECT, LEAST_RIDGE = 1024, 1e-5
"""Above a ridge that single precision can tell from zero, the system is solved as a matrix for up to this many rows (times
channels), and by a quarter of the iterations for more."""


def calibrated_weights(
    problem: FiniteSum, particles: Particles, moments: Moments, ridge: float | None = None
) -> Float[Array, "m"]:
    """Weights w that sum to one with sum_r w_r h(theta_r) = H on the training rows, as close to 1/m as can be.

    They minimise sum_i w_i |sum_r w_r h_i(theta_r) - H_i|^2 + ridge |w - 1/m|^2: ridge regression in the space of particles,
    solved by conjugate gradients in the space of rows, without a matrix unless it is small.
    """
    ridge = RIDGE if ridge is None else ridge
    strict = ridge < LEAST_RIDGE
    return _solve(traced(problem), particles, moments, jnp.asarray(ridge, problem.dtype), strict)


@eqx.filter_jit
def _solve(
    problem: FiniteSum,
    particles: Particles,
    moments: Moments,
    relative: Float[Array, ""],
    strict: bool,
) -> Float[Array, "m"]:
    m = particles.shape[0]
    cloud = SeenCloud.of(problem.features, particles)
    mean, covariance = cloud.mean_and_covariance()
    root = jnp.sqrt(problem.weights)
    trace = (
        m
        * problem.weights
        @ (covariance if moments.ndim == 1 else jnp.trace(covariance, axis1=1, axis2=2))
    )
    ridge = relative * trace + jnp.finfo(problem.dtype).tiny

    def rows(x: Moments) -> Moments:
        return x * (root if x.ndim == 1 else root[:, None])

    def lift(z: Moments) -> Float[Array, "m"]:
        b = cloud.potential(rows(z))
        return b - jnp.mean(b)

    def operator(z: Moments) -> Moments:
        return rows(cloud.average(lift(z))) + ridge * z

    if moments.size <= DIRECT and not strict:
        scale = jnp.broadcast_to(rows(jnp.ones_like(moments)), moments.shape).ravel()
        gram = (
            m
            * cloud.covariance_matrix(jnp.ones(m, problem.dtype))
            * scale[:, None]
            * scale[None, :]
        )
        factor = jax.scipy.linalg.cho_factor(
            gram + ridge * jnp.eye(moments.size, dtype=problem.dtype)
        )
        z = jax.scipy.linalg.cho_solve(factor, rows(moments - mean).ravel()).reshape(moments.shape)
    else:
        ones = jnp.ones_like(problem.weights)
        limit = ITERATIONS if strict else ITERATIONS // 4
        z, _ = conjugate_gradients(
            operator, rows(moments - mean), ones, iterations=limit, tolerance=TOLERANCE
        )
    change = lift(z)
    weights = (
        1 / m + change - jnp.mean(change)
    )  # once more: where z is large, the first mean was taken of large numbers
    return jnp.where(
        jnp.all(jnp.isfinite(weights)), weights, 1 / m
    )  # a run that diverged keeps plain ones
