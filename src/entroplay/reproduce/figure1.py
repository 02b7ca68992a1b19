"""Figure 1: one-dimensional parameter distributions along mean-field Langevin dynamics, dual averaging and fictitious play."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..measures.quadrature import Quadrature, kl
from ..methods.samplers.base import MALA
from ..methods.solvers import EFP, MFLD, PDA, Solver
from ..problems.features.neurons import Neurons
from ..problems.losses.base import Squared
from ..problems.problem import FiniteSum
from ..runs.solution import Solution
from ..verbs import grid
from ..verbs.grid import GridSolution
from ..verbs.plot import pyplot
from ..verbs.solve import solve
from .claims import Claim, Part
from .exact import dual_averaging, fictitious_play, langevin, proximal_gibbs

KOLMOGOROV = 1.95
"""sqrt(m) times the largest distance of an empirical distribution function from the truth exceeds this once in a thousand."""


@dataclass(frozen=True)
class Dynamics:
    """A method: with exact expectations, and as the library runs it."""

    name: str
    exact: Callable[[Quadrature], Iterator[np.ndarray]]
    solver: Solver
    times: tuple[int, ...]
    unit: str
    rate: Callable[[int], float]
    """The weight of the newest measure in iteration t. While it exceeds the stability limit, errors grow from step to step, and no
    cloud can follow the exact dynamics."""
    step: float = 1.0


def dynamics(quick: bool) -> list[Dynamics]:
    """The paper's three, and the form of dual averaging that it draws."""
    rate, step = 0.02, 0.1 if quick else 0.05
    sampler = MALA(
        steps=20 if quick else 40
    )  # the Gibbs measures of the first iterations lie far apart
    times = tuple(round(time / step) for time in (2, 10, 150))
    return [
        Dynamics(
            "MFLD", lambda q: langevin(q, step), MFLD(step), times, "time", lambda t: 0.0, step=step
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
            lambda q: fictitious_play(q, rate),
            EFP(rate, sampler),
            (10, 50, 200),
            "iteration",
            lambda t: rate,
        ),
    ]


def network() -> FiniteSum:
    """tanh(theta x) with one parameter; a teacher of two such neurons, one of them negative, gives the optimum two modes."""
    x = 1.5 * np.random.default_rng(0).normal(size=50)
    return FiniteSum(
        Neurons(x[:, None]), Squared(np.tanh(4 * x) - np.tanh(0.7 * x)), temperature=0.01, l2=0.01
    )


@dataclass(frozen=True)
class Snapshot:
    """mu_t and mu-hat_t exactly, and the library's particles at the same time."""

    time: float
    density: np.ndarray
    gibbs: np.ndarray
    cloud: np.ndarray

    def distance(self, axis: np.ndarray) -> float:
        """Between the particles' distribution function and the exact one: Kolmogorov's statistic."""
        cell = axis[1] - axis[0]
        exact = np.interp(
            np.sort(self.cloud), axis, np.cumsum(self.density) * cell - self.density * cell / 2
        )
        m = len(self.cloud)
        return float(max(np.max(np.arange(1, m + 1) / m - exact), np.max(exact - np.arange(m) / m)))


def snapshots(
    method: Dynamics, problem: FiniteSum, exact: GridSolution, particles: int, seed: int
) -> list[Snapshot]:
    """At the method's three times. The same seed gives the same run, a shorter one being the beginning of a longer one."""
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


