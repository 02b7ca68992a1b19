"""Gaussian kernels as features: a mixture density is the mean of many of them."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...base.arguments import invalid, real_array
from ...base.registry import storable
from .base import FeatureMap, Particles, same_columns


@storable
class GaussianKernel(FeatureMap):
    r"""The Gaussian density at the data points, h_i(theta) = N(x_i; theta, bandwidth^2 I).

    With `NegLog` this is the paper's Example 2, a mixture density. `bandwidth` is a number, or one
    number per coordinate.

    >>> import jax.numpy as jnp, entroplay as ep
    >>> kernel = ep.GaussianKernel([0.0, 1.0], bandwidth=0.5)
    >>> print([f"{density:.3f}" for density in kernel.average(jnp.zeros((1, 1)))])
    ['0.798', '0.108']
    """

    rows: Float[Array, "n d"]
    bandwidth: Float[Array, "d"]

    def __init__(self, X: object, bandwidth: object):
        rows = real_array("GaussianKernel", "X", X, ndim=(1, 2))
        self.rows = rows[:, None] if rows.ndim == 1 else rows
        width = real_array("GaussianKernel", "bandwidth", bandwidth, ndim=(0, 1))
        if (width <= 0).any() or width.shape not in ((), (1,), (self.rows.shape[1],)):
            must_be = "positive, one number or one per coordinate"
            raise invalid("GaussianKernel", "bandwidth", must_be, bandwidth)
        self.bandwidth = jnp.broadcast_to(width, self.rows.shape[1:])

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.rows.shape[1]

    @property
    def bounds(self) -> tuple[float, float]:
        bandwidth = np.asarray(self.bandwidth, np.float64)
        return (0.0, float(np.prod(1 / (np.sqrt(2 * np.pi) * bandwidth))))

    def values(self, particles: Particles, rows: Float[Array, "b d"]) -> Float[Array, "m b"]:
        distance = jnp.zeros((particles.shape[0], rows.shape[0]), particles.dtype)
        log_height = jnp.zeros((), particles.dtype)
        # Coordinate by coordinate: the differences keep their digits, which |a|^2 + |b|^2 - 2 a.b
        # would lose, and XLA fuses all of it into one loop.
        for j in range(self.dim):
            difference = (particles[:, j, None] - rows[None, :, j]) / self.bandwidth[j]
            distance = distance + difference**2
            log_height = log_height - jnp.log(self.bandwidth[j]) - 0.5 * np.log(2 * np.pi)
        return jnp.exp(log_height - distance / 2)

    def at(self, X: object) -> GaussianKernel:
        rows = real_array("GaussianKernel", "X", X, ndim=(1, 2))
        rows = rows[:, None] if rows.ndim == 1 and self.dim == 1 else rows
        return eqx.tree_at(lambda f: f.rows, self, same_columns("GaussianKernel", rows, self.rows))
