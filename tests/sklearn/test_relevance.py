"""The relevance of inputs: known kernels, gradients, and inputs that do not matter."""

import numpy as np
import pytest
from scipy.special import erf
from sklearn.datasets import make_friedman1

from entroplay.sklearn.relevance import kernel_of, negative_evidence, relevance_of
from entroplay.sklearn.scaling import Standardiser

RNG = np.random.default_rng(0)
ACTIVATIONS = {
    # max(0, z) gives half of the arc-cosine kernel.
    "relu": lambda z: np.sqrt(2) * np.maximum(z, 0),
    "erf": erf,
    "sine": np.sin,
}
every_kernel = pytest.mark.parametrize("activation", list(ACTIVATIONS))


@every_kernel
def test_the_kernel_is_the_mean_over_the_prior(activation):
    """Of two rows, against a million draws of (w, b) ~ N(0, I)."""
    X = np.array([[0.3, -0.8, 1.0], [1.1, 0.4, 1.0]])  # the last column is the bias
    draws = np.random.default_rng(1).normal(size=(1_000_000, 3)) @ X.T
    values = ACTIVATIONS[activation](draws)
    products = values[:, :, None] * values[:, None, :]
    error = products.std(axis=0) / 1000
    assert (np.abs(kernel_of(X @ X.T, activation)[0] - products.mean(axis=0)) < 4 * error).all()


@every_kernel
def test_the_evidence_and_its_gradient(activation):
    """The value against the normal log-density, the gradient against central differences."""
    X, y = RNG.normal(size=(15, 3)), RNG.normal(size=(15, 2))
    weights = RNG.dirichlet(np.ones(15) * 5)
    logs = 0.3 * RNG.normal(size=5)
    value, gradient = negative_evidence(logs, X, y, weights, activation, prior=2.0)
    s = np.exp(logs)
    kernel = kernel_of((X * s[:3]) @ (X * s[:3]).T + 1, activation)[0]
    covariance = s[3] ** 2 * (kernel + np.diag(s[4] ** 2 / (15 * weights)))
    _, log_det = np.linalg.slogdet(covariance)
    expected = np.sum(y * np.linalg.solve(covariance, y)) / 2 + log_det  # two targets: 2 log det/2
    expected += np.sum(logs[:3] ** 2) / 8
    assert value == pytest.approx(expected / 30, rel=1e-10)
    for j in range(5):
        step = np.zeros(5)
        step[j] = 1e-5
        up, down = (
            negative_evidence(logs + sign * step, X, y, weights, activation, prior=2.0)[0]
            for sign in (1, -1)
        )
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-8)


@every_kernel
def test_inputs_that_do_not_matter_shrink(activation):
    """Friedman's first function depends on five of its ten inputs, on the first three not linearly.

    A linear effect needs hardly any curvature of the neurons, so that its input shrinks, too.
    """
    X, y = make_friedman1(200, noise=1.0, random_state=0)
    weights = np.full(200, 1 / 200)
    X, y = Standardiser.of(X, weights)(X), Standardiser.of(y[:, None], weights)(y[:, None])
    factors = relevance_of(X, y, weights, activation=activation, seed=0).factors
    assert factors[:3].min() > 3 * factors[5:].max()
    if activation != "sine":
        assert weights @ ((X * factors) ** 2).sum(axis=1) == pytest.approx(1)
    # The order of the rows matters only by rounding, which the search for the maximum amplifies.
    backwards = relevance_of(X[::-1], y[::-1], weights, activation=activation, seed=0).factors
    np.testing.assert_allclose(backwards, factors, rtol=1e-3)


def test_the_evidence_tells_smooth_targets_from_kinks():
    x = np.linspace(-3, 3, 80)[:, None]
    weights = np.full(80, 1 / 80)
    gains = []
    for y in (np.sin(3 * x), np.abs(x) - 1.5):
        smooth, kinked = (
            relevance_of(x, y, weights, activation=a, seed=0).evidence for a in ("sine", "relu")
        )
        gains.append(smooth - kinked)
    assert gains[0] > 0.1 > 0 > gains[1]


def test_sine_finds_the_frequency_of_a_single_input():
    x = np.random.default_rng(3).uniform(-2, 2, 120)[:, None]
    weights = np.full(120, 1 / 120)
    slow, fast = (
        relevance_of(x, np.sin(f * x), weights, activation="sine", seed=0).factors[0]
        for f in (1.0, 6.0)
    )
    assert fast > 2 * slow


def test_small_tables_and_single_inputs_are_left_alone():
    found = relevance_of(
        RNG.normal(size=(10, 4)), RNG.normal(size=(10, 1)), np.full(10, 0.1), activation="relu",
        seed=0,
    )  # fmt: skip
    np.testing.assert_array_equal(found.factors, np.full(4, 0.5))
    assert np.isnan(found.evidence)
    x, weights = RNG.normal(size=(50, 1)), np.full(50, 1 / 50)
    x = Standardiser.of(x, weights)(x)
    found = relevance_of(x, RNG.normal(size=(50, 1)), weights, activation="relu", seed=0)
    assert found.factors == pytest.approx([1.0])
