"""The data sets that the reproduction uses."""

import numpy as np
import pytest

import entroplay as ep
from entroplay.problems.datasets import real


def test_the_teachers_inputs_have_variance_one():
    """The variance of 20,000 numbers with kurtosis k has a standard error of
    sqrt((k - 1)/20000): 1 % for normal ones (k = 3).
    """
    for inputs in ("normal", "uniform"):
        X, y = ep.teacher.cosine_teacher(n=4000, inputs=inputs)
        assert X.var() == pytest.approx(1, abs=0.04)
        assert np.abs(y).max() <= 1
    assert np.abs(X).max() <= 3**0.5
    with pytest.raises(ValueError, match="'inputs' parameter of cosine_teacher"):
        ep.teacher.cosine_teacher(inputs="none")


def test_the_real_sets_are_whole():
    assert real.load("galaxies").shape == (82, 1)
    assert real.load("faithful").shape == (272, 2)
    assert real.load("galaxies").mean() == pytest.approx(20828, abs=1)
