"""Every theorem, lemma and proposition of the paper on grids, where expectations are exact.

Rates are written r = eta gamma, the only combination on which the discrete algorithm depends; time
is measured in units of 1 / gamma. B = 1 bounds the features and L the second derivative of the
loss.
"""

from .boosting import frank_wolfe
from .continuous_time import continuous
from .discrete_time import bounded_ratio, discrete
from .linear_stability import stability
from .part import reproduce
from .primal_dual import duality

__all__ = [
    "bounded_ratio",
    "continuous",
    "discrete",
    "duality",
    "frank_wolfe",
    "reproduce",
    "stability",
]
