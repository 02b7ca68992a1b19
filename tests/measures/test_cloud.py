"""A cloud's features, kept as a matrix, as two factors or not at all: the same moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import FEATURES, with_features

import entroplay as ep
from entroplay.measures import cloud as module
from entroplay.measures.cloud import SeenCloud, covariance_product

M = 23


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", list(FEATURES))
def test_moments_are_those_of_the_whole_array(name, kept, monkeypatch):
    """Averages, potentials and covariances against NumPy, with half of the particles as members."""
    if not kept:
        monkeypatch.setattr(module, "KEPT_ELEMENTS", 0)
    with jax.enable_x64(True):
        problem = with_features(name)
        features, rng = problem.features, np.random.default_rng(1)
        particles = jnp.asarray(rng.normal(size=(M, features.dim)))
        weights, vector = rng.normal(size=M), rng.normal(size=features.shape)
        members = (np.arange(M) % 2).astype(float)
        seen = SeenCloud.of(features, particles)
        assert (seen.matrix is not None) == (kept and features.keeps_values)
        assert seen.passes_per_product == (seen.matrix is None)
        flat = np.asarray(features.values(particles, features.rows)).reshape(M, -1)
        np.testing.assert_allclose(
            np.ravel(seen.average(jnp.asarray(weights))), weights @ flat, atol=1e-12
        )
        np.testing.assert_allclose(
            seen.potential(jnp.asarray(vector)), flat @ vector.ravel(), atol=1e-12
        )
        covariance = np.cov(flat[members == 1], rowvar=False, bias=True)
        np.testing.assert_allclose(
            seen.covariance_matrix(jnp.asarray(members)), covariance, atol=1e-12
        )
        product = covariance_product(problem, seen, jnp.asarray(vector), jnp.asarray(members))
        weighted = np.asarray(problem.weigh(jnp.asarray(vector))).ravel()
        np.testing.assert_allclose(np.ravel(product), covariance @ weighted, atol=1e-12)


def test_factors_give_the_moments_of_the_whole_array():
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(12, 3))
        features = ep.Neurons(rows, bias=True, output_weight=True, outputs=3, scale=2.0)
        cloud = jax.random.normal(jax.random.key(0), (40, features.dim))
        seen = SeenCloud.of(features, cloud)
        values = np.asarray(features.values(cloud, features.rows))
        mean, covariance = seen.mean_and_covariance()
        weights, vector = rng.normal(size=40), rng.normal(size=(12, 3))
        assert seen.outputs is not None
        np.testing.assert_allclose(mean, values.mean(axis=0), atol=1e-12)
        exact = [np.cov(values[:, i].T) for i in range(12)]
        np.testing.assert_allclose(covariance, exact, atol=1e-12)
        for found in (
            seen.average(jnp.asarray(weights)),
            features.average(cloud, jnp.asarray(weights)),
        ):
            np.testing.assert_allclose(found, np.einsum("r,rik->ik", weights, values), atol=1e-12)
        for found in (
            seen.potential(jnp.asarray(vector)),
            features.potential(cloud, jnp.asarray(vector)),
        ):
            np.testing.assert_allclose(found, np.einsum("rik,ik->r", values, vector), atol=1e-12)
