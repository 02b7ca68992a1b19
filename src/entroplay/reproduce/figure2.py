"""Figure 2: primal and dual values of a two-layer network along fictitious play, and how far from the optimum it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from ..measures.entropy import objective
from ..methods.samplers.base import ULA
from ..methods.solvers import EFP, PDA, NewtonEFP, Solver
from ..problems.datasets.teacher import cosine_teacher
from ..problems.features.base import mean_features
from ..problems.features.neurons import Neurons
from ..problems.losses.base import Squared
from ..problems.problem import FiniteSum
from ..runs.solution import Solution
from ..verbs.certify import Certificate, certify
from ..verbs.partition import prior_log_partition
from ..verbs.plot import pyplot
from ..verbs.solve import solve
from .claims import Claim, Part


@dataclass(frozen=True)
class Choices:
    """What the paper does not state."""

    name: str
    iterations: int
    """T."""
    steps: int
    """S."""
    width: int
    """Of the teacher."""
    inputs: str
    """Their law: normal or uniform, both with variance one."""
    neighbours: int
    """k of the entropy."""
    n: int = 500
    particles: int = 1000

    def problem(self, seed: int) -> FiniteSum:
        X, y = cosine_teacher(n=self.n, width=self.width, inputs=self.inputs, seed=seed)
        return FiniteSum(
            Neurons(X, activation="tanh", bias=True), Squared(y), temperature=0.01, l2=0.01
        )

    def sentence(self) -> str:
        return (
            f"{self.name}: T = {self.iterations}, S = {self.steps}, {self.inputs} inputs, a teacher of {self.width} neurons, "
            f"k = {self.neighbours}."
        )


FULL = (
    Choices("as drawn", 2000, 10, 10, "normal", 3),
    Choices("varied", 1000, 30, 50, "uniform", 5),
)
QUICK = (Choices("as drawn", 1000, 10, 10, "normal", 3, n=60, particles=200),)


@dataclass(frozen=True)
class Point:
    """A run that was stopped at a certain time."""

    iteration: int
    pulls: int
    certificate: Certificate
    primal: float
    """L(mu^(t)) with the entropy by nearest neighbours, NaN where the method has no such iterate."""


@dataclass
class Study:
    """All runs for one set of choices."""

    choices: Choices
    problem: FiniteSum
    start: float
    """L(nu) - L*: the distance of the prior."""
    optimum: Certificate
    """By PDA."""
    algorithm2: list[Point] = field(default_factory=list)
    newton: list[Point] = field(default_factory=list)


def points(
    problem: FiniteSum, solver: Solver, times: list[int], choices: Choices, seed: int
) -> list[Point]:
    """The same seed gives the same run: a shorter one is the beginning of a longer one."""
    found = []
    for t in times:
        solution = solve(problem, solver, particles=choices.particles, iterations=t, seed=seed)
        found.append(
            Point(
                t,
                int(solution.history["pulls"][-1]),
                certify(solution, seed=seed),
                _primal(solution, choices),
            )
        )
    return found


def _primal(solution: Solution, choices: Choices) -> float:
    if solution.iterate is None:
        return float("nan")
    return objective(
        solution.problem, solution.iterate, moments=solution.moments, neighbours=choices.neighbours
    )


def study(choices: Choices, seed: int) -> Study:
    problem = choices.problem(seed)
    last = choices.iterations
    times = sorted(
        {
            max(1, round(last * share))
            for share in (
                (0.01, 0.02, 0.03, 0.05, 0.1, 0.3, 1.0) if choices.n > 100 else (0.1, 1.0)
            )
        }
    )
    newton_times = (
        [3, 10, 30, 100] if choices.n > 100 else []
    )  # its compilation takes longer than all the rest
    best = certify(
        solve(
            problem,
            PDA(),
            particles=choices.particles,
            iterations=300 if choices.n > 100 else 100,
            seed=seed,
        ),
        seed=seed,
    )
    return Study(
        choices,
        problem,
        prior_value(problem, seed) - best.dual,
        best,
        points(problem, EFP(0.01, ULA(step_size=0.01, steps=choices.steps)), times, choices, seed),
        points(problem, NewtonEFP(), newton_times, choices, seed),
    )


def prior_value(problem: FiniteSum, seed: int) -> float:
    """L(nu): penalty and entropy of the prior together are -temperature log Z_0."""
    draws = problem.prior(jax.random.key(seed), 20_000)
    loss = float(problem.empirical_loss(mean_features(problem.features, draws)))
    return loss - problem.temperature * prior_log_partition(problem)


def claims_of(s: Study) -> list[Claim]:
    name, last = s.choices.name, s.algorithm2[-1].certificate
    gaps = [p.certificate.primal - p.certificate.dual for p in s.algorithm2]
    highest = max(
        p.certificate.dual - 2 * p.certificate.dual_error for p in [*s.algorithm2, *s.newton]
    )
    claims = [
        Claim(
            "Figure 2",
            "the duality gap vanishes: at the end at most 2 % of L(nu) - L* is left",
            f"{name}, Algorithm 2",
            last.bound,
            0.02 * s.start,
            note="certified bound" + ("" if last.mixed else ", not verified"),
        ),
        Claim(
            "Figure 2",
            "the gap falls along the run",
            f"{name}, Algorithm 2",
            gaps[-1],
            0.5 * gaps[0],
            note="last against half the first",
        ),
        Claim(
            "Figure 2",
            "dual values stay below L(mu*)",
            name,
            highest,
            s.optimum.primal + 2 * s.optimum.primal_error,
            note="largest dual less two errors, against PDA's value plus two",
        ),
    ]
    if s.newton:
        best = s.newton[-1].certificate
        errors = float(np.hypot(s.optimum.primal_error, best.primal_error))
        claims += [
            Claim(
                "Figure 2",
                "PDA and NewtonEFP agree on L(mu*)",
                name,
                abs(s.optimum.primal - best.primal),
                3 * errors + s.optimum.bound + best.bound,
                note="difference of the values, against three errors and both bounds",
            ),
            Claim(
                "Beyond the paper",
                "NewtonEFP's certified bound is below Algorithm 2's",
                name,
                best.bound,
                last.bound,
                note=f"after {s.newton[-1].pulls} pulls against {s.algorithm2[-1].pulls}",
            ),
        ]
    return claims


def numbers_of(s: Study) -> dict:
    def rows(found: list[Point]) -> dict[str, Any]:
        table: dict[str, Any] = {
            "iteration": [p.iteration for p in found],
            "pulls": [p.pulls for p in found],
        }
        if not any(np.isnan(p.primal) for p in found):
            table["primal by k-NN"] = [p.primal for p in found]
        for key in (
            "primal",
            "primal_error",
            "dual",
            "dual_error",
            "gap",
            "gap_error",
            "gap_debiased",
            "bound",
            "mixed",
        ):
            table[key] = [getattr(p.certificate, key) for p in found]
        return table

    return {
        "L(nu) - L*": s.start,
        "L(mu*) by PDA": s.optimum.primal,
        "its error": s.optimum.primal_error,
        "Algorithm 2": rows(s.algorithm2),
        "NewtonEFP": rows(s.newton),
    }


def reproduce(*, quick: bool, seed: int = 0) -> Part:
    studies = [study(choices, seed) for choices in (QUICK if quick else FULL)]
    claims = tuple(claim for s in studies for claim in claims_of(s))
    first = studies[0]
    return Part(
        name="fig2",
        title="Figure 2: primal and dual values of a two-layer network",
        paper="n = 500, d = 5, cosine teacher, tanh student, m = 1000, temperature = l2 = 0.01, rate 0.01, step 0.01: "
        "primal and dual values meet; the optimal value by PDA.",
        found="; ".join(
            f"{name} ends at most {last.certificate.bound:.1e} above the optimum after {last.pulls} pulls"
            for name, last in (
                ("Algorithm 2", first.algorithm2[-1]),
                *(("NewtonEFP", p) for p in first.newton[-1:]),
            )
        )
        + f". {sum(c.as_expected for c in claims)} of {len(claims)} statements hold.",
        figures={"fig2": draw(studies)},
        captions={
            "fig2": "Left: primal of mu^(t) with the entropy by nearest neighbours, dual with an error band of two "
            "standard errors, and L(mu*) by PDA. Right: certified distance to the optimum; hollow where the clouds did not agree, "
            "shaded below what the certificate's Monte-Carlo noise alone amounts to."
        },
        claims=claims,
        numbers={s.choices.name: numbers_of(s) for s in studies},
        choices=(
            *(s.choices.sentence() for s in studies),
            "The student has a bias: the cosine is even and tanh odd, so that without one there would be nothing to learn.",
            "The k-NN entropy of 1,000 points in six dimensions has a bias of some 0.1, which the temperature turns into "
            "1e-3 of the primal value; the certificate needs no such estimate.",
        ),
    )


def draw(studies: list[Study]):
    plt = pyplot()
    figure, panels = plt.subplots(
        len(studies), 2, figsize=(11, 4.1 * len(studies)), layout="constrained", squeeze=False
    )
    for s, (left, right) in zip(studies, panels, strict=True):
        t = [p.iteration for p in s.algorithm2]
        dual = np.array([p.certificate.dual for p in s.algorithm2])
        error = 2 * np.array([p.certificate.dual_error for p in s.algorithm2])
        left.plot(
            t,
            [p.primal for p in s.algorithm2],
            "o-",
            color="C0",
            label="primal of mu^(t), k-NN entropy",
        )
        left.plot(t, dual, "o-", color="C1", label="dual")
        left.fill_between(t, dual - error, dual + error, color="C1", alpha=0.3, lw=0)
        left.axhspan(
            *(s.optimum.primal + sign * 2 * s.optimum.primal_error for sign in (-1, 1)),
            color="k",
            alpha=0.25,
            lw=0,
        )
        left.axhline(s.optimum.primal, color="k", ls="--", lw=1, label="L(mu*) by PDA")
        left.set(
            xlabel="iteration", ylabel="value", xscale="log", title=f"Algorithm 2, {s.choices.name}"
        )
        for name, found, colour in (
            ("Algorithm 2", s.algorithm2, "C0"),
            ("NewtonEFP", s.newton, "C3"),
        ):
            if not found:
                continue
            pulls = [p.pulls for p in found]
            right.plot(
                pulls,
                [p.certificate.bound for p in found],
                "-",
                color=colour,
                label=f"{name}: certified bound",
            )
            for p in found:
                right.plot(
                    p.pulls,
                    p.certificate.bound,
                    "o",
                    color=colour,
                    mfc=colour if p.certificate.mixed else "white",
                )
            noise = [
                p.certificate.gap - p.certificate.gap_debiased + 2 * p.certificate.gap_error
                for p in found
            ]
            right.fill_between(pulls, 1e-9, noise, color=colour, alpha=0.12, lw=0)
        bounds = [p.certificate.bound for p in [*s.algorithm2, *s.newton]]
        right.set(
            xlabel="gradient passes over all particles",
            ylabel="distance to the optimum",
            xscale="log",
            yscale="log",
            ylim=(min(bounds) / 10, 2 * max(bounds)),
        )
        for panel in (left, right):
            panel.grid(alpha=0.3)
            panel.legend(fontsize="small")
    return figure
