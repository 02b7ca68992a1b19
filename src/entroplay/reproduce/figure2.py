"""Figure 2: primal and dual values of a two-layer network along fictitious play."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ..measures.entropy import objective
from ..methods.samplers import ULA
from ..methods.solvers import EFP, PDA, NewtonEFP, Solver
from ..problems.datasets.teacher import cosine_teacher
from ..problems.features import Neurons
from ..problems.features.base import mean_features
from ..problems.losses import Squared
from ..problems.problem import FiniteSum
from ..runs.solution import Solution
from ..verbs.certificate import Certificate
from ..verbs.certify import certify
from ..verbs.partition import prior_log_partition
from ..verbs.solve import solve
from .claims import Claim, Part
from .figure2_drawing import draw

PRIOR_DRAWS = 20_000
"""Number of particles by which the prior's loss is estimated."""
VANISHED = 0.02
"""Fraction of L(nu) - L* that may be left at the end."""
COLUMNS = (
    "primal",
    "primal_error",
    "dual",
    "dual_error",
    "gap",
    "gap_error",
    "gap_debiased",
    "bound",
    "mixed",
)
"""Fields of a certificate that are written to the JSON file."""


@dataclass(frozen=True)
class Choices:
    """Values that the paper does not state, and the sizes of the runs."""

    name: str
    iterations: int
    """T."""
    steps: int
    """S."""
    width: int
    """Number of neurons of the teacher."""
    inputs: str
    """Law of the inputs: normal or uniform, both with variance one."""
    neighbours: int
    """k of the nearest-neighbour entropy."""
    n: int = 500
    particles: int = 1000
    shares: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.1, 0.3, 1.0)
    """Fractions of T at which Algorithm 2 is certified."""
    newton_times: tuple[int, ...] = (3, 10, 30, 100)
    """Iterations at which NewtonEFP is certified."""
    dual_averaging: int = 300
    """Iterations of PDA."""

    def problem(self, seed: int) -> FiniteSum:
        """The paper's network for a teacher drawn with this seed."""
        X, y = cosine_teacher(n=self.n, width=self.width, inputs=self.inputs, seed=seed)
        return FiniteSum(
            Neurons(X, activation="tanh", bias=True), Squared(y), temperature=0.01, l2=0.01
        )

    def sentence(self) -> str:
        """The choices in words."""
        return (
            f"{self.name}: T = {self.iterations}, S = {self.steps}, {self.inputs} inputs, a "
            f"teacher of {self.width} neurons, k = {self.neighbours}."
        )


FULL = (
    Choices("as drawn", 2000, 10, 10, "normal", 3),
    Choices("varied", 1000, 30, 50, "uniform", 5),
)
QUICK = (
    replace(
        FULL[0],
        iterations=1000,
        n=60,
        particles=200,
        shares=(0.1, 1.0),
        newton_times=(),  # compiling NewtonEFP takes longer than all the rest
        dual_averaging=100,
    ),
)


@dataclass(frozen=True)
class Point:
    """A run stopped after some iterations, with its certificate."""

    iteration: int
    pulls: int
    certificate: Certificate
    primal: float
    """L(mu^(t)) with the nearest-neighbour entropy; NaN if the method has no such iterate."""


@dataclass(frozen=True)
class Study:
    """All runs for one set of choices."""

    choices: Choices
    problem: FiniteSum
    start: float
    """L(nu) - L*, the prior's distance from the optimum."""
    optimum: Certificate
    """The optimum as PDA finds it."""
    algorithm2: list[Point]
    newton: list[Point]


def points(
    problem: FiniteSum, solver: Solver, times: list[int], choices: Choices, seed: int
) -> list[Point]:
    """The method after each of these numbers of iterations.

    Each point is a separate run. The same seed gives the same run: a shorter one is the beginning
    of a longer one.
    """
    found = []
    for t in times:
        solution = solve(problem, solver, particles=choices.particles, iterations=t, seed=seed)
        pulls = int(solution.history["pulls"][-1])
        certificate = certify(solution, seed=seed)
        found.append(Point(t, pulls, certificate, _primal(solution, choices)))
    return found


def _primal(solution: Solution, choices: Choices) -> float:
    """L(mu^(t)), eq. (6), from the particles of mu^(t)."""
    if solution.iterate is None:
        return float("nan")
    return objective(
        solution.problem, solution.iterate, moments=solution.moments, neighbours=choices.neighbours
    )


