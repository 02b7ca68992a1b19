"""Triangles as a feature map: its laws, its resolutions, and solvers that use it.

The areas themselves are tested in `test_raster.py`, the laws of all maps in `test_features.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import entroplay as ep


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("colour", ["linear", "tanh"])
def test_the_feature_map_keeps_its_laws(colour, channels):
    """The fast operations against `values`, and `pull` as the derivative of `potential`."""
    rng = np.random.default_rng(7)
    with jax.enable_x64(True):
        features = ep.Triangles((11, 13), channels=channels, scale=2.0, spread=1.3, colour=colour)
        particles = jnp.asarray(0.3 * rng.normal(size=(9, features.dim)))
        matrix = np.asarray(features.values(particles, features.rows))
        weights, vector = (
            jnp.asarray(rng.normal(size=9)),
            jnp.asarray(rng.normal(size=features.shape)),
        )
        np.testing.assert_allclose(
            features.average(particles, weights), np.tensordot(weights, matrix, 1), atol=1e-12
        )
        potential, pull = features.potential_and_pull(particles, vector)
        np.testing.assert_allclose(potential, np.tensordot(matrix, vector, vector.ndim), atol=1e-11)
        mean, covariance = features.mean_and_covariance(particles)
        np.testing.assert_allclose(mean, matrix.mean(axis=0), atol=1e-12)
        deviation = (matrix - matrix.mean(axis=0)).reshape(9, features.shape[0], -1)
        expected = np.einsum("rnk,rnl->nkl", deviation, deviation) / 8
        np.testing.assert_allclose(
            covariance, expected if channels == 3 else expected[:, 0, 0], atol=1e-12
        )
        rows = jnp.asarray(rng.uniform(size=features.shape[0]))
        norms = np.einsum("n,rnk->r", rows, matrix.reshape(9, features.shape[0], -1) ** 2)
        np.testing.assert_allclose(features.square_norms(particles, rows), norms, atol=1e-11)
        step = 1e-6
        for c in range(features.dim):
            shift = jnp.zeros((1, features.dim)).at[0, c].set(step)
            up, down = (features.potential(particles + s * shift, vector) for s in (1, -1))
            np.testing.assert_allclose(pull[:, c], (up - down) / (2 * step), atol=1e-6)


def test_a_picture_means_the_same_at_every_resolution():
    """Averages over blocks of a larger picture's pixels are the smaller picture.

    Exact coverage commutes with shrinking.
    """
    rng = np.random.default_rng(8)
    small = ep.Triangles((20, 30))
    particles = jnp.asarray(0.3 * rng.normal(size=(50, 9)), jnp.float32)
    large = small.at((60, 90))
    blocks = np.asarray(large.picture(particles)).reshape(20, 3, 30, 3, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(blocks, small.picture(particles), atol=1e-5)


@pytest.mark.parametrize("solver", [ep.MFLD(0.02), ep.EFP(0.1, ep.ULA(step_size=0.02, steps=5))])
def test_solvers_take_triangles_like_any_other_features(solver):
    """The target is a white square on black: a quarter of its variance is left at most."""
    target = np.zeros((16, 16, 1))
    target[4:12, 4:12] = 1
    features = ep.Triangles((16, 16), channels=1, scale=5.0)
    problem = ep.FiniteSum(features, ep.Squared(target.ravel()), temperature=1e-4, l2=2e-4)
    solution = ep.solve(problem, solver, particles=100, iterations=150)
    picture = np.asarray(solution.predict((16, 16))).reshape(16, 16)
    assert np.mean((picture - target[..., 0]) ** 2) < 0.25 * np.mean((target - target.mean()) ** 2)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"size": (0, 5)}, "whole number"),
        ({"size": 5}, "size"),
        ({"size": (5, 5), "channels": 2}, "channels"),
        ({"size": (5, 5), "scale": -1}, "scale"),
        ({"size": (5, 5), "spread": 0}, "spread"),
        ({"size": (5, 5), "colour": "loud"}, "colour"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        ep.Triangles(**arguments)
