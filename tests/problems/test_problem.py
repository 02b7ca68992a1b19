"""The finite-sum problem: what it refuses."""

import numpy as np
import pytest
from problems.cases import squared


@pytest.mark.parametrize(
    "l2", [[0.1], [0.1, -0.1], [0.1, 0.0], "0.1", None, [[0.1, 0.1]], [np.nan, 1.0]]
)
def test_bad_penalties_are_refused(l2):
    with pytest.raises(ValueError, match="'l2' parameter of FiniteSum"):
        squared(d=2, l2=l2)
