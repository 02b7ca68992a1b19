"""Calibrated weights: closed form, exactness on the training rows, and better predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import ALL, squared
from sklearn.datasets import make_friedman1

import entroplay as ep
from entroplay.measures import calibration, cloud
from entroplay.measures.calibration import calibrated_weights, prediction_weights, trustworthy


@pytest.mark.parametrize(("kept", "direct"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("name", list(ALL))
def test_weights_are_the_ridge_regression_in_closed_form(name, kept, direct, monkeypatch):
    """min sum_i w_i |A_i' u - H_i|^2 + ridge |u - 1/m|^2 subject to sum u = 1, by NumPy."""
    if not kept:
        monkeypatch.setattr(cloud, "KEPT_ELEMENTS", 0)
    monkeypatch.setattr(calibration, "RIDGE", 1e-3)
    monkeypatch.setattr(calibration, "LEAST_RIDGE", 1e-5 if direct else 1.0)
    monkeypatch.setattr(calibration, "TOLERANCE", 1e-12)
    with jax.enable_x64(True):
        problem = ALL[name]()
        particles = problem.prior(jax.random.key(0), 37 if kept else 41)
        m = len(particles)
        moments = problem.features.average(particles) * 1.05 + 0.01
        weights = np.asarray(calibrated_weights(problem, particles, moments))
        A = np.asarray(problem.features.values(particles, problem.features.rows)).reshape(m, -1)
        k = A.shape[1] // problem.weights.size
        w = np.repeat(np.asarray(problem.weights), k)
        centred = (A - A.mean(axis=0)) * np.sqrt(w)
        ridge = 1e-3 * m * np.sum(w * A.var(axis=0, ddof=1))
        target = np.sqrt(w) * (np.asarray(moments).ravel() - A.mean(axis=0))
        expected = 1 / m + centred @ np.linalg.solve(
            centred.T @ centred + ridge * np.eye(A.shape[1]), target
        )
    np.testing.assert_allclose(weights, expected, rtol=1e-7, atol=1e-10)
    assert weights.sum() == pytest.approx(1, abs=1e-10)


def test_the_training_moments_are_met():
    problem = squared(d=2)
    solution = ep.solve(problem, particles=300, iterations=40)
    plain = np.asarray(problem.features.average(solution.particles))
    weighted = np.asarray(solution.predict(np.asarray(problem.features.rows)))
    before, after = (np.mean((p - np.asarray(solution.moments)) ** 2) for p in (plain, weighted))
    assert after < 1e-6
    assert after < before / 50


def test_a_cloud_that_has_its_moments_keeps_plain_weights():
    solution = ep.solve(squared(), ep.MFLD(0.1), particles=50, iterations=5)
    np.testing.assert_allclose(solution.weights, 1 / 50, rtol=1e-4)


@pytest.mark.slow
def test_calibrated_predictions_of_friedman1_are_ten_times_closer_to_those_of_50000_particles():
    X, y = make_friedman1(900, 10, noise=1, random_state=0)
    X, y = (X - 0.5) * np.sqrt(12), (y - y.mean()) / y.std()
    features = ep.Neurons(X[:600], bias=True, output_weight=True, scale=10.0)
    problem = ep.FiniteSum(features, ep.Squared(y[:600]), temperature=1e-3, l2=1e-2)
    small = ep.solve(problem, particles=1000, iterations=100)
    large = ep.solve(problem, particles=50_000, iterations=30, seed=5)
    assert large.history["beta"][-1] == 1
    # The calibrated prediction of the large run: the mean of six runs of 1,000 particles agrees
    # with it to 1e-4. Its plain mean is off by 3e-3, since J is about 1e4 here: the cloud magnifies
    # the smallest error of the moments.
    reference = np.asarray(large.predict(X[600:]))
    plain = np.asarray(features.at(X[600:]).average(small.particles))
    weighted = np.asarray(small.predict(X[600:]))
    ratio = np.mean((plain - reference) ** 2) / np.mean((weighted - reference) ** 2)
    assert ratio >= 10


def test_weights_stay_finite_when_a_run_diverges():
    features = ep.FunctionFeatures(lambda theta, x: jnp.exp(theta[0] * x), [1.0, 100.0], dim=1)
    problem = ep.FiniteSum(features, ep.Squared([1.0, 2.0]), temperature=10.0, l2=0.1)
    solution = ep.solve(problem, ep.EFP(0.1, ep.ULA()), particles=50, iterations=10)
    np.testing.assert_allclose(solution.weights, 1 / 50)


def test_wild_weights_are_not_used():
    """A cloud that has left most rows: weights of hundreds of both signs would reproduce them."""
    X = np.round(np.random.default_rng(2).normal(size=10) * 3)
    problem = ep.FiniteSum(
        ep.GaussianKernel(X, bandwidth=0.7), ep.NegLog(), temperature=0.01, l2=0.01
    )
    # Draws far from all rows but one, and moments that only a solver elsewhere can have found.
    particles = X[3] + 0.1 * jax.random.normal(jax.random.key(0), (500, 1))
    moments = jnp.full(10, 0.03)
    assert not trustworthy(calibrated_weights(problem, particles, moments))
    weights, complaint = prediction_weights(problem, particles, moments)
    assert (np.asarray(weights) >= 0).all()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-3)
    assert "too uneven to be used" in complaint


@pytest.mark.parametrize("seed", range(4))
def test_weights_of_a_cold_density_are_never_wild(seed):
    """Ten rows of rounded normals, some of which the cloud leaves as it gets cold."""
    X = np.round(np.random.default_rng(seed).normal(size=10) * 3)
    problem = ep.FiniteSum(
        ep.GaussianKernel(X, bandwidth=0.7), ep.NegLog(), temperature=0.01, l2=0.01
    )
    solution = ep.solve(problem, particles=500, iterations=50, seed=2)
    assert trustworthy(solution.weights)
    calibrated = calibrated_weights(problem, solution.particles, solution.moments)
    assert trustworthy(calibrated) or "too uneven to be used" in solution.status.message


@pytest.mark.parametrize(
    ("weights", "fine"),
    [
        ([0.25, 0.25, 0.25, 0.25], True),
        ([-0.5, 0.5, 0.5, 0.5], True),
        ([0.3, 0.3, 0.3, 0.3], False),
        ([np.nan, 0.5, 0.5, 0.0], False),
        ([-380.0, 381.0, 0.0, 0.0], False),
    ],
)
def test_which_weights_are_trustworthy(weights, fine):
    assert trustworthy(jnp.asarray(weights)) == fine
