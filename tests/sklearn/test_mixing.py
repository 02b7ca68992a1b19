"""Mixing measures on a weighted support.

They are compared with quadrature, with another optimiser, and with laws of importance sampling.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

import entroplay as ep
from entroplay.measures.weights import systematic_indices
from entroplay.problems.datasets.real import load
from entroplay.sklearn.mixing import proposal, solve_on_support
from entroplay.sklearn.normals import in_blocks, log_sum_exp, square_distances
from entroplay.sklearn.support import MixingProblem, NewtonLog, optimum


def uniform(rows, width, temperature=0.1, variance=None):
    n, d = rows.shape
    return MixingProblem(
        rows, np.full(n, 1 / n), width, np.ones(d) if variance is None else variance, temperature
    )


def solved(problem, count=4096, seed=0, rounds=3, last=None, limit=100):
    return solve_on_support(
        problem, count, np.random.default_rng(seed), last=last, rounds=rounds, log=NewtonLog(limit)
    )


def moments(problem, support):
    """The moments at the rows in units of the density, and the height of the kernel."""
    height = (2 * np.pi * problem.width**2) ** (-problem.rows.shape[1] / 2)
    return height * (support.weights @ problem.kernel(support.points)), height


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_optimum_is_that_of_quadrature(d):
    rng = np.random.default_rng(d)
    rows = np.concatenate(
        [rng.normal(-1, 0.3, size=(15, d)), rng.normal(1, 0.5, size=(15, d)), np.full((1, d), 3.0)]
    )
    problem = uniform(rows, 0.5)
    support = solved(problem)
    assert support.converged
    with jax.enable_x64(True):
        continuous = ep.FiniteSum(
            ep.GaussianKernel(rows, 0.5), ep.NegLog(), temperature=0.1, l2=0.05
        )
        exact = ep.grid.solve(continuous, points=2001 if d == 1 else 201)
    found, height = moments(problem, support)
    truth = np.asarray(exact.moments)
    # An importance-weighted mean has the standard error sqrt(sum_r w_r^2 (K_r - H)^2). The error of
    # the optimum is smaller than that of H (Newton's matrix is above the identity). We allow four
    # standard errors, and half a percent for the grid.
    deviation = height * problem.kernel(support.points) - found
    error = np.sqrt((support.weights**2) @ deviation**2)
    assert (np.abs(found - truth) < 4 * error + 0.005 * truth).all()
    assert error.max() / truth.max() < 0.05  # and the test can fail


def test_another_optimiser_finds_the_same():
    """The negative dual as a function of v = log u, minimised by another method."""
    rows = np.linspace(-2, 2, 12)[:, None] ** 3 / 4
    problem = uniform(rows, 0.4)
    rng = np.random.default_rng(1)
    points, log_base = rng.normal(size=(200, 1)), rng.normal(size=200)
    support = optimum(problem, points, log_base, NewtonLog(100))
    kernel = problem.kernel(points)

    def exponents(v):
        return log_base + kernel @ (problem.weights * np.exp(v)) / problem.temperature

    def value(v):
        return problem.temperature * log_sum_exp(exponents(v)) - problem.weights @ v

    def gradient(v):
        weights = np.exp(exponents(v) - log_sum_exp(exponents(v)))
        return problem.weights * (np.exp(v) * (weights @ kernel) - 1)

    other = minimize(
        value,
        problem.prior_log_slopes(),
        jac=gradient,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10},
    )
    # At a decrement below 1e-6 the value is at most half of that above the minimum.
    assert other.fun <= value(support.log_slopes) <= other.fun + 5e-7
    # The optimality condition is u_i H_i = 1. At a decrement of 1e-6 the next step would be at most
    # sqrt(1e-6 n).
    np.testing.assert_allclose(
        np.exp(support.log_slopes) * (support.weights @ kernel), 1, atol=4e-3
    )
    # The weights and the potential are those of the slopes.
    at = exponents(support.log_slopes)
    np.testing.assert_allclose(support.potential, at - log_base, rtol=1e-9)
    np.testing.assert_allclose(support.weights, np.exp(at - log_sum_exp(at)), rtol=1e-9)


def test_padding_does_not_matter():
    rng = np.random.default_rng(0)
    problem = uniform(rng.normal(size=(20, 2)), 0.5)
    points, log_base = rng.normal(size=(300, 2)), rng.normal(size=300)
    plain = optimum(problem, points, log_base, NewtonLog(100))
    assert plain.converged
    more_rows = optimum(replace(problem, least_size=200), points, log_base, NewtonLog(100))
    np.testing.assert_allclose(more_rows.weights, plain.weights, rtol=1e-9)
    np.testing.assert_allclose(more_rows.log_slopes, plain.log_slopes, rtol=1e-9)
    more_points = np.concatenate([points, np.zeros((100, 2))])
    no_base = np.concatenate([log_base, np.full(100, -np.inf)])
    same = optimum(problem, more_points, no_base, NewtonLog(100))
    np.testing.assert_allclose(same.weights[:300], plain.weights, rtol=1e-9)
    assert (same.weights[300:] == 0).all()


def test_the_log_has_a_gap_that_closes_and_a_limit():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    log = NewtonLog(100)
    support = solve_on_support(
        uniform(rows, 0.5), 2048, np.random.default_rng(0), last=None, rounds=1, log=log
    )
    assert len(log.solves) == 1
    assert 0 <= log.solves[0]["gap"] < 1e-5  # weak duality, and convergence
    assert log.steps == log.solves[0]["inner_steps"] > 1
    assert support.effective == pytest.approx(log.solves[0]["effective"])
    assert support.converged
    short = NewtonLog(1)
    assert not solve_on_support(
        uniform(rows, 0.5), 2048, np.random.default_rng(0), last=None, rounds=3, log=short
    ).converged
    assert len(short.solves) == short.steps == 1
    assert short.solves[0]["gap"] > 1e-5


@pytest.mark.parametrize("distance", [30.0, 300.0])
def test_a_row_far_away_in_the_cold(distance):
    """The row has its own points, and its moment is their share of the weights."""
    rows = np.append(np.random.default_rng(0).normal(size=15), distance)[:, None]
    problem = uniform(rows, 0.5, temperature=0.01, variance=rows.var(axis=0))
    support = solved(problem, 1024)
    assert support.converged
    near = np.abs(support.points[:, 0] - distance) < 5
    alone = support.weights[near] @ problem.kernel(support.points[near])[:, -1]
    # At a decrement of 1e-6, u H - 1 is at most sqrt(1e-6 (1 + K) / omega), K the row's entry in
    # Newton's matrix; K <= omega u / temperature, since no kernel exceeds one.
    omega, slope = problem.weights[-1], np.exp(support.log_slopes[-1])
    error = np.sqrt(1e-6 * (1 / omega + slope / problem.temperature))
    assert slope * alone == pytest.approx(1, abs=error)
    assert error < 0.1


def test_base_weights_average_one_under_every_proposal():
    """E_q[prior / q] = 1 with and without a last support; weights are at most 1 / prior's share."""
    rng = np.random.default_rng(0)
    problem = uniform(rng.normal(size=(30, 2)), 0.5)
    for last in (None, solved(problem, 1024)):
        mixtures = proposal(problem, last, rng)
        parts = [part.draw(round(20_000 * part.share), rng) for part in mixtures]
        points = np.concatenate(parts)
        log_q = log_sum_exp(
            np.stack([np.log(part.share) + part.log_density(points) for part in mixtures], axis=1)
        )
        base = np.exp(mixtures[0].log_density(points) - log_q)
        # Four standard errors of independent draws; those of strata are smaller.
        assert abs(base.mean() - 1) < 4 * base.std() / np.sqrt(len(base))
        assert base.max() <= 1 / mixtures[0].share + 1e-9


