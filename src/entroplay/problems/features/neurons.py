"""Hidden neurons as features: a network is the mean of many of them."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...base.arguments import flag, invalid, one_of, positive, real_array, whole
from ...base.native import either, kernel, missing
from ...base.registry import storable
from .base import FeatureMap, Moments, Particles, same_columns

ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], tuple[float, float]]] = {
    "tanh": (jnp.tanh, (-1.0, 1.0)),
    "sigmoid": (jax.nn.sigmoid, (0.0, 1.0)),
    "erf": (jax.scipy.special.erf, (-1.0, 1.0)),
    "sine": (jnp.sin, (-1.0, 1.0)),
    "relu": (jax.nn.relu, (0.0, np.inf)),
}
"""Activation functions by name, each with the interval of its values."""
WITH_KERNEL = ("tanh", "relu")
"""Activations that the compiled kernel computes."""


@storable
class Neurons(FeatureMap):
    r"""Hidden neurons of a two-layer network: h(theta, x) = scale * a * activation(w . x + b).

    A particle is theta = (w, b, alpha): `w` has one weight per input. `b` is there only with
    `bias=True` (otherwise b = 0), and alpha only with `output_weight=True` (otherwise a = 1). The
    output weight is the bounded a = tanh(alpha), one for each of `outputs`. Several outputs need
    `output_weight=True`.

    tanh, sigmoid, erf and sine are bounded, as the convergence theory requires. relu is not. The
    Gibbs measures still exist (l2 |theta|^2 outgrows it) and the gap still bounds the distance to
    the optimum, but the theory's rates do not apply, and steps that are stable for bounded features
    may diverge.

    With sine the network is a random Fourier expansion whose frequencies are learned: it suits
    smooth targets, and tends to the Gaussian process with a Gaussian kernel as the temperature
    rises.

    >>> import entroplay as ep
    >>> ep.Neurons([[0.0, 1.0], [1.0, 0.0]], activation="tanh", bias=True).dim
    3
    """

    rows: Float[Array, "n p"]
    activation: str = eqx.field(static=True)
    bias: bool = eqx.field(static=True)
    output_weight: bool = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    scale: float

    def __init__(
        self,
        X: object,
        activation: str = "tanh",
        bias: bool = False,
        output_weight: bool = False,
        outputs: int = 1,
        scale: float = 1.0,
    ):
        self.rows = real_array("Neurons", "X", X, ndim=(2,))
        self.activation = one_of("Neurons", "activation", activation, tuple(ACTIVATIONS))
        self.bias = flag("Neurons", "bias", bias)
        self.output_weight = flag("Neurons", "output_weight", output_weight)
        self.outputs = whole("Neurons", "outputs", outputs)
        if self.outputs > 1 and not self.output_weight:
            raise invalid(
                "Neurons", "output_weight", "True when there are several outputs", output_weight
            )
        self.scale = positive("Neurons", "scale", scale)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.rows.shape[1] + self.bias + self.output_weight * self.outputs

    @property
    def channels(self) -> tuple[int, ...]:
        return (self.outputs,) if self.outputs > 1 else ()

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = ACTIVATIONS[self.activation][1]
        if self.output_weight:  # a lies in (-1, 1) and may turn the sign
            low, high = -max(-low, high), max(-low, high)
        return (self.scale * low, self.scale * high)

    def _hidden(self, particles: Particles, rows: Float[Array, "b p"]) -> Float[Array, "m b"]:
        inputs = self.rows.shape[1]
        # Contracted without a transpose: XLA's CPU matrix products of the gradient are a fifth
        # faster that way.
        preactivation = jnp.einsum("rp,bp->rb", particles[:, :inputs], rows)
        if self.bias:
            preactivation = preactivation + particles[:, inputs, None]
        return self.scale * ACTIVATIONS[self.activation][0](preactivation)

    def _output_weights(self, particles: Particles) -> Float[Array, "m k"]:
        return jnp.tanh(particles[:, -self.outputs :])

    def values(self, particles: Particles, rows: Float[Array, "b p"]) -> Float[Array, "m b *k"]:
        hidden = self._hidden(particles, rows)
        if not self.output_weight:
            return hidden
        a = self._output_weights(particles)
        return hidden[:, :, None] * a[:, None, :] if self.channels else hidden * a

    def factors(
        self, particles: Particles, rows: Float[Array, "b p"]
    ) -> tuple[Float[Array, "m b"], Float[Array, "m k"]] | None:
        if not self.channels:
            return None
        return self._hidden(particles, rows), self._output_weights(particles)

    def potential(self, particles: Particles, vector: Moments) -> Float[Array, "m"]:
        if not self._has_kernel(particles):
            return super().potential(particles, vector)
        return either(self._potential_by_kernel, super().potential, particles, vector)

    def pull(self, particles: Particles, vector: Moments) -> Particles:
        return self.potential_and_pull(particles, vector)[1]

    def potential_and_pull(
        self, particles: Particles, vector: Moments
    ) -> tuple[Float[Array, "m"], Particles]:
        if not self._has_kernel(particles):
            return super().potential_and_pull(particles, vector)
        return either(self._both_by_kernel, super().potential_and_pull, particles, vector)

    def _has_kernel(self, particles: Particles) -> bool:
        """Whether the kernel is present and applies: single precision, activation `WITH_KERNEL`."""
        return (
            self.activation in WITH_KERNEL
            and {particles.dtype, self.dtype} == {jnp.dtype(jnp.float32)}
            and missing() is None
        )

    def _kernel(
        self, particles: Particles, vector: Moments, *, slopes: bool
    ) -> tuple[Array, Array, Array]:
        """The arrays from which potential and pull are formed, without the factor `scale`.

        Returns a (m, k), sum_i v_i f(w.x_i + b) (m, k), and sum_i (a.v_i) f'(w.x_i + b) (x_i, 1),
        which is (m, 0) unless `slopes` are asked for.
        """
        m, inner = particles.shape[0], self.rows.shape[1] + self.bias
        # The kernel has no bias: a column of ones takes its place.
        rows = self.rows
        if self.bias:
            rows = jnp.concatenate([rows, jnp.ones((rows.shape[0], 1), self.dtype)], axis=1)
        if self.output_weight:
            outer = self._output_weights(particles)
        else:
            outer = jnp.ones((m, 1), particles.dtype)
        shapes = (
            jax.ShapeDtypeStruct((m, inner if slopes else 0), self.dtype),
            jax.ShapeDtypeStruct(outer.shape, self.dtype),
        )
        call = kernel("neurons_pull", shapes, rectified=self.activation == "relu")
        slope, value = call(
            particles[:, :inner], outer, rows, vector.reshape(-1, self.outputs).astype(self.dtype)
        )
        return outer, value, slope

    def _potential_by_kernel(self, particles: Particles, vector: Moments) -> Float[Array, "m"]:
        outer, value, _ = self._kernel(particles, vector, slopes=False)
        return self.scale * jnp.sum(outer * value, axis=1)

    def _both_by_kernel(
        self, particles: Particles, vector: Moments
    ) -> tuple[Float[Array, "m"], Particles]:
        outer, value, slope = self._kernel(particles, vector, slopes=True)
        # The derivative of a = tanh(alpha) is 1 - a^2.
        parts = [slope, (1 - outer**2) * value] if self.output_weight else [slope]
        potential = self.scale * jnp.sum(outer * value, axis=1)
        return potential, self.scale * jnp.concatenate(parts, axis=1)

    def at(self, X: object) -> Neurons:
        rows = same_columns("Neurons", X, self.rows)
        return eqx.tree_at(lambda f: f.rows, self, rows)
