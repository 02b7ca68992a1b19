"""Whole runs against answers in closed form or by quadrature.

The errors that are allowed are computed.
"""

import numpy as np
import pytest
from problems.cases import linear, logistic, negative_log, squared
from scipy.linalg import solve_discrete_lyapunov

import entroplay as ep

RATE = 0.1


def efp_mean_variance(hessian, problem, m, cloud_variance, rate=RATE):
    """The variance of EFP's final particle mean along each eigenvector of the Hessian.

    This holds for linear features and well-mixed chains. With A = hessian/(2 l2) and an eigenvalue
    a, the Gibbs centre is b - A x, where x is the running mean of cloud means:
    x <- (1 - rate) x + rate (b - a x + e), e ~ N(0, v/m).
    Hence Var x = rate v/m / ((1 + a)(2 - rate (1 + a))), and the last cloud's mean b - a x + e has
    the variance v/m (1 + a^2 rate / ((1 + a)(2 - rate (1 + a)))).
    """
    a = np.linalg.eigvalsh(hessian) / (2 * problem.l2)
    assert (rate < 2 / (1 + a)).all()
    return cloud_variance / m * (1 + a**2 * rate / ((1 + a) * (2 - rate * (1 + a))))


def whitened(vector, hessian):
    """The coordinates of a vector in the eigenbasis that `efp_mean_variance` uses."""
    return np.linalg.eigh(hessian)[1].T @ vector


def check_gaussian(cloud, centre, hessian, variance, mean_variance):
    m = len(cloud)
    z_mean = whitened(cloud.mean(axis=0) - centre, hessian) / np.sqrt(mean_variance)
    assert np.abs(z_mean).max() < 4
    deviation = np.cov(cloud, rowvar=False) - variance * np.eye(2)
    # The standard errors of a normal sample's covariance: v sqrt(2/m) on the diagonal, v/sqrt(m)
    # off it.
    errors = variance * np.array([[np.sqrt(2), 1], [1, np.sqrt(2)]]) / np.sqrt(m)
    assert np.abs(deviation / errors).max() < 4


@pytest.mark.slow
def test_efp_with_mala_finds_the_gaussian_optimum():
    problem, centre, hessian = linear()
    m = 4000
    solution = ep.solve(problem, ep.EFP(RATE, ep.MALA(steps=30)), particles=m, iterations=100)
    variance = problem.temperature / (2 * problem.l2)
    check_gaussian(
        np.asarray(solution.particles),
        centre,
        hessian,
        variance,
        efp_mean_variance(hessian, problem, m, variance),
    )
    assert np.linalg.norm(centre) > 2 * np.sqrt(variance)


@pytest.mark.slow
def test_efp_with_ula_finds_it_within_its_bias():
    """ULA multiplies the variance by 1/(1 - step_size l2) = 1.25 here, ten standard errors."""
    problem, centre, hessian = linear()
    m, product = 8000, 0.2
    # The chains forget 1 - 0.6^15 of their start in each iteration.
    sampler = ep.ULA(step_size=product / problem.l2, steps=15)
    solution = ep.solve(problem, ep.EFP(RATE, sampler), particles=m, iterations=100)
    variance = problem.temperature / (2 * problem.l2 * (1 - product))
    check_gaussian(
        np.asarray(solution.particles),
        centre,
        hessian,
        variance,
        efp_mean_variance(hessian, problem, m, variance),
    )


def test_mfld_finds_it_within_its_bias():
    """Deviations from the cloud's mean follow ULA with curvature 2 l2.

    The mean follows gradient descent with curvature c = eig(hessian) + 2 l2 and noise
    2 step temperature/m: its stationary variance is (2 step temperature/m)/(1 - (1 - step c)^2).
    """
    problem, centre, hessian = linear()
    m, product = 8000, 0.1
    step = product / problem.l2
    curvature = np.linalg.eigvalsh(hessian) + 2 * problem.l2
    assert (step * curvature < 2).all()
    solution = ep.solve(problem, ep.MFLD(step), particles=m, iterations=200)
    variance = problem.temperature / (2 * problem.l2 * (1 - product))
    mean_variance = 2 * step * problem.temperature / m / (1 - (1 - step * curvature) ** 2)
    check_gaussian(np.asarray(solution.particles), centre, hessian, variance, mean_variance)
    assert np.isnan(solution.history["gap"]).all()


