"""Weighted rows in shapes that compile once, and standardised columns."""

import numpy as np

from entroplay.sklearn.rows import bucket, merge
from entroplay.sklearn.scaling import Standardiser


def test_shapes_grow_by_a_quarter_at_most():
    sizes = np.array([bucket(n) for n in range(1, 5000)])
    assert (sizes >= np.arange(1, 5000)).all()
    assert (sizes[127:] / np.arange(128, 5000) < 1.25).all()
    assert len(set(sizes.tolist())) < 25


def test_equal_rows_are_merged_and_rows_without_weight_left_out():
    X = np.array([[2.0], [1.0], [2.0], [3.0]])
    rows = merge(X, np.array([[5.0], [4.0], [5.0], [6.0]]), np.array([1.0, 1.0, 2.0, 0.0]))
    assert rows.X.tolist() == [[1.0], [2.0]]
    assert rows.y.tolist() == [[4.0], [5.0]]
    assert rows.weights.tolist() == [0.25, 0.75]
    assert len(rows) == 2
    assert rows.part(np.array([False, True])).weights.tolist() == [1.0]


def test_a_standardiser_ignores_constant_columns():
    rows = np.stack([np.arange(5.0), np.full(5, 0.1)], axis=1)
    standard = Standardiser.of(rows, np.full(5, 0.2))
    np.testing.assert_allclose(standard(rows)[:, 1], 0, atol=1e-15)
    np.testing.assert_allclose(standard.undo(standard(rows)), rows, atol=1e-12)
