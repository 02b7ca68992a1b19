r"""Weights for a cloud that knows less than the solver does.

m draws of q_g estimate E_q[h] with variance Var(h)/m, but the solver knows the moments H on the
training rows far better. The regression estimator of survey sampling uses that: among all weights
that sum to one and reproduce H, take those closest to 1/m (Deville and Sarndal 1992). What the
weights correct on the training rows carries over to new rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..base.arguments import per_row
from ..base.compilation import compiled, traced
from ..problems.features.base import Moments, Particles, mean_features, uniform_weights
from ..problems.problem import FiniteSum
from .cloud import SeenCloud
from .cloud_dual import maximise_on_cloud
from .linear import conjugate_gradients

RIDGE = 1e-6
"""Ridge relative to the trace of the cloud's Gram matrix: below the noise that H itself has."""
LEAST_RIDGE = 1e-5
"""Smallest relative ridge that single precision can tell from zero in the system's matrix."""
ITERATIONS, TOLERANCE = 200, 1e-4
"""Maximum number of conjugate gradient iterations below LEAST_RIDGE (a quarter of them above it),
and their tolerance."""
DIRECT = 1024
"""Maximum number of rows (times channels) for solving the system as a matrix, which is done only
for ridges of at least LEAST_RIDGE."""

SUM_ERROR = 1e-3
"""Maximum distance from one of the sum of trustworthy weights."""
LARGEST_SUM = 10.0
"""Maximum sum of the absolute values of trustworthy weights, by which errors of h at other rows are
multiplied in predictions."""
LEAST_SHARE = 0.01
"""Minimum effective share 1 / (m sum u^2) of the cloud under trustworthy weights."""


def trustworthy(weights: Float[Array, "m"]) -> bool:
    """Whether weights sum to one without large terms that cancel."""
    u = np.asarray(weights, np.float64)
    return bool(
        np.isfinite(u).all()
        and abs(u.sum() - 1) <= SUM_ERROR
        and np.abs(u).sum() <= LARGEST_SUM
        and LEAST_SHARE * len(u) * (u**2).sum() <= 1
    )


def prediction_weights(
    problem: FiniteSum, particles: Particles, moments: Moments, ridge: float | None = None
) -> tuple[Float[Array, "m"], str]:
    """Calibrated weights if they are trustworthy, and a sentence if they are not.

    Others then take their place: those of the exponential form p_r proportional to
    exp(-<g - g_0, h_r>_w / T), which are positive and minimise the Bregman divergence of their
    moments from H plus T KL(p | 1/m); or equal ones, if these have the smaller loss.
    """
    weights = calibrated_weights(problem, particles, moments, ridge)
    if trustworthy(weights):
        return weights, ""
    complaint = (
        "The weights that would reproduce the moments are too uneven to be used: predictions"
    )
    weights, equal = _exponential(traced(problem), particles, moments), uniform_weights(particles)
    losses = [
        float(problem.empirical_loss(mean_features(problem.features, particles, u)))
        for u in (weights, equal)
    ]
    if abs(float(jnp.sum(weights)) - 1) <= SUM_ERROR and losses[0] < losses[1]:
        return weights, f"{complaint} use positive weights, which come close to the moments."
    return equal, f"{complaint} use equal weights."


@compiled
def _exponential(problem: FiniteSum, particles: Particles, moments: Moments) -> Float[Array, "m"]:
    """Positive weights by the dual solve, with base weights that are even at g_0 = loss'(H)."""
    cloud = SeenCloud.of(problem.features, particles)
    base = cloud.potential(problem.weigh(problem.slope(moments))) / problem.temperature
    return jnp.exp(maximise_on_cloud(problem, cloud, base, 1.0, moments).point.log_weights)


def calibrated_weights(
    problem: FiniteSum, particles: Particles, moments: Moments, ridge: float | None = None
) -> Float[Array, "m"]:
    """Weights u that sum to one with sum_r u_r h(theta_r) = H on the training rows, close to 1/m.

    They minimise sum_i w_i |sum_r u_r h_i(theta_r) - H_i|^2 + ridge |u - 1/m|^2. This is ridge
    regression in the space of particles, solved in the space of rows: by conjugate gradients
    without a matrix, or directly if the matrix is small.
    """
    ridge = RIDGE if ridge is None else ridge
    strict = ridge < LEAST_RIDGE
    return _solve(traced(problem), particles, moments, jnp.asarray(ridge, problem.dtype), strict)


@compiled
def _solve(
    problem: FiniteSum,
    particles: Particles,
    moments: Moments,
    relative: Float[Array, ""],
    strict: bool,
) -> Float[Array, "m"]:
    """The weights u = 1/m + A z, where (A'A + ridge I) z = sqrt(w) (H - mean).

    A holds the centred features of the particles, times the square roots of the row weights.
    """
    m = particles.shape[0]
    cloud = SeenCloud.of(problem.features, particles)
    mean, covariance = cloud.mean_and_covariance()
    root = jnp.sqrt(problem.weights)
    # The ridge is relative to the trace of A'A; `tiny` makes it positive if that is zero.
    spread = covariance if moments.ndim == 1 else jnp.trace(covariance, axis1=1, axis2=2)
    ridge = relative * (m * problem.weights @ spread) + jnp.finfo(problem.dtype).tiny

    def rows(x: Moments) -> Moments:
        return x * per_row(root, x)

    def lift(z: Moments) -> Float[Array, "m"]:
        """A z, one number per particle."""
        b = cloud.potential(rows(z))
        return b - jnp.mean(b)

    def operator(z: Moments) -> Moments:
        """(A'A + ridge I) z; centring once is enough, because lift(z) sums to zero."""
        return rows(cloud.average(lift(z))) + ridge * z

    right = rows(moments - mean)
    if moments.size <= DIRECT and not strict:
        # A'A as a matrix over all rows and channels.
        scale = jnp.broadcast_to(rows(jnp.ones_like(moments)), moments.shape).ravel()
        all_members = jnp.ones(m, problem.dtype)
        gram = m * cloud.covariance_matrix(all_members) * scale[:, None] * scale[None, :]
        system = gram + ridge * jnp.eye(moments.size, dtype=problem.dtype)
        factor = jax.scipy.linalg.cho_factor(system)
        z = jax.scipy.linalg.cho_solve(factor, right.ravel()).reshape(moments.shape)
    else:
        ones = jnp.ones_like(problem.weights)
        limit = ITERATIONS if strict else ITERATIONS // 4
        z, _ = conjugate_gradients(operator, right, ones, iterations=limit, tolerance=TOLERANCE)
    change = lift(z)
    # Centred again: where z is large, the first mean was rounded as a mean of large numbers.
    weights = 1 / m + change - jnp.mean(change)
    # A run that diverged keeps equal weights.
    return jnp.where(jnp.all(jnp.isfinite(weights)), weights, 1 / m)
