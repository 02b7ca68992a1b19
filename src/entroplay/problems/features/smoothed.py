r"""Means of features over normal measures around the particles.

A map that is smoothed evaluates *components* instead of particles: a component (theta, s) of 2d
coordinates stands for the measure N(theta, diag(s^2)), and its feature is the mean

    h_i(theta, s) = E[h_i(theta + s z)],   z ~ N(0, I).

Smoothed maps are feature maps: averages over mixtures, potentials and their gradients by centres
and deviations come from the contract of `base`. Neurons and Gaussian kernels have closed forms.
Every other map is averaged over a fixed set of draws of z.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

from .base import FeatureMap, Moments, Particles, uniform_weights
from .gaussian import GaussianKernel
from .neurons import Neurons

Components = Float[Array, "m dd"]

DRAWS = 16
"""Number of draws of z for maps without a closed form, in pairs z and -z: odd terms cancel."""

SHARES = np.array([
    0.003232384214215092, 0.05139434888360794, 0.1949194733063142, 0.3156501779424818,
    0.2743333590610074, 0.1311274818496348, 0.02789625465753765, 0.001446520085201147,
])  # fmt: skip
"""Coefficients c of tanh(x) = sum_l c_l erf(a_l x), see SLOPES."""
SLOPES = np.array([
    1.931405053159547, 1.498841491542073, 1.175249261869029, 0.9204729668790718,
    0.7186887249348074, 0.5604655520172598, 0.4368135161608719, 0.3368369730853917,
])  # fmt: skip
"""Slopes a of that sum, which is nowhere off by more than 5e-9.