def reproduce(*, quick: bool, seed: int = 0) -> Part:
    problem = network()
    exact = grid.solve(problem, iterations=0, points=1001 if quick else 4001)
    particles, methods = 500 if quick else 5000, dynamics(quick)
    # In the quick scale two methods go without particles, whose compilation would take most of the time.
    sizes = {
        method.name: 0 if quick and isinstance(method.solver, PDA) else particles
        for method in methods
    }
    found = {
        method.name: snapshots(method, problem, exact, sizes[method.name], seed)
        for method in methods
    }
    claims, numbers = [], {}
    log_optimum = exact.quadrature.log_gibbs(exact.dual_vector)
    for method in methods:
        rows = found[method.name]
        distances = [snapshot.distance(exact.axes[0]) for snapshot in rows if len(snapshot.cloud)]
        followed = [
            d
            for d, t in zip(distances, method.times, strict=False)
            if method.rate(t) < exact.stability_limit
        ]
        divergence = [kl(s.density, log_optimum, exact.quadrature.cell) for s in rows]
        self_consistency = (
            float(np.abs(rows[-1].density - rows[-1].gibbs).sum() * exact.quadrature.cell) / 2
        )
        where = f"{method.name}, {particles} particles"
        claims += [
            Claim(
                "Figure 1",
                "mu = mu-hat at the end",
                method.name,
                self_consistency,
                0.02,
                note="distance in total variation",
            ),
            Claim(
                "Figure 1",
                "the end is the optimum: KL(mu_t | mu*) is below a hundredth of its start",
                method.name,
                divergence[-1],
                0.01 * kl(exact.quadrature.prior, log_optimum, exact.quadrature.cell),
            ),
        ]
        if followed:
            claims.append(
                Claim(
                    "Algorithms",
                    "the library's particles follow mu_t",
                    where,
                    max(followed),
                    KOLMOGOROV / np.sqrt(particles),
                    note=f"Kolmogorov's distance, the largest over the times ({len(followed)}) at which the step is below the "
                    "stability limit; chance exceeds the bound once in a thousand",
                )
            )
        numbers[method.name] = {
            "times": [s.time for s in rows],
            "KL to the optimum": divergence,
            "Kolmogorov distance": distances,
            "distance of mu and mu-hat": self_consistency,
        }
    worst = max(numbers[method.name]["KL to the optimum"][-1] for method in methods)
    return Part(
        name="fig1",
        title="Figure 1: parameter distributions on the way",
        paper="MFLD, PDA and EFP all solve mu = mu-hat; PDA is drawn without the weighted averaging of its gradient.",
        found=f"At the end KL(mu_t | mu*) is {worst:.1e} at the most; {sum(c.as_expected for c in claims)} of "
        f"{len(claims)} statements hold.",
        figures={"fig1": draw(methods, found, exact)},
        captions={
            "fig1": "mu_t (filled) and its proximal Gibbs measure (line), computed exactly, over the exact optimum (dashed); the "
            "steps are the library's particles at the same time."
        },
        claims=tuple(claims),
        numbers={
            "particles": particles,
            "stability limit of EFP": exact.stability_limit,
            **numbers,
        },
        choices=(
            "50 inputs from N(0, 1.5^2), teacher tanh(4x) - tanh(0.7x), student tanh(theta x): the paper does not say.",
            "EFP at rate 0.02 (stable below the limit given), MFLD with a step of 0.05 (0.1 in the quick scale); times so "
            "that beginning, middle and end are seen.",
            "The footnote's simplified PDA is read as the plain mean of all slopes at the problem's temperature. Read as "
            "no averaging at all it would be EFP with rate 1, beyond the stability limit here.",
        ),
    )


def draw(methods: list[Dynamics], found: dict[str, list[Snapshot]], exact: GridSolution):
    axis = exact.axes[0]
    plt = pyplot()
    figure, panels = plt.subplots(
        3, len(found), figsize=(3.1 * len(found), 6.4), sharex=True, layout="constrained"
    )
    shown = np.abs(axis) < 4
    for column, (method, rows) in enumerate(zip(methods, found.values(), strict=True)):
        for row, snapshot in enumerate(rows):
            panel = panels[row, column]
            panel.fill_between(
                axis[shown],
                snapshot.density[shown],
                color=f"C{column}",
                alpha=0.35,
                lw=0,
                label="mu_t",
            )
            if len(snapshot.cloud):
                panel.hist(
                    snapshot.cloud,
                    bins=60,
                    range=(-4, 4),
                    density=True,
                    histtype="step",
                    color=f"C{column}",
                    lw=0.8,
                )
            panel.plot(
                axis[shown], snapshot.gibbs[shown], color="C3", lw=1.1, label="its Gibbs measure"
            )
            panel.plot(axis[shown], exact.density[shown], "k--", lw=1, label="optimum")
            panel.set_yticks([])
            panel.set_title(
                f"{method.name if row == 0 else ''}\n{method.unit} {snapshot.time:g}".strip(),
                fontsize=9,
            )
    panels[0, 0].legend(fontsize=7, frameon=False)
    for panel in panels[-1]:
        panel.set_xlabel("theta")
    return figure
