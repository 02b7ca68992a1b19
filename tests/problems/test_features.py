"""Laws of the feature maps: transposes, gradients, tiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import FEATURES, X, elsewhere, exported

import entroplay as ep
from entroplay.problems import features as package
from entroplay.problems.features import tiles

M = 23


@pytest.fixture(params=list(FEATURES))
def case(request):
    """The map in float64, a cloud, and a vector to pair it with."""
    with jax.enable_x64(True):
        features = FEATURES[request.param]()
        rng = np.random.default_rng(1)
        yield (
            features,
            jnp.asarray(rng.normal(size=(M, features.dim))),
            jnp.asarray(rng.normal(size=features.shape)),
        )


def test_every_feature_map_is_in_the_table():
    missing = exported(package, ep.FeatureMap) - {type(make()) for make in FEATURES.values()}
    assert not missing, f"add a line to FEATURES in tests/problems/cases.py for {missing}"


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
    for i in range(features.shape[0]):
        np.testing.assert_allclose(
            covariance[i], np.cov(values[:, i], rowvar=False), rtol=1e-9, atol=1e-13
        )


def test_values_stay_within_the_bounds(case):
    features, particles, _ = case
    low, high = features.bounds
    values = np.asarray(features.values(20 * particles, features.rows))
    # The coverage of a pixel is a difference of areas and may be off by rounding.
    room = 1e-12 if isinstance(features, ep.Triangles) else 0
    assert (values >= low - room).all()
    assert (values <= high + room).all()


@pytest.mark.parametrize(
    ("elements", "tile_particles"),
    [
        (40, 7),
        pytest.param(M * 4, M, marks=pytest.mark.slow),
        pytest.param(1, 1, marks=pytest.mark.slow),
    ],
)
def test_tiles_change_nothing(case, monkeypatch, elements, tile_particles):
    features, particles, vector = case
    weights = jnp.linspace(-1, 2, M)

    def operations():
        """All of them in one program, traced anew: sizes of tiles are read when tracing."""
        return jax.jit(
            lambda particles, weights, vector: (
                features.average(particles, weights),
                features.potential_and_pull(particles, vector),
                features.mean_and_covariance(particles),
            )
        )(particles, weights, vector)

    whole = operations()
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
    monkeypatch.setattr(tiles, "TILE_PARTICLES", tile_particles)
    tiled = operations()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13), whole, tiled
    )


def test_no_array_is_larger_than_a_tile():
    """Every intermediate array of a problem whose feature matrix has 10^9 entries."""
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
    """A function that is NaN at x = 0 must not be evaluated at padded rows of zeros."""
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
    """The kernel uses differences: |a|^2 + |b|^2 - 2ab loses every digit in float32 at 1e3."""
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
    there = features.at(elsewhere(features))
    np.testing.assert_allclose(
        there.average(particles),
        np.mean(np.asarray(there.values(particles, there.rows)), axis=0),
        rtol=1e-12,
        atol=1e-13,
    )
    if isinstance(features, ep.Triangles):  # given by the size of a canvas, not by rows
        return
    rows = np.asarray(features.rows)[::-1]
    np.testing.assert_allclose(
        features.at(rows).average(particles), features.average(particles)[::-1], rtol=1e-12
    )


def test_factors_multiply_to_the_values(case):
    """h_rik = u_ri v_rk, and `average` and `potential` use it without forming h."""
    features, particles, vector = case
    factors = features.factors(particles, features.rows)
    assert (factors is not None) == (isinstance(features, ep.Neurons) and bool(features.channels))
    if factors is None:
        return
    u, v = factors
    values = np.asarray(features.values(particles, features.rows))
    np.testing.assert_allclose(u[:, :, None] * v[:, None, :], values, atol=1e-12)
    weights = np.random.default_rng(4).normal(size=M)
    np.testing.assert_allclose(
        features.average(particles, jnp.asarray(weights)),
        np.einsum("r,rik->ik", weights, values),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        features.potential(particles, vector), np.einsum("rik,ik->r", values, vector), atol=1e-12
    )


def test_square_norms_are_those_of_the_values(case):
    features, particles, _ = case
    weights = np.random.default_rng(5).uniform(size=features.shape[0])
    values = np.asarray(features.values(particles, features.rows)).reshape(M, len(weights), -1)
    np.testing.assert_allclose(
        features.square_norms(particles, jnp.asarray(weights)),
        np.einsum("i,rik->r", weights, values**2),
        rtol=1e-11,
        atol=1e-13,
    )
