"""Paths from hot to cold: every temperature agrees with the oracle, and validation chooses one."""

import numpy as np
import pytest
from problems.cases import logistic, squared

import entroplay as ep
from entroplay.verbs.path import _ladder


@pytest.fixture(scope="module")
def path():
    return ep.path(
        squared(temperature=0.01, l2=0.02), [0.01, 0.3, 0.1], particles=500, iterations=30
    )


def test_a_path_agrees_with_the_oracle_at_every_temperature(path):
    """The true excess of q_g over the optimum is below a thousandth of the prior's."""
    np.testing.assert_allclose(path.temperatures, [0.3, 0.1, 0.01], rtol=1e-6)
    for solution in path:
        exact = ep.grid.solve(solution.problem, iterations=0)
        quadrature = exact.quadrature
        density, _ = quadrature.gibbs(np.asarray(solution.dual, np.float64))
        excess = quadrature.primal(density) - exact.value
        assert 0 <= excess + 1e-12 < 1e-3 * (quadrature.primal(quadrature.prior) - exact.value)
        assert solution.problem.l2 == 0.02


def test_validation_chooses_a_temperature(path):
    """Colder solutions fit targets without noise better.

    For targets of the opposite sign the hottest is best: its predictions are closest to zero.
    """
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
