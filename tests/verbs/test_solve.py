"""`solve`: what it refuses, what it starts from, in which precision it works."""

import jax
import numpy as np
import pytest
from methods.cases import SOLVERS
from problems.cases import linear, squared

import entroplay as ep
from entroplay.verbs.solve import _colder


def test_a_warm_start_goes_on_where_the_last_run_stopped():
    problem = squared()
    first = ep.solve(problem, ep.EFP(0.1), particles=64, iterations=60)
    second = ep.solve(problem, ep.EFP(0.1), particles=64, iterations=1, start=first, seed=1)
    assert second.history["loss_moments"][0] == pytest.approx(
        float(problem.empirical_loss(first.moments)), rel=1e-6
    )
    # Other data: the moments are recomputed from the cloud.
    other = ep.FiniteSum(
        ep.Neurons(np.linspace(0, 1, 5)[:, None]),
        ep.Squared(np.zeros(5)),
        temperature=0.05,
        l2=0.05,
    )
    third = ep.solve(other, ep.EFP(0.1), particles=64, iterations=1, start=first)
    expected = float(other.empirical_loss(other.features.average(first.particles)))
    assert third.history["loss_moments"][0] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"'start' parameter of solve must be .*\(32, 1\)"):
        ep.solve(problem, particles=32, iterations=1, start=first)


def test_a_hotter_solution_is_one_of_a_fraction_of_the_loss():
    """U_hot / T_hot = U_beta / T_cold for equal priors; beta = T_cold / T_hot scales the dual."""
    hot, cold = (squared(temperature=t, l2=t / 6, d=2) for t in (0.3, 0.12))
    start, other = (
        ep.solve(problem, SOLVERS["NewtonEFP"](), particles=32, iterations=2)
        for problem in (hot, cold)
    )
    beta = _colder(cold, start)
    assert beta == pytest.approx(0.4)
    energies = [ep.Gibbs(hot, start.dual).energy(start.particles) / 0.3]
    energies.append(ep.Gibbs(cold, beta * start.dual).energy(start.particles) / 0.12)
    np.testing.assert_allclose(energies[0], energies[1], rtol=1e-4, atol=1e-4)
    assert _colder(hot, other) is None
    assert _colder(squared(temperature=0.12, l2=0.05, d=2), start) is None


def test_a_run_that_starts_hotter_begins_with_that_fraction():
    """Newton's method turns on the rest of the loss from there."""
    hot, cold = (squared(temperature=t, l2=t / 6, d=2) for t in (0.3, 0.12))
    start = ep.solve(hot, SOLVERS["NewtonEFP"](), particles=32, iterations=2)
    colder = ep.solve(cold, SOLVERS["NewtonEFP"](), particles=32, iterations=2, start=start)
    beta = colder.history["beta"]
    assert beta[0] >= 0.12 / 0.3 - 1e-6
    assert (np.diff(beta) >= 0).all()


@pytest.mark.slow
def test_a_warm_start_follows_a_change_of_temperature():
    """The first cloud of the colder run already follows its Gibbs measure.

    Its mean features are within 5 errors of those of the grid. Without the bridge they are those of
    the hotter run, many errors away.
    """
    hot, cold = squared(temperature=0.2, l2=0.02), squared(temperature=0.02, l2=0.02)
    m = 4000
    first = ep.solve(hot, particles=m, iterations=30)
    seen = []
    ep.solve(
        cold,
        ep.MFLD(1e-9),
        particles=m,
        iterations=1,
        start=first,
        callback=lambda r: seen.append(r.particles),
    )
    exact = ep.grid.solve(cold, iterations=0)
    density, _ = exact.quadrature.gibbs(
        exact.quadrature.slope(np.asarray(first.moments, np.float64))
    )
    error = np.sqrt(np.diag(exact.quadrature.covariance(density)) / m)
    expected = exact.quadrature.moments(density)
    assert (np.abs(np.asarray(cold.features.average(seen[0])) - expected) < 5 * error).all()
    assert (
        np.abs(np.asarray(cold.features.average(first.particles)) - expected) > 10 * error
    ).any()


def test_a_schedule_that_leaves_its_range_is_refused_before_any_work():
    with pytest.raises(
        ValueError, match=r"'rate' parameter of EFP must be .*1\.1.* at iteration 6"
    ):
        ep.solve(
            squared(), ep.EFP(lambda t: 0.5 + 0.1 * t.astype(float)), particles=4, iterations=20
        )
    with pytest.raises(ValueError, match=r"'step_size' parameter of ULA .* at iteration 5"):
        ep.solve(
            squared(),
            ep.EFP(0.1, ep.ULA(lambda t: 0.5 - 0.1 * t.astype(float))),
            particles=4,
            iterations=20,
        )


def test_double_precision_is_kept_outside_the_context():
    with jax.enable_x64(True):
        problem = squared()
    solution = ep.solve(problem, ep.EFP(0.1), particles=8, iterations=3)
    assert solution.particles.dtype == solution.moments.dtype == np.float64
    assert solution.predict(np.zeros((2, 1))).dtype == np.float64


def test_sample_weights_count_as_repetitions():
    """Integer weights and repeated rows are the same problem, with the same particles."""
    with jax.enable_x64(True):
        x, y, counts = np.array([-1.0, 0.3, 1.2]), np.array([0.2, -0.4, 0.9]), [1, 3, 2]
        weighted = ep.FiniteSum(
            ep.Neurons(x[:, None]), ep.Squared(y), temperature=0.1, l2=0.1, weights=counts
        )
        repeated = ep.FiniteSum(
            ep.Neurons(np.repeat(x, counts)[:, None]),
            ep.Squared(np.repeat(y, counts)),
            temperature=0.1,
            l2=0.1,
        )
        a, b = (
            ep.solve(p, ep.EFP(0.2), particles=20, iterations=20).particles
            for p in (weighted, repeated)
        )
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_one_penalty_per_coordinate_is_the_gaussian_it_should_be():
    """Linear features: the optimum is N(c, T/(2 l2_j)) with (hessian + 2 diag l2) c = X'Wy."""
    l2 = np.array([0.2, 0.8])
    problem, centre, _ = linear(l2=l2)
    X = np.asarray(problem.features.rows, np.float64)
    exact = ep.grid.solve(problem, iterations=0, points=201)
    np.testing.assert_allclose(exact.moments, X @ centre, atol=1e-8)
    m = 4000
    solution = ep.solve(problem, particles=m, iterations=100)
    variance = problem.temperature / (2 * l2)
    np.testing.assert_allclose(solution.moments, X @ centre, atol=0.03)
    assert (
        np.abs(np.asarray(solution.particles).var(axis=0) - variance)
        < 4.5 * variance * np.sqrt(2 / m)
    ).all()
    certificate = ep.certify(solution)
    assert certificate.mixed
    # The primal value is that of a measure which is at most `bound` above the optimum, never below.
    assert -1e-9 < certificate.primal - exact.value <= certificate.bound < 1e-4
    assert "l2=0.2..0.8" in repr(problem)


def test_equal_penalties_per_coordinate_are_one_penalty():
    one, many = (
        ep.solve(squared(d=2, l2=l2), SOLVERS["EFP"](), particles=32, iterations=5)
        for l2 in (0.05, [0.05, 0.05])
    )
    np.testing.assert_allclose(one.particles, many.particles, rtol=1e-5, atol=1e-6)
