"""Figure 1: one-dimensional parameter distributions along three dynamics.

These are mean-field Langevin dynamics, particle dual averaging and entropic fictitious play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..measures.quadrature import Quadrature, kl
from ..methods.samplers import MALA
from ..methods.solvers import EFP, MFLD, PDA, Solver
from ..problems.features import Neurons
from ..problems.losses import Squared
from ..problems.problem import FiniteSum
from ..runs.solution import Solution
from ..verbs import grid
from ..verbs.grid import GridSolution
from ..verbs.solve import solve
from .claims import Claim, Part
from .exact import dual_averaging, fictitious_play, langevin, proximal_gibbs
from .figure1_drawing import draw

KOLMOGOROV = 1.95
"""Quantile of sqrt(m) times Kolmogorov's distance: chance exceeds it once in a thousand."""
RATE = 0.02
"""Rate of EFP, below the stability limit of the problem."""
FIXED_POINT_ERROR = 0.02
"""Largest distance in total variation between mu and mu-hat that counts as equality."""
REACHED = 0.01
"""Fraction of the prior's divergence from the optimum that may be left at the end."""
CHOICES = (
    "50 inputs from N(0, 1.5^2), teacher tanh(4x) - tanh(0.7x), student tanh(theta x): the paper "
    "does not say.",
    "EFP at rate 0.02 (stable below the limit given), MFLD with a step of 0.05 (0.1 in the quick "
    "scale); the times show beginning, middle and end.",
    "The footnote's simplified PDA is read as the plain mean of all slopes at the problem's "
    "temperature. Read as no averaging at all it would be EFP with rate 1, beyond the stability "
    "limit here.",
)


@dataclass(frozen=True)
class Dynamics:
    """A method with exact expectations, and the same method as the library runs it."""

    name: str
    exact: Callable[[Quadrature], Iterator[np.ndarray]]
    solver: Solver
    times: tuple[int, ...]
    """Iterations that the figure shows."""
    unit: str
    rate: Callable[[int], float]
    """Weight of the newest measure in iteration t. While it exceeds the stability limit, errors
    grow from step to step and no cloud can follow the exact dynamics."""
    step: float = 1.0
    """Time that passes in one iteration."""


def dynamics(quick: bool) -> list[Dynamics]:
    """The paper's three methods, and the form of dual averaging that it draws."""
    step = 0.1 if quick else 0.05
    # Many steps: the Gibbs measures of the first iterations lie far apart.
    sampler = MALA(steps=20 if quick else 40)
    return [
        Dynamics(
            "MFLD",
            lambda q: langevin(q, step),
            MFLD(step),
            tuple(round(time / step) for time in (2, 10, 150)),
            "time",
            lambda t: 0.0,
            step=step,
        ),
        Dynamics(
            "PDA", dual_averaging, PDA(sampler), (1, 10, 100), "iteration", lambda t: 2 / (t + 1)
        ),
        Dynamics(
            "PDA, simplified",
            lambda q: dual_averaging(q, weighted=False),
            PDA(sampler, weighted=False),
            (1, 10, 100),
            "iteration",
            lambda t: 1 / t,
        ),
        Dynamics(
            "EFP",
            lambda q: fictitious_play(q, RATE),
            EFP(RATE, sampler),
            (10, 50, 200),
            "iteration",
            lambda t: RATE,
        ),
    ]


def network() -> FiniteSum:
    """A network tanh(theta x) with one parameter, whose optimum has two modes.

    The teacher consists of two such neurons, one of them negative.
    """
    x = 1.5 * np.random.default_rng(0).normal(size=50)
    return FiniteSum(
        Neurons(x[:, None]), Squared(np.tanh(4 * x) - np.tanh(0.7 * x)), temperature=0.01, l2=0.01
    )


@dataclass(frozen=True)
class Snapshot:
    """The exact mu_t and mu-hat_t, and the library's particles at the same time."""

    time: float
    density: np.ndarray
    gibbs: np.ndarray
    cloud: np.ndarray

    def distance(self, axis: np.ndarray) -> float:
        """Kolmogorov's distance between the particles' distribution function and the exact one."""
        cell = axis[1] - axis[0]
        # Half of a cell's mass lies to the left of its grid point.
        exact = np.interp(
            np.sort(self.cloud), axis, np.cumsum(self.density) * cell - self.density * cell / 2
        )
        m = len(self.cloud)
        return float(max(np.max(np.arange(1, m + 1) / m - exact), np.max(exact - np.arange(m) / m)))