PROBLEMS = {
    "logistic d=1": lambda: logistic(),
    "logistic d=2": lambda: logistic(d=2),
    # Hot enough for chains to cross between the clusters.
    "negative log d=1": lambda: negative_log(temperature=0.3, l2=0.1),
    "squared d=2": lambda: squared(d=2),
}


@pytest.mark.slow  # test_solvers.py holds EFP against the oracle in every run
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_efp_agrees_with_the_oracle_in_moments(name):
    """The covariance of H - H* solves a discrete Lyapunov equation, with J and C from the grid.

    In a stationary EFP run H - H* obeys, to first order, x <- (I - rate (I + J)) x + rate e with
    Cov e = C/m. The cloud's own mean adds e. Every row must be within 4.5 standard errors (the rows
    are few and strongly correlated). The second-order bias is O(1/m).
    """
    problem = PROBLEMS[name]()
    exact = ep.grid.solve(problem, iterations=0, points=None if problem.dim == 1 else 151)
    quadrature, m = exact.quadrature, 4000
    rate = min(RATE, 0.5 * exact.stability_limit)
    solution = ep.solve(
        problem, ep.EFP(rate, ep.MALA(steps=30)), particles=m, iterations=int(12 / rate)
    )
    density, _ = quadrature.gibbs(exact.dual_vector)
    C = quadrature.covariance(density)
    J = C * quadrature.weighted_curvature(exact.moments) / problem.temperature
    A = np.eye(len(C)) - rate * (np.eye(len(C)) + J)
    covariance = solve_discrete_lyapunov(A, rate**2 * C / m)
    z = (np.asarray(solution.moments) - exact.moments) / np.sqrt(np.diag(covariance))
    assert np.abs(z).max() < 4.5
    z = (np.asarray(problem.features.average(solution.particles)) - exact.moments) / np.sqrt(
        np.diag(J @ covariance @ J.T + C / m)
    )
    assert np.abs(z).max() < 4.5
    # The errors are small against what is estimated: the test could fail.
    assert np.sqrt(np.diag(covariance)).max() < 0.05 * np.ptp(exact.moments)


@pytest.mark.slow
def test_the_histories_gap_estimates_the_true_one():
    """At the end of a run the plug-in gap would be about half the mean square noise.

    The history's gap has no such bias: in 500 stationary iterations it agrees with the true gap of
    H, computed on the grid from H itself, within 4 standard errors of the mean difference.
    """
    problem = squared(temperature=0.2, l2=0.1)
    exact = ep.grid.solve(problem, iterations=0)
    truths, seen = [], []

    def record(report):
        seen.append(np.asarray(report.moments, np.float64))

    solution = ep.solve(
        problem, ep.EFP(0.3, ep.MALA(steps=20)), particles=200, iterations=600, callback=record
    )
    # Entry t of the history is the gap of the dual with which iteration t began, that is, of H
    # after iteration t - 1.
    for t in range(100, 600):
        density, _ = exact.quadrature.gibbs(exact.quadrature.slope(seen[t - 1]))
        residual = exact.quadrature.moments(density) - seen[t - 1]
        truths.append(0.5 * np.asarray(problem.weights, np.float64) @ residual**2)
    difference = solution.history["gap"][100:600] - np.array(truths)
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    assert abs(difference.mean()) < 4 * error
    # The bias that was removed is many standard errors: without the correction the test would fail.
    density, _ = exact.quadrature.gibbs(exact.dual_vector)
    bias = 0.5 * np.asarray(problem.weights) @ np.diag(exact.quadrature.covariance(density)) / 200
    assert bias > 8 * error
