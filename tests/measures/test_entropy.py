"""The entropy of a cloud by nearest neighbours, and L of a cloud."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import polygamma

import entroplay as ep

M = 4000


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_entropy_of_a_gaussian(d):
    """The standard error is sqrt((Var log p + psi'(k))/m), with Var log p = d/2.

    The bias at 4000 points is below 0.02 for d <= 2, and -0.05 for d = 5 (the page on the iterate
    has the table).
    """
    scale = np.linspace(1, 2, d)
    draws = np.random.default_rng(0).normal(size=(M, d)) * scale
    truth = d / 2 * np.log(2 * np.pi * np.e) + np.log(scale).sum()
    error = np.sqrt((d / 2 + polygamma(1, 3)) / M)
    assert abs(ep.knn_entropy(draws) - truth) < 3 * error + (0.01 if d <= 2 else 0.07)


def test_entropy_obeys_shifts_and_scales():
    draws = np.random.default_rng(1).normal(size=(500, 3))
    base = ep.knn_entropy(draws)
    assert ep.knn_entropy(2 * draws + 5) == pytest.approx(base + 3 * np.log(2), abs=1e-9)


def test_entropy_refuses_copies_and_too_few_particles():
    copies = np.repeat(np.random.default_rng(2).normal(size=(50, 2)), 4, axis=0)
    with pytest.raises(ValueError, match="'particles' parameter of knn_entropy must be distinct"):
        ep.knn_entropy(copies)
    with pytest.raises(ValueError, match="'neighbours'"):
        ep.knn_entropy(np.eye(3), neighbours=3)


def test_the_objective_of_a_gaussian_cloud():
    """Features that vanish and targets zero: L(mu) = l2 E|theta|^2 - temperature entropy."""
    features = ep.FunctionFeatures(lambda theta, x: 0.0 * theta[0] * x, [1.0, 2.0], dim=2)
    problem = ep.FiniteSum(features, ep.Squared([0.0, 0.0]), temperature=0.3, l2=[0.1, 0.4])
    cloud = problem.prior(jax.random.key(0), M)
    penalty = float(jnp.mean(0.1 * cloud[:, 0] ** 2 + 0.4 * cloud[:, 1] ** 2))
    assert ep.objective(problem, cloud) == pytest.approx(
        penalty - 0.3 * ep.knn_entropy(cloud), rel=1e-6
    )
    with pytest.raises(ValueError, match="'particles' parameter of objective"):
        ep.objective(problem, cloud[:, :1])
