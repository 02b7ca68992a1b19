"""The cloud that follows mu^(t): its moments, its entropy, its slots."""

import numpy as np
import pytest
from methods.cases import SOLVERS
from problems.cases import logistic, squared
from scipy.special import polygamma

import entroplay as ep

RATE, ITERATIONS, M = 0.1, 15, 4000


@pytest.mark.parametrize("solver", [ep.EFP, pytest.param(ep.NaiveEFP, marks=pytest.mark.slow)])
@pytest.mark.parametrize("problem", [lambda: squared(d=1), lambda: logistic(d=2)])
def test_the_iterates_moments_are_the_solutions(solver, problem):
    """Given all clouds, the average over the slots has expectation H exactly.

    Its variance is at most that of h over the iterate, divided by m. Every row must be within 4.5
    standard errors (the rows are few and strongly correlated).
    """
    problem = problem()
    solution = ep.solve(problem, solver(RATE, ep.MALA(steps=3)), particles=M, iterations=5)
    mean, variance = problem.features.mean_and_covariance(solution.iterate)
    z = (np.asarray(mean) - np.asarray(solution.moments)) / np.sqrt(np.asarray(variance) / M)
    assert np.abs(z).max() < 4.5
    # It is the iterate, not the last Gibbs cloud, whose mean is many errors away.
    last = np.asarray(problem.features.average(solution.particles))
    z = (last - np.asarray(solution.moments)) / np.sqrt(np.asarray(variance) / M)
    assert np.abs(z).max() > 9


@pytest.mark.parametrize("d", [1, 2])
def test_the_iterates_entropy_and_value_are_those_of_the_grid(d):
    """Ideal EFP on the grid gives mu^(t) itself.

    The standard error of the estimate is sqrt((Var log mu + psi'(k))/m). Its bias is below 0.01 for
    d <= 2 (see the test of Gaussians in tests/measures). The noise of the run in H moves mu^(t) by
    O(1/sqrt(m)) times the rate, which is less.
    """
    problem = squared(d=d, temperature=0.2, l2=0.1)
    exact = ep.grid.solve(
        problem, rate=RATE, iterations=ITERATIONS, points=None if d == 1 else 151, snapshots=2
    )
    cell, density = exact.quadrature.cell, exact.trajectory.densities[-1].ravel()
    log_density = np.log(np.maximum(density, 1e-300))
    entropy = -cell * density @ log_density
    error = np.sqrt((cell * density @ log_density**2 - entropy**2 + polygamma(1, 3)) / M)
    solution = ep.solve(
        problem, ep.EFP(RATE, ep.MALA(steps=20)), particles=M, iterations=ITERATIONS
    )
    assert abs(ep.knn_entropy(solution.iterate) - entropy) < 4 * error + 0.01
    value = ep.objective(problem, solution.iterate, moments=solution.moments)
    penalty = np.asarray(problem.penalty(solution.iterate))
    loss_error = problem.temperature * (4 * error + 0.01) + 4 * penalty.std() / np.sqrt(M)
    moments_error = np.sqrt(0.5 / M)  # of sum w loss(H), with slopes and features of order one
    assert abs(value - exact.trajectory.primal[-1]) < loss_error + 4 * moments_error
    # The prior is farther away than that: a cloud that never moved would fail.
    way = abs(exact.trajectory.primal[0] - exact.trajectory.primal[-1])
    assert way > loss_error + 4 * moments_error


def test_no_slot_ever_holds_another_slots_particle():
    """With a rate of one the iterate is the last cloud, slot by slot.

    With a smaller rate, the iterate never holds a particle twice.
    """
    problem = squared(d=2)
    one = ep.solve(problem, ep.EFP(1.0, ep.MALA(steps=2)), particles=64, iterations=5)
    np.testing.assert_array_equal(one.iterate, one.particles)
    some = ep.solve(problem, ep.EFP(0.2, ep.MALA(steps=2)), particles=64, iterations=20)
    assert len(np.unique(np.asarray(some.iterate), axis=0)) == 64
    assert np.any(np.asarray(some.iterate) != np.asarray(some.particles))


def test_who_has_an_iterate():
    problem, seen = squared(d=2), []
    mfld = ep.solve(
        problem,
        ep.MFLD(0.1),
        particles=32,
        iterations=3,
        callback=lambda report: seen.append(report.iterate),
    )
    np.testing.assert_array_equal(mfld.iterate, mfld.particles)
    np.testing.assert_array_equal(seen[-1], mfld.particles)
    for name in ("NewtonEFP", "PDA", "PSDCA"):
        assert ep.solve(problem, SOLVERS[name](), particles=32, iterations=2).iterate is None
