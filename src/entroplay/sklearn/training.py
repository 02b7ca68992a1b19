"""From weighted rows to a certified network: the choice of temperature and l2, the solve, the certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..measures.calibration import calibrated_weights
from ..methods.solvers import Solver
from ..problems.features.base import FeatureMap, Particles
from ..problems.losses.base import Loss
from ..problems.problem import FiniteSum
from ..runs.solution import History, Solution
from ..verbs.certify import Certificate, certify
from ..verbs.solve import Report, solve
from .rows import WeightedRows, bucket, padded

HELD_OUT = 0.2
"""The share of the rows that judges temperatures and penalties."""
LEAST_SEARCHED = 10
"""Fewer distinct rows are not split: the temperature is then FALLBACK of the hottest one."""
FALLBACK = 0.1
LADDER = 10.0 ** np.arange(0, -8, -0.5)
"""Temperatures that are tried, in units of the hottest one."""
COLDEST = 1.0
"""The least temperature tried, in units of the hottest over n: with few rows a kernel regression of that noise interpolates."""
PATIENCE = 2
"""Temperatures in a row that are no clear improvement, after which the path ends."""
PRIOR_VARIANCE = 1.0
"""Of every parameter, temperature / (2 l2), along the path. Inputs are scaled so that it is the variance of w.x, too."""
PRIOR_FACTORS = (3.0, 1 / 3.0)
"""Other prior variances that are tried where the temperature is given, in units of PRIOR_VARIANCE."""
PATH_ITERATIONS, PATH_LIMIT = 2, 24
"""At each temperature of the path, once the whole loss is on and at the most."""
WORTH_WHILE = 2.0
"""How much faster than the number of iterations a bound is hoped to fall."""


TEMPERING = (1e-3, 1e-2, 0.03, 0.1, 0.3)
"""Multiples of the dual along which a certificate approaches it, where no path from the prior is known."""
RIDGE = 1e-4
"""Of the weights of pooled clouds: the moments of a short run are not known better than that."""


ITERATIONS, PARTICLES = 10, 4096
"""Of the first round of a fit, once the whole loss is on; and of the last clouds, that make up the answer together."""
QUICK, THOROUGH = 100, 1000
"""Pulls at the target of the first certificate, and of those that follow."""
ISLAND = 64
"""Particles in each island of a certificate."""


class Trial(NamedTuple):
    """One row of the table that a search leaves."""

    temperature: float
    l2: float
    loss: float
    """At the rows held out."""


@dataclass(frozen=True)
class Trained:
    """A solution with the last clouds of its run."""

    solution: Solution
    clouds: list[Particles]

    def pooled(self) -> Solution:
        """The solution with all those clouds for particles, weighted so that together they reproduce the moments."""
        cloud = jnp.concatenate(self.clouds)
        weights = calibrated_weights(
            self.solution.problem, cloud, self.solution.moments, ridge=RIDGE
        )
        return eqx.tree_at(lambda s: (s.particles, s.weights), self.solution, (cloud, weights))


@dataclass(frozen=True)
class Trainer:
    """All that a fit needs besides temperature and l2.

    Attributes:
        rows: standardised inputs and targets.
        features: from inputs to a feature map.
        loss: from targets (n, t) to a loss.
        hottest: the temperature at which the path begins.
        stratify: whether targets are labels, each of which should be on both sides of the split.
        say: what to do with a line of progress.
    """

    rows: WeightedRows
    features: Callable[[np.ndarray], FeatureMap]
    loss: Callable[[np.ndarray], Loss]
    solver: Solver
    particles: int
    hottest: float
    seed: int
    stratify: bool
    progress: bool
    say: Callable[[str], None]

    @cached_property
    def size(self) -> int:
        return bucket(len(self.rows))

    @cached_property
    def _posed(self) -> tuple[FeatureMap, Loss]:
        return self.features(padded(self.rows.X, self.size)), self.loss(
            padded(self.rows.y, self.size)
        )

    def problem(self, temperature: float, l2: Any, weights: np.ndarray | None = None) -> FiniteSum:
        """Padded by rows without weight; with other weights than the rows' own, if such are given."""
        weights = padded(self.rows.weights if weights is None else weights, self.size)
        return FiniteSum(*self._posed, temperature=temperature, l2=l2, weights=weights)

    def run(
        self,
        problem: FiniteSum,
        iterations: int,
        limit: int,
        *,
        seed: int,
        start: Solution | None,
        pooled: int = 0,
        progress: bool = False,
    ) -> Trained:
        """Solve, with so many iterations once the whole loss is on and `limit` in all, and keep the last clouds of those."""
        kept: list[Particles] = []
        count, clouds = 0, min(max(2, -(-pooled // self.particles)), iterations)

        def keep(report: Report) -> bool:
            nonlocal count
            if report.row.get("beta", 1.0) >= 1:
                count += 1
                kept.append(report.particles)
                del kept[:-clouds]
            return count >= iterations

        solution = solve(
            problem, self.solver, particles=self.particles, iterations=limit, seed=seed, start=start, callback=keep,
            progress=progress, calibrate=False,
        )  # fmt: skip
        # The number of clouds is always the same, and so is the shape of what follows.
        return Trained(solution, [*kept, *[solution.particles] * clouds][:clouds])

    def search(
        self, temperature: float | None, l2: float | None
    ) -> tuple[float, float, list[Trial]]:
        """Temperature and l2 for those that are None, and the table of what was tried.

        The temperature falls, and with it l2 so that the prior stays the same, each solution starting where the last one stopped,
        until the loss at the rows held out has not improved for a while. At a given temperature a few priors are tried.
        """
        if temperature is not None and l2 is not None:
            return temperature, l2, []
        if len(self.rows) < LEAST_SEARCHED:
            chosen = self.hottest * FALLBACK if temperature is None else temperature
            return chosen, chosen / (2 * PRIOR_VARIANCE) if l2 is None else l2, []
        judge = _Judge(self, self._held_out())
        ladder = [float(self.hottest * t) for t in LADDER if t * len(self.rows) >= COLDEST]
        ladder = [temperature] if temperature is not None else ladder or [self.hottest]
        best, misses, start = None, 0, None
        for value in ladder:
            candidate = judge(value, value / (2 * PRIOR_VARIANCE) if l2 is None else l2, start)
            start = candidate.solution
            if best is None or candidate.clearly_better(best):
                best, misses = candidate, 0
            else:
                misses += 1
            if misses == PATIENCE or not np.isfinite(candidate.trial.loss):
                break
        assert best is not None
        if temperature is not None:
            origin = best
            for factor in PRIOR_FACTORS:
                other = judge(temperature, origin.trial.l2 / factor, origin.solution)
                best = other if other.clearly_better(best) else best
        return best.trial.temperature, best.trial.l2, judge.trials

    def _held_out(self) -> np.ndarray:
        """Which rows judge instead of being learned from."""
        rng = np.random.default_rng([self.seed, len(self.rows)])
        groups = self.rows.y[:, 0] if self.stratify else np.zeros(len(self.rows))
        held_out = np.zeros(len(self.rows), bool)
        for group in np.unique(groups):
            members = rng.permutation(np.flatnonzero(groups == group))
            held_out[members[: int(HELD_OUT * len(members))]] = True
        if not held_out.any():
            held_out[rng.integers(len(self.rows))] = True
        return held_out

    def fit(
        self, temperature: float, l2: float, *, tol: float, max_iter: int, start: Solution | None
    ) -> tuple[Trained, Certificate | None]:
        """Rounds of iterations, each twice as long as the last and followed by a certificate, until that is good enough, or so bad
        that the iterations left will not mend it. The certificate follows the first round's path from the prior; if that did
        not start there, multiples of the dual.
        """
        problem = self.problem(temperature, l2)
        done, budget, history = 0, QUICK, None
        length = ITERATIONS if self.solver.scales_loss else max_iter
        from_prior, approach = start is None, None
        while True:
            limit = max_iter - done
            trained = self.run(
                problem,
                length,
                limit,
                seed=self.seed + done,
                start=start,
                pooled=PARTICLES,
                progress=self.progress,
            )
            history = _joined(history, trained.solution.history)
            done = len(history["iteration"])
            trained = replace(
                trained, solution=eqx.tree_at(lambda s: s.history, trained.solution, history)
            )
            if trained.solution.status == "interrupted":
                return trained, None
            if not from_prior:
                approach = jnp.stack([b * trained.solution.dual for b in TEMPERING])
            elif approach is None:
                approach = _without_detours(trained.solution)
            approached = eqx.tree_at(lambda s: s.path, trained.solution, approach)
            certificate = certify(approached, seed=self.seed, particles=ISLAND, budget=budget)
            self.say(f"{done} iterations: {verdict(certificate)}")
            met = certificate.mixed and certificate.bound <= tol
            hopeless = certificate.bound > WORTH_WHILE * tol * max_iter / done
            if met or hopeless or done >= max_iter or trained.solution.status == "diverged":
                return trained, certificate
            length, budget, start = 2 * length, THOROUGH, trained.solution


@dataclass(frozen=True)
class _Candidate:
    """A solution on one part of the rows, and its loss at each of the others."""

    solution: Solution
    trial: Trial
    losses: np.ndarray
    weights: np.ndarray

    def clearly_better(self, other: _Candidate) -> bool:
        """By more than half a standard error of the paired differences: of answers that the held-out rows cannot tell apart, the
        hottest is the easiest to reach and to certify.
        """
        if not np.isfinite([self.trial.loss, other.trial.loss]).all():
            return self.trial.loss < other.trial.loss
        difference = other.losses - self.losses
        mean = self.weights @ difference
        error = np.sqrt(self.weights**2 @ (difference - mean) ** 2)
        return bool(mean > error / 2)


class _Judge:
    """Makes candidates, all on the same split. A row held out is one without weight: it has no say, but the solver knows the
    network's output there as well as everywhere else.
    """

    def __init__(self, trainer: Trainer, held_out: np.ndarray):
        self.trainer, self.held_out = trainer, held_out
        self.learning = np.where(held_out, 0, trainer.rows.weights)
        self.weights = trainer.rows.weights[held_out] / trainer.rows.weights[held_out].sum()
        self.trials: list[Trial] = []

    def __call__(self, temperature: float, l2: float, start: Solution | None) -> _Candidate:
        trainer = self.trainer
        problem = trainer.problem(temperature, l2, self.learning)
        seed = trainer.seed + len(self.trials)
        # Newton's method is there as soon as the whole loss is on; of the others nobody knows.
        iterations = PATH_ITERATIONS if trainer.solver.scales_loss else PATH_LIMIT
        solution = trainer.run(problem, iterations, PATH_LIMIT, seed=seed, start=start).solution
        if solution.status == "interrupted":
            raise KeyboardInterrupt
        losses = np.asarray(problem.loss.value(solution.moments), np.float64)[: len(self.held_out)][
            self.held_out
        ]
        losses = np.where(np.isfinite(losses), losses, np.inf)
        trial = Trial(temperature, l2, float(self.weights @ losses))
        self.trials.append(trial)
        trainer.say(f"temperature {temperature:.3g}, l2 {l2:.3g}: held-out loss {trial.loss:.4g}")
        return _Candidate(solution, trial, losses, self.weights)


def trimmed(solution: Solution, n: int) -> Solution:
    """The solution without the padding."""
    problem = solution.problem

    def rows(tree: Any) -> Any:
        return jax.tree.map(lambda a: _cut(a, n) if eqx.is_array(a) and a.ndim else a, tree)

    features = eqx.tree_at(lambda f: f.rows, problem.features, rows(problem.features.rows))
    parts = (features, rows(problem.loss), rows(problem.weights))
    small = eqx.tree_at(lambda p: (p.features, p.loss, p.weights), problem, parts)
    path = jax.device_put(np.asarray(solution.path)[:, :n])
    parts = (small, rows(solution.moments), rows(solution.dual), path)
    return eqx.tree_at(lambda s: (s.problem, s.moments, s.dual, s.path), solution, parts)


def _cut(array: Any, n: int) -> Any:
    """The first n rows, by NumPy, which has no need to compile for every n."""
    return jax.device_put(np.asarray(array)[:n])


def _without_detours(solution: Solution) -> Any:
    """The path only as far as the loss was being turned on. Afterwards a run circles around its goal, and a certificate that
    followed it there would spend most of its time on edges of hardly any length.
    """
    beta = solution.history.get("beta", np.ones(1))
    rising = int(np.argmax(beta >= 1)) if (beta >= 1).any() else len(beta)
    return _cut(solution.path, rising + 1)


def _joined(first: History | None, second: History) -> History:
    """One history out of two runs, the second of which went on from the first."""
    if first is None:
        return second
    cumulative = ("iteration", "pulls", "passes", "seconds")
    return {
        name: np.concatenate([first[name], values + (first[name][-1] if name in cumulative else 0)])
        for name, values in second.items()
    }


def verdict(certificate: Certificate) -> str:
    """In a few words."""
    suffix = "" if certificate.mixed else f" (not verified: {certificate.reason})"
    return f"at most {certificate.bound:.3g} above the global optimum{suffix}"
