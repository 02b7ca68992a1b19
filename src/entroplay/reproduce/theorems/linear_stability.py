"""Beyond the paper: the largest rate at which fictitious play is stable near the optimum."""

from __future__ import annotations

from itertools import islice

import numpy as np

from ...verbs.optimum import jacobian
from ..claims import Claim
from ..exact import fictitious_play, values
from ..settings import Setting

OFFSET = 1e-7
"""Fraction of the way to the prior at which the iteration starts: small, hence linear."""
WINDOW = (40, 60)
"""Iterations between which growth is measured, once the slowest error dominates."""
GROWTH_ERROR = 5e-3
"""Largest difference between measured and predicted growth per iteration."""


def stability(s: Setting) -> list[Claim]:
    """Growth of errors just below and just above the stability limit.

    Near the optimum EFP multiplies the slowest error by 1 - rate (1 + eigenvalue of J), where
    J = C W loss'' / temperature. The largest stable rate is therefore 2/(1 + eig J).
    """
    moments = s.quadrature.moments(s.optimum)
    eigenvalue = float(np.linalg.eigvals(jacobian(s.quadrature, s.optimum, moments)).real.max())
    limit = 2 / (1 + eigenvalue)
    below, above = 0.9, 1.1
    slow, fast = growth(s, below * limit), growth(s, above * limit)
    predicted = above * limit * (1 + eigenvalue) - 1
    return [
        Claim(
            "Beyond the paper",
            f"at {below:g} times the limit 2/(1 + eig J) errors die out",
            s.name,
            slow,
            1.0,
            note=f"limit {limit:.4f}, measured growth {slow:.4f} per iteration",
        ),
        Claim(
            "Beyond the paper",
            f"at {above:g} times the limit errors grow by rate (1 + eig J) - 1",
            s.name,
            abs(fast - predicted),
            GROWTH_ERROR,
            note=f"limit {limit:.4f}, measured growth {fast:.4f} per iteration",
        ),
    ]


def growth(s: Setting, rate: float) -> float:
    """The factor by which the residual grows per iteration, starting close to the optimum."""
    start = s.optimum + OFFSET * (s.quadrature.prior - s.optimum)
    begin, end = WINDOW
    sizes = [
        float(np.linalg.norm(values(s.quadrature, mu).residual))
        for mu in islice(fictitious_play(s.quadrature, rate, start), end + 1)
    ]
    return (sizes[end] / sizes[begin]) ** (1 / (end - begin))
