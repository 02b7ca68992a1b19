"""Paths from hot to cold, warm starts across temperatures, penalties per coordinate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from methods.cases import SOLVERS
from problems.cases import linear, logistic, squared

import entroplay as ep
from entroplay.methods.smc import bridge
from entroplay.verbs.path import _ladder


@pytest.fixture(scope="module")
def path():
    return ep.path(
        squared(temperature=0.01, l2=0.02), [0.01, 0.3, 0.1], particles=500, iterations=30
    )


def test_a_path_agrees_with_the_oracle_at_every_temperature(path):
    """The true excess of q_g over the optimum, by quadrature, at each temperature: below a thousandth of what the prior has."""
    np.testing.assert_allclose(path.temperatures, [0.3, 0.1, 0.01], rtol=1e-6)
    for solution in path:
        exact = ep.grid.solve(solution.problem, iterations=0)
        excess = (
            exact.quadrature.primal(
                exact.quadrature.gibbs(np.asarray(solution.dual, np.float64))[0]
            )
            - exact.value
        )
        assert (
            0
            <= excess + 1e-12
            < 1e-3 * (exact.quadrature.primal(exact.quadrature.prior) - exact.value)
        )
        assert solution.problem.l2 == 0.02


def test_validation_chooses_a_temperature(path):
    """Targets without noise: colder fits better. Targets of the opposite sign: the hottest, which commits itself least, is best."""
    x = np.linspace(-1.9, 1.9, 50)
    losses = path.validate(x[:, None], ep.Squared(np.sin(1.5 * x)))
    assert (np.diff(losses) < 0).all()
    assert path.best(x[:, None], ep.Squared(np.sin(1.5 * x))) is path[2]
    assert path.best(x[:, None], ep.Squared(-np.sin(1.5 * x))) is path[0]
    expected = np.mean((np.asarray(path[0].predict(x[:, None])) - np.sin(1.5 * x)) ** 2) / 2
    assert losses[0] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="'loss' parameter of validate"):
        path.validate(x[:, None], ep.Squared([1.0]))


@pytest.mark.slow
def test_a_path_can_keep_the_prior_and_certify():
    problem = logistic(temperature=0.05, l2=0.1)
    path = ep.path(
        problem, [0.2, 0.05], particles=200, iterations=10, fixed_prior=True, certified=True
    )
    assert [s.problem.l2 for s in path] == pytest.approx([0.4, 0.1])
    assert all(float(s.problem.prior_deviation) == pytest.approx(0.5) for s in path)
    assert len(path.certificates) == len(path) == 2
    assert "bound" in repr(path)
    assert path[-1] is path.solutions[-1]


def test_the_default_ladder_ends_at_the_problems_own_temperature():
    ladder = _ladder(squared(), None)
    assert len(ladder) == 7
    assert (ladder[0], ladder[-1]) == pytest.approx((30 * 0.05, 0.05))


@pytest.mark.parametrize("temperatures", [[], [0.1, -1.0], "hot", [0.1, np.inf], 0.1])
def test_bad_temperatures_are_refused(temperatures):
    with pytest.raises(ValueError, match="'temperatures' parameter of path"):
        ep.path(squared(), temperatures)


def test_a_bridge_leads_a_cloud_from_one_gaussian_to_another():
    """From N(0, T0/(2 l2_0)) to q_g of linear features, whose law is N(-sum w g x/(2 l2), T/(2 l2) I): mean and variance within
    4.5 standard errors of 4000 draws; resampling leaves some correlation, for which the error is doubled."""
    problem, _, _ = linear(temperature=0.1, l2=[0.3, 0.6])
    hot = ep.FiniteSum(
        problem.features, problem.loss, temperature=1.0, l2=0.5, weights=problem.weights
    )
    m = 4000
    cloud = hot.prior(jax.random.key(0), m)
    dual = problem.slope(jnp.zeros(8))
    start_l2 = jnp.full(2, 0.1 / 1.0 * 0.5)
    moved = np.asarray(bridge(problem, jax.random.key(1), cloud, jnp.zeros(8), start_l2, dual))
    l2 = np.array([0.3, 0.6])
    variance = 0.1 / (2 * l2)
    centre = -(np.asarray(problem.weigh(dual)) @ np.asarray(problem.features.rows)) / (2 * l2)
    assert (np.abs(moved.mean(axis=0) - centre) < 2 * 4.5 * np.sqrt(variance / m)).all()
    assert (np.abs(moved.var(axis=0) - variance) < 2 * 4.5 * variance * np.sqrt(2 / m)).all()
    assert np.linalg.norm(centre) > 5 * np.sqrt(variance.max())


@pytest.mark.slow
def test_a_warm_start_follows_a_change_of_temperature():
    """The first cloud of the colder run is already that of its Gibbs measure: its mean features are within 5 errors of those of
    the grid. Without the bridge they are those of the hotter one, many errors away."""
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


@pytest.mark.slow
def test_one_penalty_per_coordinate_is_the_gaussian_it_should_be():
    """Linear features: the optimum is N(centre, T/(2 l2_j)) with centre solving (hessian + 2 diag l2) c = X'Wy, in closed form."""
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
    assert abs(certificate.primal - exact.value) < 4 * certificate.primal_error + 1e-6
    assert "l2=0.2..0.8" in repr(problem)


def test_equal_penalties_per_coordinate_are_one_penalty():
    one, many = (
        ep.solve(squared(d=2, l2=l2), SOLVERS["EFP"](), particles=32, iterations=5)
        for l2 in (0.05, [0.05, 0.05])
    )
    np.testing.assert_allclose(one.particles, many.particles, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "l2", [[0.1], [0.1, -0.1], [0.1, 0.0], "0.1", None, [[0.1, 0.1]], [np.nan, 1.0]]
)
def test_bad_penalties_are_refused(l2):
    with pytest.raises(ValueError, match="'l2' parameter of FiniteSum"):
        squared(d=2, l2=l2)
