"""Coordinates in which a density's kernel is a ball."""

import numpy as np

from entroplay.sklearn.coordinates import Coordinates


def test_the_local_shape_is_that_within_clusters():
    """Two long thin clusters side by side: they extend in one direction, all rows in the other."""
    within = np.random.default_rng(0).normal(size=(400, 2)) * [3.0, 0.3]
    rows = within + np.where(np.arange(400) < 200, 6.0, -6.0)[:, None] * np.array([0.0, 1.0])
    weights = np.full(400, 1 / 400)
    local, whole = (
        np.linalg.inv(Coordinates.of(rows, weights, shape).axes) for shape in ("local", "full")
    )
    local, whole = local.T @ local, whole.T @ whole
    assert local[0, 0] / local[1, 1] > 20  # 100 within a cluster
    assert whole[0, 0] / whole[1, 1] < 1  # 9 / 36 over all


def test_coordinates_make_the_kernel_a_ball_and_can_be_undone():
    stretched = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -1.0], [0.0, 0.0, 0.5]])
    rows = np.random.default_rng(0).normal(size=(60, 3)) @ stretched + 5
    coordinates = Coordinates.of(rows, np.full(60, 1 / 60), "full")
    moved = coordinates(rows)
    # The ridge is 1e-6 of a column's variance.
    np.testing.assert_allclose(np.cov(moved.T, bias=True), np.eye(3), atol=1e-4)
    np.testing.assert_allclose(coordinates.undo(moved), rows, rtol=1e-9)
