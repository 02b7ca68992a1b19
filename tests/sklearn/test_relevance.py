"""The relevance of inputs: known kernels, gradients, and inputs that do not matter."""

import numpy as np
import pytest
from scipy.special import erf
from sklearn.datasets import make_friedman1

from entroplay.sklearn.relevance import _kernel, negative_evidence, relevance_of
from entroplay.sklearn.scaling import Standardiser

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("relu", [True, False])
def test_the_kernel_is_the_mean_over_the_prior(relu):
    """Of two rows, against a million draws of (w, b) ~ N(0, I)."""
    X = np.array([[0.3, -0.8, 1.0], [1.1, 0.4, 1.0]])  # the last column is the bias
    draws = np.random.default_rng(1).normal(size=(1_000_000, 3)) @ X.T
    # max(0, z) gives half of the arc-cosine kernel; erf(z) the arc-sine kernel.
    values = np.sqrt(2) * np.maximum(draws, 0) if relu else erf(draws)
    products = values[:, :, None] * values[:, None, :]
    error = products.std(axis=0) / 1000
    assert (np.abs(_kernel(X @ X.T, relu)[0] - products.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize("relu", [True, False])
def test_the_evidence_and_its_gradient(relu):
    """The value against the normal log-density, the gradient against central differences."""
    X, y = RNG.normal(size=(15, 3)), RNG.normal(size=(15, 2))
    weights = RNG.dirichlet(np.ones(15) * 5)
    logs = 0.3 * RNG.normal(size=6)
    value, gradient = negative_evidence(logs, X, y, weights, relu)
    s = np.exp(logs)
    covariance = s[4] ** 2 * _kernel((X * s[:3]) @ (X * s[:3]).T + s[3] ** 2, relu)[0]
    covariance += np.diag(s[5] ** 2 / (15 * weights))
    _, log_det = np.linalg.slogdet(covariance)
    expected = np.sum(y * np.linalg.solve(covariance, y)) / 2 + log_det  # two targets: 2 log det/2
    expected += np.sum(logs[:3] ** 2) / 8
    assert value == pytest.approx(expected / 30, rel=1e-10)
    for j in range(6):
        step = np.zeros(6)
        step[j] = 1e-5
        up, down = (
            negative_evidence(logs + sign * step, X, y, weights, relu)[0] for sign in (1, -1)
        )
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("relu", [True, False])
def test_inputs_that_do_not_matter_shrink(relu):
    """Friedman's first function depends on five of its ten inputs, on the first three not linearly.

    A linear effect needs hardly any curvature of the neurons, so that its input shrinks, too.
    """
    X, y = make_friedman1(200, noise=1.0, random_state=0)
    weights = np.full(200, 1 / 200)
    X, y = Standardiser.of(X, weights)(X), Standardiser.of(y[:, None], weights)(y[:, None])
    factors = relevance_of(X, y, weights, relu=relu, seed=0)
    assert factors[:3].min() > 3 * factors[5:].max()
    assert weights @ ((X * factors) ** 2).sum(axis=1) == pytest.approx(1)
    # The order of the rows matters only by rounding, which the search for the maximum amplifies.
    backwards = relevance_of(X[::-1], y[::-1], weights, relu=relu, seed=0)
    np.testing.assert_allclose(backwards, factors, rtol=1e-3)


def test_small_tables_and_single_inputs_are_left_alone():
    for n, p in ((10, 4), (50, 1)):
        X, y = RNG.normal(size=(n, p)), RNG.normal(size=(n, 1))
        found = relevance_of(X, y, np.full(n, 1 / n), relu=True, seed=0)
        np.testing.assert_array_equal(found, np.full(p, 1 / np.sqrt(p)))
