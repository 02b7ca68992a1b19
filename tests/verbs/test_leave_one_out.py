"""Leave-one-out: against problems solved again without the row, and the kernel limit."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import entroplay as ep
from entroplay.measures import cloud_dual
from entroplay.measures.cloud import SeenCloud
from entroplay.measures.cloud_dual import maximise_on_cloud
from entroplay.measures.influence import left_out_moments
from entroplay.measures.quadrature import in_double
from entroplay.verbs.leave_one_out import HONEST

GRID = np.linspace(-7, 7, 61)


def solved_on_prior(problem):
    """Newton's solve on a grid of standard normal parameters, compiled once for all row weights."""
    points = np.stack(np.meshgrid(*[GRID] * problem.dim, indexing="ij"), -1).reshape(
        -1, problem.dim
    )
    problem = in_double(problem)
    cloud = SeenCloud.all_values(problem.features, jnp.asarray(points))
    log_base = jnp.asarray(-(points**2).sum(axis=1) / 2)

    @jax.jit
    def solve(weights, start):
        posed = eqx.tree_at(lambda p: p.weights, problem, weights)
        solved = maximise_on_cloud(posed, cloud, log_base, 1.0, start)
        return solved, left_out_moments(posed, solved.point.moments, solved.blocks)

    prior = jax.nn.softmax(log_base)
    return problem, solve, cloud.average(prior)


def small_problem(loss, n, temperature):
    """A network or a mixture with a standard normal prior in two parameters."""
    rng = np.random.default_rng(n)
    x = rng.uniform(-2, 2, size=n)
    noise = rng.normal(size=n)
    l2 = temperature / 2
    if loss == "negative_log":
        features = ep.GaussianKernel(np.c_[x, noise], bandwidth=1.2)
        return ep.FiniteSum(features, ep.NegLog(), temperature=temperature, l2=l2)
    features = ep.Neurons(x[:, None], bias=True, scale=4.0)
    if loss == "squared":
        return ep.FiniteSum(
            features, ep.Squared(np.sin(2 * x) + 0.3 * noise), temperature=temperature, l2=l2
        )
    labels = np.where(np.sin(2 * x) + 0.5 * noise > 0, 1, -1)
    if loss == "logistic":
        return ep.FiniteSum(features, ep.Logistic(labels), temperature=temperature, l2=l2)

    def three(theta, row):
        hidden = jnp.tanh(theta[0] * row[0] + theta[1])
        return 4 * jnp.stack([hidden, hidden**2, -hidden])

    classes = np.digitize(np.sin(2 * x) + 0.3 * noise, [-0.4, 0.4])
    features = ep.FunctionFeatures(three, x[:, None], dim=2)
    return ep.FiniteSum(features, ep.CrossEntropy(classes, 3), temperature=temperature, l2=l2)


@pytest.mark.parametrize(
    ("loss", "n"),
    [
        ("squared", 30),
        ("cross_entropy", 30),
        *(
            pytest.param(loss, n, marks=pytest.mark.slow)
            for loss, n in [
                ("squared", 60),
                ("logistic", 30),
                ("logistic", 60),
                ("cross_entropy", 60),
                ("negative_log", 30),
                ("negative_log", 60),
            ]
        ),
    ],
)
def test_leaving_out_a_row_agrees_with_solving_without_it(loss, n):
    """The formula is exact to first order in the row's weight, with exact expectations here.

    What it neglects is the change of the covariance and of the curvature, which is of second order:
    the error must be a small part of the change itself, for losses and for single rows.
    """
    with jax.enable_x64(True):
        problem, solve, start = solved_on_prior(small_problem(loss, n, 0.03))
        whole, left_out = solve(problem.weights, start)
        refits = []
        for i in range(n):
            # The other rows keep their weights 1/n: the loss is divided by n as before.
            weights = problem.weights.at[i].set(0)
            refits.append(np.asarray(solve(weights, whole.point.moments)[0].point.moments[i]))
        refits, left_out = np.array(refits), np.asarray(left_out)
        moments = np.asarray(whole.point.moments)
        if loss == "cross_entropy":
            # Adding a constant to all channels does not change the loss.
            refits, left_out, moments = (
                a - a.mean(axis=1, keepdims=True) for a in (refits, left_out, moments)
            )
        change, error = refits - moments, left_out - refits
        assert np.linalg.norm(error) < 0.15 * np.linalg.norm(change)
        values = [
            float(problem.weights @ problem.loss.value(jnp.asarray(h)))
            for h in (moments, refits, left_out)
        ]
        fitted, exact, formula = values
    assert exact > fitted
    assert abs(formula - exact) < 0.15 * (exact - fitted)


def kernel_problem(n, kappa, temperature):
    """h = sqrt(kappa T) tanh(theta x) with theta ~ N(0, 1): its mean under the prior is zero."""
    x = np.linspace(0.2, 2.5, n)
    features = ep.Neurons(x[:, None], scale=float(np.sqrt(kappa * temperature)))
    y = np.cos(2 * x)
    problem = ep.FiniteSum(features, ep.Squared(y), temperature=temperature, l2=temperature / 2)
    theta = np.linspace(-9, 9, 20001)
    density = np.exp(-(theta**2) / 2)
    phi = np.tanh(theta[:, None] * x)
    K = (phi.T * (density / density.sum())) @ phi
    return problem, y, K @ np.linalg.inv(K + n / kappa * np.eye(n))