def snapshots(
    method: Dynamics, problem: FiniteSum, exact: GridSolution, particles: int, seed: int
) -> list[Snapshot]:
    """Snapshots at the method's three times; without clouds if `particles` is zero.

    Each cloud comes from a separate run. The same seed gives the same run: a shorter one is the
    beginning of a longer one.
    """
    quadrature, found = exact.quadrature, []
    flow = method.exact(quadrature)
    density, done = next(flow), 0
    for t in method.times:
        density = next(islice(flow, t - done - 1, None))
        done = t
        cloud = np.zeros(0)
        if particles:
            cloud = cloud_of(
                solve(problem, method.solver, particles=particles, iterations=t, seed=seed)
            )
        found.append(
            Snapshot(t * method.step, density, proximal_gibbs(quadrature, density)[0], cloud)
        )
    return found


def cloud_of(solution: Solution) -> np.ndarray:
    """The particles whose law is mu_t."""
    return np.asarray(
        solution.particles if solution.iterate is None else solution.iterate, np.float64
    )[:, 0]


@dataclass(frozen=True)
class Measured:
    """What the snapshots of one method show."""

    method: Dynamics
    rows: list[Snapshot]
    divergence: list[float]
    """KL(mu_t | mu*) at each time."""
    distances: list[float]
    """Kolmogorov's distance at each time; empty for a method without particles."""
    inconsistency: float
    """Distance in total variation between mu and mu-hat at the end."""

    @staticmethod
    def of(method: Dynamics, rows: list[Snapshot], exact: GridSolution) -> Measured:
        """Compare the snapshots with the exact optimum."""
        cell, last = exact.quadrature.cell, rows[-1]
        log_optimum = exact.quadrature.log_gibbs(exact.dual_vector)
        return Measured(
            method,
            rows,
            divergence=[kl(s.density, log_optimum, cell) for s in rows],
            distances=[s.distance(exact.axes[0]) for s in rows if len(s.cloud)],
            inconsistency=float(np.abs(last.density - last.gibbs).sum() * cell) / 2,
        )

    def claims(self, exact: GridSolution, particles: int) -> list[Claim]:
        """The figure's message for this method, and whether the particles follow the exact law."""
        name, quadrature = self.method.name, exact.quadrature
        log_optimum = quadrature.log_gibbs(exact.dual_vector)
        claims = [
            Claim(
                "Figure 1",
                "mu = mu-hat at the end",
                name,
                self.inconsistency,
                FIXED_POINT_ERROR,
                note="distance in total variation",
            ),
            Claim(
                "Figure 1",
                "the end is the optimum: KL(mu_t | mu*) is below a hundredth of its start",
                name,
                self.divergence[-1],
                REACHED * kl(quadrature.prior, log_optimum, quadrature.cell),
            ),
        ]
        followed = [
            distance
            for distance, t in zip(self.distances, self.method.times, strict=False)
            if self.method.rate(t) < exact.stability_limit
        ]
        if followed:
            claims.append(
                Claim(
                    "Algorithms",
                    "the library's particles follow mu_t",
                    f"{name}, {particles} particles",
                    max(followed),
                    KOLMOGOROV / np.sqrt(particles),
                    note="Kolmogorov's distance, the largest over the times "
                    f"({len(followed)}) at which the step is below the stability limit; chance "
                    "exceeds the bound once in a thousand",
                )
            )
        return claims

    def numbers(self) -> dict[str, Any]:
        """The measurements as they are written to the JSON file."""
        return {
            "times": [s.time for s in self.rows],
            "KL to the optimum": self.divergence,
            "Kolmogorov distance": self.distances,
            "distance of mu and mu-hat": self.inconsistency,
        }


def reproduce(*, quick: bool, seed: int = 0) -> Part:
    """Run all dynamics exactly and by particles, and compare them."""
    problem = network()
    exact = grid.solve(problem, iterations=0, points=1001 if quick else 4001)
    particles = 500 if quick else 5000
    found = []
    for method in dynamics(quick):
        # The quick scale runs PDA without particles: compiling it would take most of the time.
        size = 0 if quick and isinstance(method.solver, PDA) else particles
        found.append(Measured.of(method, snapshots(method, problem, exact, size, seed), exact))
    claims = [claim for measured in found for claim in measured.claims(exact, particles)]
    worst = max(measured.divergence[-1] for measured in found)
    return Part(
        name="fig1",
        title="Figure 1: parameter distributions on the way",
        paper="MFLD, PDA and EFP all solve mu = mu-hat; PDA is drawn without the weighted "
        "averaging of its gradient.",
        found=f"At the end KL(mu_t | mu*) is at most {worst:.1e}; "
        f"{sum(c.as_expected for c in claims)} of {len(claims)} statements hold.",
        figures={"fig1": draw(found, exact)},
        captions={
            "fig1": "mu_t (filled) and its proximal Gibbs measure (line), computed exactly, over "
            "the exact optimum (dashed); the steps are the library's particles at the same time."
        },
        claims=tuple(claims),
        numbers={
            "particles": particles,
            "stability limit of EFP": exact.stability_limit,
            **{measured.method.name: measured.numbers() for measured in found},
        },
        choices=CHOICES,
    )
