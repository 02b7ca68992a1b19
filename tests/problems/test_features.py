"""Laws of the feature maps: transposes, gradients, tiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import entroplay as ep
from entroplay.problems.features import tiles

M, N = 23, 17
RNG = np.random.default_rng(0)
X, LINE = RNG.normal(size=(N, 3)), RNG.normal(size=N)


def gaussian_wave(theta, x):
    return jnp.stack(
        [jnp.sin(theta[0] * x[0]), jnp.exp(-((theta[1] - x[1]) ** 2)), theta[2] * x[2]]
    )


MAPS = {
    "tanh": lambda: ep.Neurons(X),
    "sigmoid bias": lambda: ep.Neurons(X, activation="sigmoid", bias=True, scale=2.0),
    "erf weight": lambda: ep.Neurons(X, activation="erf", bias=True, output_weight=True),
    "relu": lambda: ep.Neurons(X, activation="relu", bias=True),
    "three outputs": lambda: ep.Neurons(X, bias=True, output_weight=True, outputs=3, scale=1.5),
    "gaussian 1-D": lambda: ep.GaussianKernel(LINE, bandwidth=0.7),
    "gaussian 3-D": lambda: ep.GaussianKernel(X, bandwidth=[0.7, 1.0, 1.4]),
    "function": lambda: ep.FunctionFeatures(lambda theta, x: jnp.tanh(theta @ x), X, dim=3),
    "function vector": lambda: ep.FunctionFeatures(gaussian_wave, X, dim=3),
}


@pytest.fixture(params=list(MAPS))
def case(request):
    """The map in float64, a cloud and a vector to pair it with."""
    with jax.enable_x64(True):
        features = MAPS[request.param]()
        rng = np.random.default_rng(1)
        yield (
            features,
            jnp.asarray(rng.normal(size=(M, features.dim))),
            jnp.asarray(rng.normal(size=features.shape)),
        )


def test_potential_is_the_transpose_of_average(case):
    features, particles, vector = case
    weights = jnp.asarray(np.random.default_rng(2).normal(size=M))  # signed, not summing to one
    left = jnp.sum(features.average(particles, weights) * vector)
    right = weights @ features.potential(particles, vector)
    np.testing.assert_allclose(left, right, rtol=1e-12)


def test_pull_is_the_gradient_of_potential(case):
    features, particles, vector = case
    direction, h = jnp.asarray(np.random.default_rng(3).normal(size=particles.shape)), 1e-6
    plus, minus = (features.potential(particles + s * h * direction, vector) for s in (1, -1))
    slope = jnp.sum(features.pull(particles, vector) * direction, axis=1)
    np.testing.assert_allclose(slope, (plus - minus) / (2 * h), rtol=1e-6, atol=1e-7)


def test_both_in_one_pass_are_the_same(case):
    features, particles, vector = case
    potential, pull = features.potential_and_pull(particles, vector)
    np.testing.assert_allclose(
        potential, features.potential(particles, vector), rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(pull, features.pull(particles, vector), rtol=1e-12, atol=1e-13)


def test_potential_is_linear_in_the_vector(case):
    features, particles, vector = case
    other = jnp.roll(vector, 1, axis=0)
    combined = features.potential(particles, 2 * vector - 3 * other)
    parts = 2 * features.potential(particles, vector) - 3 * features.potential(particles, other)
    np.testing.assert_allclose(combined, parts, rtol=1e-11, atol=1e-12)


def test_mean_and_covariance_are_numpys(case):
    features, particles, _ = case
    values = np.asarray(features.values(particles, features.rows))
    mean, covariance = features.mean_and_covariance(particles)
    np.testing.assert_allclose(mean, values.mean(axis=0), rtol=1e-12, atol=1e-14)
    for i in range(N):
        np.testing.assert_allclose(
            covariance[i], np.cov(values[:, i], rowvar=False), rtol=1e-9, atol=1e-13
        )


def test_values_stay_within_the_bounds(case):
    features, particles, _ = case
    low, high = features.bounds
    values = np.asarray(features.values(20 * particles, features.rows))
    assert (values >= low).all()
    assert (values <= high).all()


@pytest.mark.parametrize(("elements", "tile_particles"), [(40, 7), (M * 4, M), (1, 1)])
def test_tiles_change_nothing(case, monkeypatch, elements, tile_particles):
    features, particles, vector = case
    weights = jnp.linspace(-1, 2, M)
    whole = (
        features.average(particles, weights),
        features.potential_and_pull(particles, vector),
        features.mean_and_covariance(particles),
    )
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
    monkeypatch.setattr(tiles, "TILE_PARTICLES", tile_particles)
    tiled = (
        features.average(particles, weights),
        features.potential_and_pull(particles, vector),
        features.mean_and_covariance(particles),
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13), whole, tiled
    )


def test_no_array_is_larger_than_a_tile():
    """Trace a problem whose feature matrix has 10^9 entries and look at every intermediate array."""
    m, n = 20_000, 50_000
    features = ep.Neurons(np.zeros((n, 2)))
    particles, vector = (
        jax.ShapeDtypeStruct((m, 2), jnp.float32),
        jax.ShapeDtypeStruct((n,), jnp.float32),
    )
    limit = max(tiles.TILE_ELEMENTS, 4 * m, 4 * n)
    programs = (
        jax.make_jaxpr(features.average)(particles),
        jax.make_jaxpr(features.mean_and_covariance)(particles),
        jax.make_jaxpr(features.potential_and_pull)(particles, vector),
    )
    for program in programs:
        sizes = [
            int(np.prod(v.aval.shape)) for eqn in _equations(program.jaxpr) for v in eqn.outvars
        ]
        assert max(sizes) <= limit


def _equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for parameter in eqn.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else [parameter]:
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


def test_padding_never_evaluates_a_function_where_the_data_are_not(monkeypatch):
    """A function that is NaN at x = 0 must not meet padded rows of zeros."""
    features = ep.FunctionFeatures(
        lambda theta, x: jnp.log(x) * theta[0], np.linspace(1, 2, 5), dim=1
    )
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", 6)
    particles = jnp.ones((3, 1))
    assert np.isfinite(features.average(particles)).all()
    assert np.isfinite(features.pull(particles, jnp.ones(5))).all()


def test_a_gaussian_kernel_is_a_density():
    grid = jnp.linspace(-8, 8, 4001)[:, None]
    total = ep.GaussianKernel([0.3, -1.0], bandwidth=0.5).average(grid, jnp.full(4001, 16 / 4000))
    np.testing.assert_allclose(total, 1, rtol=1e-5)


def test_gaussian_kernels_keep_their_digits_far_from_the_origin():
    """Differences, not |a|^2 + |b|^2 - 2ab: at 1e3 the latter loses everything in float32."""
    near, far = ep.GaussianKernel([0.0, 0.25], 0.5), ep.GaussianKernel([1024.0, 1024.25], 0.5)
    np.testing.assert_allclose(
        far.average(jnp.full((1, 1), 1024.125)), near.average(jnp.full((1, 1), 0.125)), rtol=1e-6
    )


def test_a_network_is_its_formula():
    features = ep.Neurons(X, activation="sigmoid", bias=True, output_weight=True, scale=3.0)
    theta = np.array([[0.3, -0.2, 0.5, 0.1, 0.7]])
    expected = 3 * np.tanh(0.7) / (1 + np.exp(-(X @ theta[0, :3] + 0.1)))
    np.testing.assert_allclose(
        features.average(jnp.asarray(theta, jnp.float32)), expected, rtol=1e-5
    )


def test_at_evaluates_elsewhere(case):
    features, particles, _ = case
    rows = np.asarray(features.rows)[::-1]
    np.testing.assert_allclose(
        features.at(rows).average(particles), features.average(particles)[::-1], rtol=1e-12
    )