@pytest.mark.slow
def test_more_points_come_closer():
    """The gap of the dual found on N points falls like 1/N: the square of an error of 1/sqrt(N)."""
    rows = load("galaxies") / 10_000
    problem = uniform((rows - rows.mean()) / rows.std(), 0.3)
    with jax.enable_x64(True):
        continuous = ep.FiniteSum(
            ep.GaussianKernel(problem.rows, 0.3), ep.NegLog(), temperature=0.1, l2=0.05
        )
        exact = ep.grid.solve(continuous, points=2001)
    height = (2 * np.pi * 0.09) ** -0.5
    gaps = []
    for count in (1024, 16384):
        values = []
        for seed in range(10):
            support = solved(problem, count, seed)
            dual = exact.quadrature.slope(height / np.exp(support.log_slopes))
            density, _ = exact.quadrature.gibbs(dual)
            values.append(float(exact.quadrature.primal(density)) - float(exact.value))
        gaps.append(np.mean(values))
    # 16 in theory. Each mean is over ten values with a deviation about as large as themselves (few
    # directions count) and is therefore known to a third; the ratio of two, to a half.
    assert 16 / 2.5 < gaps[0] / gaps[1] < 16 * 2.5


def test_small_tools():
    rng = np.random.default_rng(0)
    weights = np.array([0.5, 0.25, 0.25, 0.0])
    chosen = systematic_indices(weights, 8, rng.random())
    assert np.bincount(chosen, minlength=4).tolist() == [4, 2, 2, 0]
    a, b = rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    np.testing.assert_allclose(
        square_distances(a, b), ((a[:, None] - b[None]) ** 2).sum(axis=2), atol=1e-12
    )
    np.testing.assert_allclose(
        log_sum_exp(np.array([[-1e4, -1e4], [0.0, np.log(3)]])), [-1e4 + np.log(2), np.log(4)]
    )
    np.testing.assert_array_equal(in_blocks(lambda part: part[:, 0] * 2, a, 2**21), a[:, 0] * 2)
