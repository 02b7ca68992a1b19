"""The bandwidth: cross-validation, and the path of bandwidths that leads to a narrow one."""

import numpy as np
import pytest

from entroplay.sklearn import MeanFieldDensity
from entroplay.sklearn.bandwidth import BandwidthPath
from entroplay.sklearn.coordinates import Coordinates
from entroplay.sklearn.mixing import solve_on_support
from entroplay.sklearn.rows import WeightedRows, merge
from entroplay.sklearn.support import NewtonLog

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.slow
def test_the_bandwidth_is_found_by_cross_validation():
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(-4, 0.5, 60), rng.normal(4, 0.5, 60)])[:, None]
    model = MeanFieldDensity(random_state=0).fit(two)
    widths, likelihoods = np.array(model.search_).T
    assert model.bandwidth_ == widths[likelihoods.argmax()]
    # Two well separated normals of deviation 0.5; in units of the deviation of all rows (4.03),
    # that is about 0.12.
    assert 0.04 < model.bandwidth_ < 0.25
    # The best possible score is minus the entropy of the truth, -log 2 - log(0.5) - 1.419 = -1.42.
    assert model.score(two) > -1.6


def test_a_row_far_from_all_others_has_points_of_its_own():
    """Ten deviations away the prior puts no point, and the row's slope would be unbounded."""
    rows = np.append(np.random.default_rng(0).normal(size=60), 10.0)[:, None]
    weighted = merge(rows, np.zeros((61, 0)), np.ones(61))
    coordinates = Coordinates.of(weighted.X, weighted.weights, "full")
    path = BandwidthPath("full", 0.1, None, 0, lambda line: None)
    moved = WeightedRows(coordinates(weighted.X), weighted.y, weighted.weights)
    support = path.lead_to(moved, coordinates, 0.1)
    problem = path.problem(moved, coordinates, 0.1)
    near = np.abs(support.points[:, 0] - moved.X[-1, 0]) < 0.2
    assert support.converged
    assert near.sum() > 20
    # Near an isolated row the measure's mass a solves
    # 1 / (61 a) = temperature (1 + log of its density against the prior's): of the order of one
    # over the number of rows, times ten for the temperature, divided by a logarithm of about ten.
    assert 0.2 / 61 < support.weights[near].sum() < 5 / 61
    ratios = np.exp(support.log_slopes) * (support.weights @ problem.kernel(support.points))
    assert np.abs(ratios - 1).max() < 0.05


@pytest.mark.slow
def test_of_many_rows_some_lead_the_way():
    """A path with a fifth of the rows ends near the optimum for all, with slopes for all rows."""
    rng = np.random.default_rng(0)
    rows = merge(rng.normal(size=(10_000, 1)), np.zeros((10_000, 0)), np.ones(10_000))
    coordinates = Coordinates.of(rows.X, rows.weights, "full")
    path = BandwidthPath("full", 0.1, None, 0, lambda line: None)
    moved = WeightedRows(coordinates(rows.X), rows.y, rows.weights)
    support = path.lead_to(moved, coordinates, 0.5)
    problem = path.problem(moved, coordinates, 0.5)
    ratios = np.exp(support.log_slopes) * (support.weights @ problem.kernel(support.points))
    np.testing.assert_allclose(ratios, 1, rtol=1e-9)
    log = NewtonLog(40)
    assert solve_on_support(problem, 1024, rng, last=support, rounds=1, log=log).converged
    # About ten degrees of freedom, estimated from 2000 rows, cost 10 / (2 * 2000) nats; those of
    # 1024 points cost 10 / 1024.
    height = -0.5 * np.log(2 * np.pi * 0.25)
    loss = problem.weights @ support.log_slopes - height
    assert abs(loss - log.solves[-1]["loss_particles"]) < 0.0125