def study(choices: Choices, seed: int) -> Study:
    """PDA for the optimal value, then Algorithm 2 and NewtonEFP at several times."""
    problem = choices.problem(seed)
    last, newton_times = choices.iterations, list(choices.newton_times)
    times = sorted({max(1, round(last * share)) for share in choices.shares})
    rounds = choices.dual_averaging
    averaged = solve(problem, PDA(), particles=choices.particles, iterations=rounds, seed=seed)
    best = certify(averaged, seed=seed)
    algorithm2 = EFP(0.01, ULA(step_size=0.01, steps=choices.steps))
    return Study(
        choices,
        problem,
        prior_value(problem, seed) - best.dual,
        best,
        points(problem, algorithm2, times, choices, seed),
        points(problem, NewtonEFP(), newton_times, choices, seed),
    )


def prior_value(problem: FiniteSum, seed: int) -> float:
    """L(nu): penalty and entropy of the prior together are -temperature log Z_0."""
    draws = problem.prior(jax.random.key(seed), PRIOR_DRAWS)
    loss = float(problem.empirical_loss(mean_features(problem.features, draws)))
    return loss - problem.temperature * prior_log_partition(problem)


def claims_of(s: Study) -> list[Claim]:
    """The figure's message, and what NewtonEFP adds where it was run."""
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
            VANISHED * s.start,
            note="certified bound" + ("" if last.verified else ", not verified"),
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
    return claims + (_newton_claims(s) if s.newton else [])


def _newton_claims(s: Study) -> list[Claim]:
    """NewtonEFP agrees with PDA and comes closer than Algorithm 2."""
    name, last, best = s.choices.name, s.algorithm2[-1], s.newton[-1]
    errors = float(np.hypot(s.optimum.primal_error, best.certificate.primal_error))
    return [
        Claim(
            "Figure 2",
            "PDA and NewtonEFP agree on L(mu*)",
            name,
            abs(s.optimum.primal - best.certificate.primal),
            3 * errors + s.optimum.bound + best.certificate.bound,
            note="difference of the values, against three errors and both bounds",
        ),
        Claim(
            "Beyond the paper",
            "NewtonEFP's certified bound is below Algorithm 2's",
            name,
            best.certificate.bound,
            last.certificate.bound,
            note=f"after {best.pulls} pulls against {last.pulls}",
        ),
    ]


def numbers_of(s: Study) -> dict[str, Any]:
    """All points of a study, as they are written to the JSON file."""

    def rows(found: list[Point]) -> dict[str, Any]:
        table: dict[str, Any] = {
            "iteration": [p.iteration for p in found],
            "pulls": [p.pulls for p in found],
        }
        if not any(np.isnan(p.primal) for p in found):
            table["primal by k-NN"] = [p.primal for p in found]
        for key in COLUMNS:
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
    """Run every study and compare its values with the paper's claims."""
    studies = [study(choices, seed) for choices in (QUICK if quick else FULL)]
    claims = tuple(claim for s in studies for claim in claims_of(s))
    first = studies[0]
    ends = [("Algorithm 2", first.algorithm2[-1]), *(("NewtonEFP", p) for p in first.newton[-1:])]
    return Part(
        name="fig2",
        title="Figure 2: primal and dual values of a two-layer network",
        paper="n = 500, d = 5, cosine teacher, tanh student, m = 1000, temperature = l2 = 0.01, "
        "rate 0.01, step 0.01: primal and dual values meet; the optimal value by PDA.",
        found="; ".join(
            f"{name} ends at most {last.certificate.bound:.1e} above the optimum after "
            f"{last.pulls} pulls"
            for name, last in ends
        )
        + f". {sum(c.as_expected for c in claims)} of {len(claims)} statements hold.",
        figures={"fig2": draw(studies)},
        captions={
            "fig2": "Left: primal of mu^(t) with the entropy by nearest neighbours, dual with an "
            "error band of two standard errors, and L(mu*) by PDA. Right: certified distance to "
            "the optimum; hollow where the clouds did not agree, shaded below the certificate's "
            "own Monte-Carlo noise."
        },
        claims=claims,
        numbers={s.choices.name: numbers_of(s) for s in studies},
        choices=(
            *(s.choices.sentence() for s in studies),
            "The student has a bias: the cosine is even and tanh odd, without one there would be "
            "nothing to learn.",
            "The k-NN entropy of 1,000 points in six dimensions has a bias of about 0.1, which the "
            "temperature turns into 1e-3 of the primal value; the certificate needs no such "
            "estimate.",
        ),
    )