def test_the_kernel_limit_has_the_moments_influence_and_residuals_of_ridge_regression(
    monkeypatch,
):
    """As T grows with scale = sqrt(kappa T), exponents are O(1/sqrt(T)) and the problem becomes
    kernel ridge regression: H = S y with S = K (K + (n/kappa) I)^{-1}. The next order is O(1/T)."""
    # The points of a grid have no sampling noise, by which the solve's precision is measured.
    monkeypatch.setattr(cloud_dual, "PRECISION", 0.0)
    n, kappa = 12, 40.0
    for temperature, tolerance in ((1e4, 1e-3), (1e6, 1e-5)):
        problem, y, S = kernel_problem(n, kappa, temperature)
        with jax.enable_x64(True):
            problem, solve, start = solved_on_prior(problem)
            solved, left_out = solve(problem.weights, start)
            moments = np.asarray(solved.point.moments)
            np.testing.assert_allclose(moments, S @ y, atol=tolerance)
            np.testing.assert_allclose(np.asarray(solved.blocks), S.diagonal(), atol=tolerance)
            assert float(solved.d_eff) == pytest.approx(np.trace(S), abs=tolerance * n)
            residuals = (y - S @ y) / (1 - S.diagonal())
            np.testing.assert_allclose(y - np.asarray(left_out), residuals, atol=3 * tolerance)


def test_a_run_has_the_kernel_limit_within_its_sampling_error():
    """H of one cloud has the error (I + J)^{-1} eps, where eps has covariance Cov(h)/m.

    In the limit J = (kappa/n) K, Cov(h) = kappa T K and (I + J)^{-1} = I - S. The run averages k
    clouds; successive ones are correlated, so the error of a single cloud is the bound, at five
    standard errors for each of twelve numbers. At T = 10^4 the bias of the limit is below 1e-3.
    """
    n, kappa, temperature, m = 12, 40.0, 1e4, 4000
    problem, y, S = kernel_problem(n, kappa, temperature)
    # Cov(h) = kappa T K and K = (n/kappa) S (I - S)^{-1}.
    rest = np.eye(n) - S
    covariance = n * temperature * S @ np.linalg.inv(rest)
    error = np.sqrt((rest @ covariance @ rest.T).diagonal() / m)
    solution = ep.solve(problem, particles=m, iterations=25)
    moments = np.asarray(solution.moments, np.float64)
    assert (np.abs(moments - S @ y) < 5 * error + 1e-3).all()
    result = ep.leave_one_out(solution)
    assert result.d_eff == pytest.approx(np.trace(S), rel=0.1)
    slack = (5 * error + 1e-3) / (1 - S.diagonal()) + 0.1 * np.abs(y)
    assert (np.abs(result.moments - (y - (y - S @ y) / (1 - S.diagonal()))) < slack).all()


@pytest.mark.slow
def test_a_flexible_fit_is_called_too_optimistic():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    features = ep.Neurons(X, "relu", bias=True, output_weight=True, scale=10.0)
    problem = ep.FiniteSum(features, ep.Squared(y), temperature=1e-4, l2=5e-5)
    cold = ep.solve(problem, iterations=30)
    with pytest.warns(ep.OptimisticWarning, match="too optimistic"):
        result = ep.leave_one_out(cold)
    assert result.per_row > HONEST
    warm = ep.FiniteSum(features, ep.Squared(y), temperature=3.0, l2=1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ep.OptimisticWarning)
        result = ep.leave_one_out(ep.solve(warm, iterations=10))
    assert result.too_optimistic == ""
    assert "effective degrees of freedom at temperature 3" in str(result)


@pytest.mark.slow
def test_labels_that_are_fitted_closely_are_called_too_optimistic():
    """Few degrees of freedom are left where labels are fitted closely, so these cannot tell."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4200, 5)) / np.sqrt(5)
    labels = np.where(np.sqrt(5) * X[:, 0] + 0.5 * rng.normal(size=4200) > 0, 1.0, -1.0)
    features = ep.Neurons(X[:200], "relu", bias=True, output_weight=True, scale=10.0)

    def judged(temperature):
        loss = ep.Logistic(labels[:200])
        problem = ep.FiniteSum(features, loss, temperature=temperature, l2=temperature / 2)
        solution = ep.solve(problem, particles=1000, iterations=30)
        new = ep.Logistic(labels[200:]).value(jnp.asarray(solution.predict(X[200:])))
        return solution, float(new.mean()), float(new.std(ddof=1) / np.sqrt(4000))

    cold, _, _ = judged(1e-4)
    with pytest.warns(ep.OptimisticWarning, match="times the training loss"):
        result = ep.leave_one_out(cold)
    assert result.per_row < HONEST
    warm, truth, error = judged(1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ep.OptimisticWarning)
        result = ep.leave_one_out(warm)
    assert result.loss == pytest.approx(truth, abs=3 * np.hypot(error, result.error))


def test_leave_one_out_asks_for_a_solution():
    with pytest.raises(ValueError, match="'solution' parameter of leave_one_out"):
        ep.leave_one_out("nothing")