The logistic distribution is a mixture of normal ones, so a sum of few error functions comes that
close; coefficients and slopes minimise the largest difference. The mean over a normal measure has
at most the same error, whatever its mean and variance."""


def mean_tanh(mean: Array, variance: Array) -> Array:
    """E tanh(u) for u ~ N(mean, variance)."""
    total = jnp.zeros_like(mean)
    for share, slope in zip(SHARES.tolist(), SLOPES.tolist(), strict=True):
        # E erf(a u) = erf(a mean / sqrt(1 + 2 a^2 variance)).
        total = total + share * erf(slope * mean / jnp.sqrt(1 + 2 * slope**2 * variance))
    return total


def mean_sigmoid(mean: Array, variance: Array) -> Array:
    """E sigmoid(u) for u ~ N(mean, variance)."""
    return (1 + mean_tanh(mean / 2, variance / 4)) / 2


def mean_erf(mean: Array, variance: Array) -> Array:
    """E erf(u) for u ~ N(mean, variance)."""
    return erf(mean / jnp.sqrt(1 + 2 * variance))


def mean_sine(mean: Array, variance: Array) -> Array:
    """E sin(u) for u ~ N(mean, variance)."""
    return jnp.sin(mean) * jnp.exp(-variance / 2)


def mean_relu(mean: Array, variance: Array) -> Array:
    """E max(u, 0) for u ~ N(mean, variance)."""
    # The square root has no derivative at zero.
    deviation = jnp.sqrt(jnp.maximum(variance, jnp.finfo(mean.dtype).tiny))
    ratio = mean / deviation
    return mean * norm.cdf(ratio) + deviation * norm.pdf(ratio)


MEANS: dict[str, Callable[[Array, Array], Array]] = {
    "tanh": mean_tanh,
    "sigmoid": mean_sigmoid,
    "erf": mean_erf,
    "sine": mean_sine,
    "relu": mean_relu,
}
"""Means of the activations under a normal measure."""


class SmoothedMap(FeatureMap):
    """A map of components, over the rows of the map that is smoothed."""

    features: FeatureMap

    def __init__(self, features: FeatureMap):
        self.features = features

    @property
    def dim(self) -> int:  # type: ignore[override]
        return 2 * self.features.dim

    @property
    def rows(self) -> Array:  # type: ignore[override]
        return self.features.rows

    @property
    def channels(self) -> tuple[int, ...]:
        return self.features.channels

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features.shape

    @property
    def dtype(self) -> jnp.dtype:
        return self.features.dtype

    @property
    def bounds(self) -> tuple[float, float]:
        return self.features.bounds

    @property
    def exact(self) -> bool:
        """Whether the means are exact up to rounding."""
        return True

    def parts(self, components: Components) -> tuple[Particles, Particles]:
        """Centres and deviations."""
        d = self.features.dim
        return components[:, :d], components[:, d:]


class SmoothedNeurons(SmoothedMap):
    """The mean neuron: w.x + b is normal, and the output weight is independent of it."""

    features: Neurons  # type: ignore[assignment]

    def __init__(self, features: Neurons):
        super().__init__(features)

    def _hidden(self, components: Components, rows: Float[Array, "b p"]) -> Float[Array, "m b"]:
        centres, deviations = self.parts(components)
        inputs = rows.shape[1]
        mean = jnp.einsum("rp,bp->rb", centres[:, :inputs], rows)
        variance = jnp.einsum("rp,bp->rb", deviations[:, :inputs] ** 2, rows**2)
        if self.features.bias:
            mean = mean + centres[:, inputs, None]
            variance = variance + deviations[:, inputs, None] ** 2
        return self.features.scale * MEANS[self.features.activation](mean, variance)

    def _output_weights(self, components: Components) -> Float[Array, "m k"]:
        centres, deviations = self.parts(components)
        k = self.features.outputs
        return mean_tanh(centres[:, -k:], deviations[:, -k:] ** 2)

    def values(self, particles: Components, rows: Float[Array, "b p"]) -> Float[Array, "m b *k"]:
        hidden = self._hidden(particles, rows)
        if not self.features.output_weight:
            return hidden
        a = self._output_weights(particles)
        return hidden[:, :, None] * a[:, None, :] if self.channels else hidden * a

    def factors(
        self, particles: Components, rows: Float[Array, "b p"]
    ) -> tuple[Float[Array, "m b"], Float[Array, "m k"]] | None:
        if not self.channels:
            return None
        return self._hidden(particles, rows), self._output_weights(particles)

    def at(self, X: object) -> SmoothedNeurons:
        return SmoothedNeurons(self.features.at(X))


class SmoothedKernel(SmoothedMap):
    """The mean of a Gaussian kernel is a wider one: its variance is bandwidth^2 + s^2."""

    features: GaussianKernel  # type: ignore[assignment]

    def __init__(self, features: GaussianKernel):
        super().__init__(features)

    def values(self, particles: Components, rows: Float[Array, "b d"]) -> Float[Array, "m b"]:
        centres, deviations = self.parts(particles)
        exponent = jnp.zeros((particles.shape[0], rows.shape[0]), particles.dtype)
        # Coordinate by coordinate, as the kernel itself.
        for j in range(self.features.dim):
            variance = self.features.bandwidth[j] ** 2 + deviations[:, j, None] ** 2
            square = (centres[:, j, None] - rows[None, :, j]) ** 2 / variance
            exponent = exponent - (square + jnp.log(2 * np.pi * variance)) / 2
        return jnp.exp(exponent)

    def at(self, X: object) -> SmoothedKernel:
        return SmoothedKernel(self.features.at(X))


class DrawnMeans(SmoothedMap):
    """Means over fixed draws of z, the same for all components, by the map's own operations."""

    noise: Float[Array, "q d"]

    def __init__(self, features: FeatureMap, noise: Float[Array, "q d"]):
        super().__init__(features)
        self.noise = noise

    @staticmethod
    def of(features: FeatureMap, key: PRNGKeyArray, draws: int = DRAWS) -> DrawnMeans:
        """A map with `draws` draws, an even number."""
        half = jax.random.normal(key, (draws // 2, features.dim), features.dtype)
        return DrawnMeans(features, jnp.concatenate([half, -half]))

    @property
    def exact(self) -> bool:
        return False

    @property
    def keeps_values(self) -> bool:
        return self.features.keeps_values

    def _points(self, components: Components) -> Float[Array, "qm d"]:
        centres, deviations = self.parts(components)
        points = centres[None] + deviations[None] * self.noise[:, None, :]
        return points.reshape(-1, self.features.dim)

    def values(self, particles: Components, rows: Float[Array, "b ..."]) -> Float[Array, "m b *k"]:
        centres, deviations = self.parts(particles)

        def add(total: Array, z: Array) -> tuple[Array, None]:
            return total + self.features.values(centres + deviations * z[None], rows), None

        first = self.features.values(centres + deviations * self.noise[:1], rows)
        total, _ = jax.lax.scan(add, first, self.noise[1:])
        return total / self.noise.shape[0]

    def average(self, particles: Components, weights: Float[Array, "m"] | None = None) -> Moments:
        weights = uniform_weights(particles) if weights is None else weights
        q = self.noise.shape[0]
        return self.features.average(self._points(particles), jnp.tile(weights, q) / q)

    def potential(self, particles: Components, vector: Moments) -> Float[Array, "m"]:
        found = self.features.potential(self._points(particles), vector)
        return jnp.mean(found.reshape(self.noise.shape[0], -1), axis=0)

    def pull(self, particles: Components, vector: Moments) -> Components:
        return self.potential_and_pull(particles, vector)[1]

    def potential_and_pull(
        self, particles: Components, vector: Moments
    ) -> tuple[Float[Array, "m"], Components]:
        q = self.noise.shape[0]
        found, pull = self.features.potential_and_pull(self._points(particles), vector)
        pull = pull.reshape(q, particles.shape[0], -1)
        # theta + s z: the derivative by s carries the factor z.
        by_deviation = jnp.mean(pull * self.noise[:, None, :], axis=0)
        both = jnp.concatenate([jnp.mean(pull, axis=0), by_deviation], axis=1)
        return jnp.mean(found.reshape(q, -1), axis=0), both

    def at(self, X: object) -> DrawnMeans:
        return DrawnMeans(self.features.at(X), self.noise)


def smoothed(features: FeatureMap, key: PRNGKeyArray) -> SmoothedMap:
    """The map of components; `key` is for the draws of maps without a closed form."""
    if type(features) is Neurons:
        return SmoothedNeurons(features)
    if type(features) is GaussianKernel:
        return SmoothedKernel(features)
    return DrawnMeans.of(features, key)
