"""The problems on which the theorems are tested, with their exact optima, and runs on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..measures.quadrature import Quadrature
from ..problems.features import GaussianKernel, Neurons
from ..problems.losses import Logistic, NegLog, Squared
from ..problems.problem import FiniteSum
from ..verbs import grid
from .claims import Claim, largest
from .exact import Values, values

FLOOR = 1e-9
"""Smallest difference of values of order one that is examined: below, rounding would decide."""
ROUNDING = 1e-9
"""Relative excess over a bound that is attributed to rounding."""
LARGEST_EXPONENT = 700.0
"""Maximum exponent of C: exp(710) overflows in float64."""


@dataclass(frozen=True)
class Setting:
    """A problem on its grid, with its exact optimum."""

    name: str
    quadrature: Quadrature
    smoothness: float
    """L, the largest second derivative of the loss."""
    optimum: np.ndarray
    value: float

    @property
    def temperature(self) -> float:
        """The problem's temperature, the paper's lambda."""
        return self.quadrature.problem.temperature

    @property
    def ratio(self) -> float:
        """C = exp(4 / temperature), the constant of Lemma A."""
        return float(np.exp(min(4 / self.temperature, LARGEST_EXPONENT)))


def setting(name: str, problem: FiniteSum, smoothness: float, points: int) -> Setting:
    """Lay out a grid for the problem and solve it there."""
    exact = grid.solve(problem, iterations=0, points=points)
    return Setting(name, exact.quadrature, smoothness, exact.density.ravel(), exact.value)


def bounded_settings(quick: bool) -> list[Setting]:
    """Networks that satisfy all of the paper's assumptions.

    That is, |h| <= 1, |loss'| <= 1 and 0 <= loss'' <= 1 on [-1, 1].
    """
    rng, points = np.random.default_rng(0), 501 if quick else 2001
    x = np.linspace(-2, 2, 12)
    one, two = Neurons(x[:, None]), Neurons(x[:, None], bias=True)
    targets = np.clip(0.8 * np.tanh(2 * x) + 0.1 * rng.normal(size=12), -1, 1)
    signs = np.where(np.cos(2 * x) + 0.3 * rng.normal(size=12) > 0, 1.0, -1.0)
    # With scale 1/2 the loss is (z - y)^2 / 4: its slope is at most 1, its curvature 1/2.
    squared = Squared(targets, scale=0.5)
    return [
        setting(
            "squared, d=1, temperature 1",
            FiniteSum(one, squared, temperature=1.0, l2=0.5),
            smoothness=0.5,
            points=points,
        ),
        setting(
            "squared, d=1, temperature 0.05",
            FiniteSum(one, squared, temperature=0.05, l2=0.05),
            smoothness=0.5,
            points=points,
        ),
        setting(
            "logistic, d=2, temperature 0.1",
            FiniteSum(two, Logistic(signs), temperature=0.1, l2=0.05),
            smoothness=0.25,
            points=61 if quick else 161,
        ),
    ]


def density_setting() -> Setting:
    """A mixture density, whose loss has an unbounded slope: for statements that need no bound."""
    points = np.array([-1.6, -1.2, -1.1, 0.2, 0.5, 0.9, 1.0, 1.4])
    problem = FiniteSum(
        GaussianKernel(points[:, None], bandwidth=0.5), NegLog(), temperature=0.05, l2=0.05
    )
    return setting("density, d=1, temperature 0.05", problem, smoothness=np.inf, points=1001)


def cold_setting() -> Setting:
    """A problem so cold that even rates below 1/8 can be too large."""
    x = np.linspace(-2, 2, 12)
    problem = FiniteSum(
        Neurons(x[:, None]), Squared(np.sign(x) * 0.3, scale=0.5), temperature=0.02, l2=0.0005
    )
    name = "squared, d=1, temperature 0.02, wide prior"
    return setting(name, problem, smoothness=0.5, points=2001)


@dataclass(frozen=True)
class Run:
    """The densities along a dynamics, each with the quantities in the theorems."""

    densities: list[np.ndarray]
    values: list[Values]

    @staticmethod
    def of(quadrature: Quadrature, densities: Iterator[np.ndarray], count: int) -> Run:
        """The first `count` densities of a dynamics."""
        kept = list(islice(densities, count))
        return Run(kept, [values(quadrature, density) for density in kept])


def ratio_claim(
    where: str,
    statement: str,
    s: Setting,
    ratios: Iterable[float],
    *,
    bound: float = 1 + ROUNDING,
    over: str = "",
) -> Claim:
    """The claim that left <= right, given the ratios of the two sides."""
    note = "largest ratio of the two sides" + over
    return Claim(where, statement, s.name, largest(ratios), bound, note=note)
