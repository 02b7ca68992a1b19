"""Smoothed features are the means of features over normal measures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import FEATURES

from entroplay.problems.features.neurons import ACTIVATIONS
from entroplay.problems.features.smoothed import MEANS, SHARES, SLOPES, DrawnMeans

CLOSED = [name for name in FEATURES if "function" not in name and "triangles" not in name]
DRAWN = [name for name in FEATURES if name not in CLOSED]


def components(features, count=3, seed=1):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, features.dim))
    deviations = rng.uniform(0.1, 1.5, size=(count, features.dim))
    return jnp.asarray(np.concatenate([centres, deviations], axis=1), features.dtype)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_mean_activations_against_dense_quadrature(activation):
    """Means from -20 to 20 and deviations from 0.01 to 30, to 1e-8 in double precision."""
    with jax.enable_x64(True):
        z = np.linspace(-12, 12, 200_001)
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
        for mean in (-20.0, -1.3, 0.0, 0.4, 5.0):
            for deviation in (0.01, 0.7, 3.0, 30.0):
                dense = density @ np.asarray(ACTIVATIONS[activation][0](mean + deviation * z))
                found = MEANS[activation](jnp.asarray(mean), jnp.asarray(deviation**2))
                # The kink of relu costs the rule the square of its step.
                assert float(found) == pytest.approx(dense, abs=1e-8 * max(1, deviation))


def test_the_sum_of_error_functions_is_tanh():
    """The claim of SLOPES, which carries over to every mean."""
    with jax.enable_x64(True):
        x = jnp.linspace(-30, 30, 60_001)
        total = sum(c * jax.scipy.special.erf(a * x) for c, a in zip(SHARES, SLOPES, strict=True))
        assert float(jnp.abs(total - jnp.tanh(x)).max()) < 5e-9
    assert SHARES.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_against_draws(name):
    features = FEATURES[name]()
    smooth = features.smoothed(jax.random.key(0))
    assert smooth.exact
    parts = components(features)
    found = np.asarray(smooth.values(parts, features.rows))
    rng, d = np.random.default_rng(0), features.dim
    for component, values in zip(np.asarray(parts), found, strict=True):
        points = component[:d] + component[d:] * rng.normal(size=(40_000, d))
        drawn = np.asarray(features.values(jnp.asarray(points, features.dtype), features.rows))
        error = drawn.std(axis=0) / np.sqrt(len(points))
        # Some hundred numbers: none is off by five standard errors.
        assert (np.abs(drawn.mean(axis=0) - values) < 5 * error + 1e-6).all()


@pytest.mark.parametrize("name", DRAWN)
def test_other_maps_are_averaged_over_draws(name):
    """All operations agree with the mean of the map's values at the draws."""
    features = FEATURES[name]()
    smooth = features.smoothed(jax.random.key(0))
    assert not smooth.exact
    parts, d = components(features), features.dim
    values = jnp.stack(
        [
            features.values(parts[:, :d] + parts[:, d:] * z[None], features.rows)
            for z in smooth.noise
        ]
    ).mean(axis=0)
    np.testing.assert_allclose(smooth.values(parts, smooth.rows), values, rtol=2e-5, atol=2e-6)
    weights, vector = jnp.asarray([0.2, 0.3, 0.5]), jnp.cos(jnp.arange(values[0].size))
    vector = vector.reshape(values[0].shape)
    mean = jnp.einsum("r,r...->...", weights, values)
    np.testing.assert_allclose(smooth.average(parts, weights), mean, rtol=2e-4, atol=2e-5)
    potential = jnp.stack([jnp.sum(v * vector) for v in values])
    found, pull = smooth.potential_and_pull(parts, vector)
    np.testing.assert_allclose(found, potential, rtol=2e-4, atol=2e-4)
    assert pull.shape == parts.shape


def test_more_draws_come_closer_to_the_mean():
    """A function that is a neuron in disguise: its draws against the closed form."""
    neuron, function = FEATURES["tanh"](), FEATURES["function"]()
    parts = components(neuron)
    exact = neuron.smoothed(jax.random.key(0)).values(parts, neuron.rows)
    errors = [
        float(jnp.abs(DrawnMeans.of(function, jax.random.key(1), draws).values(
            parts, function.rows) - exact).max())
        for draws in (16, 4096)
    ]  # fmt: skip
    # The error falls with the root of their number, here by a factor of sixteen.
    assert errors[1] < 0.05 < 16 * errors[1] * 2


@pytest.mark.parametrize(
    "name", ["tanh", "erf weight", "three outputs", "gaussian 3-D", "function"]
)
def test_gradients_in_centres_and_deviations(name):
    with jax.enable_x64(True):
        features = FEATURES[name]()
        smooth = features.smoothed(jax.random.key(0))
        parts = components(features)
        vector = jnp.cos(jnp.arange(np.prod(features.shape))).reshape(features.shape)
        pull = smooth.pull(parts, vector)
        shift = 1e-6
        for j in range(parts.shape[1]):
            ahead, behind = (
                smooth.potential(parts.at[:, j].add(s * shift), vector) for s in (1, -1)
            )
            np.testing.assert_allclose(pull[:, j], (ahead - behind) / (2 * shift), atol=1e-6)


def test_several_outputs_are_factors():
    features = FEATURES["three outputs"]()
    smooth, parts = features.smoothed(jax.random.key(0)), components(features)
    u, v = smooth.factors(parts, smooth.rows)
    np.testing.assert_allclose(
        u[:, :, None] * v[:, None, :], smooth.values(parts, smooth.rows), rtol=1e-6
    )


def test_other_rows():
    features = FEATURES["erf weight"]()
    smooth, parts = features.smoothed(jax.random.key(0)), components(features)
    new = np.asarray(features.rows)[:4]
    np.testing.assert_allclose(
        smooth.at(new).average(parts), smooth.average(parts)[:4], rtol=1e-5, atol=1e-6
    )
