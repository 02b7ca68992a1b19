"""The problems on which the theorems are tried, with their exact optima, and runs on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..measures.quadrature import Quadrature
from ..problems.features.base import GaussianKernel
from ..problems.features.neurons import Neurons
from ..problems.losses.base import Logistic, NegLog, Squared
from ..problems.problem import FiniteSum
from ..verbs import grid
from .exact import Values, values

FLOOR = 1e-9
"""Differences of values of order one are not followed below this: rounding would decide."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Setting:
    """A problem on its grid, with its exact optimum."""

    name: str
    quadrature: Quadrature
    smoothness: float
    """L: the largest second derivative of the loss."""
    optimum: np.ndarray
    value: float

    @property
    def temperature(self) -> float:
        return self.quadrature.problem.temperature

    @property
    def ratio(self) -> float:
        """C = exp(4 / temperature)."""
        return float(np.exp(min(4 / self.temperature, 700.0)))


def setting(name: str, problem: FiniteSum, smoothness: float, points: int) -> Setting:
    """Lay the grid out and solve on it."""
    exact = grid.solve(problem, iterations=0, points=points)
    return Setting(name, exact.quadrature, smoothness, exact.density.ravel(), exact.value)


def bounded_settings(quick: bool) -> list[Setting]:
    """Networks that satisfy all of the paper's assumptions: |h| <= 1, |loss'| <= 1 and 0 <= loss'' <= 1 on [-1, 1]."""
    rng, points = np.random.default_rng(0), 501 if quick else 2001
    x = np.linspace(-2, 2, 12)
    one, two = Neurons(x[:, None]), Neurons(x[:, None], bias=True)
    targets = np.clip(0.8 * np.tanh(2 * x) + 0.1 * rng.normal(size=12), -1, 1)
    signs = np.where(np.cos(2 * x) + 0.3 * rng.normal(size=12) > 0, 1.0, -1.0)
    return [
        setting(
            "squared, d=1, temperature 1",
            FiniteSum(one, Squared(targets, scale=0.5), temperature=1.0, l2=0.5),
            0.5,
            points,
        ),
        setting(
            "squared, d=1, temperature 0.05",
            FiniteSum(one, Squared(targets, scale=0.5), temperature=0.05, l2=0.05),
            0.5,
            points,
        ),
        setting(
            "logistic, d=2, temperature 0.1",
            FiniteSum(two, Logistic(signs), temperature=0.1, l2=0.05),
            0.25,
            61 if quick else 161,
        ),
    ]


def density_setting() -> Setting:
    """A mixture density, whose loss has no bounded slope: for what needs no such bound."""
    points = np.array([-1.6, -1.2, -1.1, 0.2, 0.5, 0.9, 1.0, 1.4])
    problem = FiniteSum(
        GaussianKernel(points[:, None], bandwidth=0.5), NegLog(), temperature=0.05, l2=0.05
    )
    return setting("density, d=1, temperature 0.05", problem, np.inf, 1001)


def cold_setting() -> Setting:
    """So cold that rates below 1/8 can already be too large."""
    x = np.linspace(-2, 2, 12)
    problem = FiniteSum(
        Neurons(x[:, None]), Squared(np.sign(x) * 0.3, scale=0.5), temperature=0.02, l2=0.0005
    )
    return setting("squared, d=1, temperature 0.02, wide prior", problem, 0.5, 2001)


@dataclass(frozen=True)
class Run:
    """Densities along a dynamics with what the theorems speak of."""

    densities: list[np.ndarray]
    values: list[Values]

    @staticmethod
    def of(quadrature: Quadrature, densities: Iterator[np.ndarray], count: int) -> Run:
        kept = list(islice(densities, count))
        return Run(kept, [values(quadrature, density) for density in kept])


def largest(numbers: Iterator[float] | list[float]) -> float:
    """NaN where there is none, so that an empty check supports nothing."""
    found = list(numbers)
    return float(np.max(found)) if found else float("nan")
