"""The choice of temperature and l2: a path from hot to cold, judged by rows that were held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..runs.solution import Reason, Solution
from .fit import ITERATIONS, Trained, Trainer

HELD_OUT = 0.2
"""Fraction of the rows held out to score temperatures and penalties."""
LEAST_SEARCHED = 10
"""With fewer distinct rows there is no search: the temperature is `FALLBACK * hottest`."""
FALLBACK = 0.1
"""Temperature without a search, as a fraction of the hottest one."""
LADDER = 10.0 ** np.arange(0, -8, -0.5)
"""Temperatures that are tried, as fractions of the hottest one."""
COLDEST = 1.0
"""Lowest temperature that is tried, in units of the hottest one over n.

With few rows, a kernel regression with noise of that size interpolates.
"""
PATIENCE = 2
"""Number of successive temperatures without a clear improvement after which the path ends."""
PRIOR_VARIANCE = 1.0
"""Prior variance temperature / (2 l2) of every parameter along the path.

Inputs are scaled so that it is the variance of w.x, too.
"""
PRIOR_FACTORS = (3.0, 1 / 3.0)
"""Further prior variances that are tried at a given temperature, in units of `PRIOR_VARIANCE`."""
PATH_ITERATIONS, PATH_LIMIT = 2, 24
"""Iterations at each temperature of the path after the whole loss is on, and at most."""


class Trial(NamedTuple):
    """A row of the table of what was tried; `loss` is that of the rows held out."""

    temperature: float
    l2: float
    loss: float


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a search that has something to show.

    Attributes:
        trained: the best network so far, fitted to the rows that were not held out.
        trial: its row of the table.
        trials: the table.
    """

    def __init__(self, trained: Trained, trial: Trial, trials: list[Trial]):
        super().__init__("the search was interrupted")
        self.trained, self.trial, self.trials = trained, trial, trials


def search(
    trainer: Trainer, temperature: float | None, l2: float | None
) -> tuple[float, float, list[Trial]]:
    """Temperature and l2, chosen where they are None, and the table of what was tried.

    The temperature falls, and l2 with it, which keeps the prior; each solution starts from the last
    one. The path ends when the loss at the rows held out has not improved for a while. At a given
    temperature a few priors are tried. Ctrl-C raises `SearchInterrupted` with the best network so
    far, once there is one.
    """
    if temperature is not None and l2 is not None:
        return temperature, l2, []
    n, hottest = len(trainer.rows), trainer.hottest
    if n < LEAST_SEARCHED:
        chosen = hottest * FALLBACK if temperature is None else temperature
        return chosen, chosen / (2 * PRIOR_VARIANCE) if l2 is None else l2, []
    judge = _Scorer(trainer, held_out_rows(trainer))
    try:
        best = _best(judge, temperature, l2)
    except KeyboardInterrupt:
        if judge.best is None:
            raise
        raise SearchInterrupted(judge.best.trained, judge.best.trial, judge.trials) from None
    return best.trial.temperature, best.trial.l2, judge.trials


def _best(judge: _Scorer, temperature: float | None, l2: float | None) -> _Candidate:
    """The best candidate; `judge.best` holds the best so far."""
    n, hottest = len(judge.trainer.rows), judge.trainer.hottest
    ladder = [float(hottest * t) for t in LADDER if t * n >= COLDEST] or [hottest]
    misses, start = 0, None
    for value in ladder if temperature is None else [temperature]:
        candidate = judge(value, value / (2 * PRIOR_VARIANCE) if l2 is None else l2, start)
        start = candidate.solution
        if judge.best is None or candidate.clearly_better(judge.best):
            judge.best, misses = candidate, 0
        else:
            misses += 1
        if misses == PATIENCE or not np.isfinite(candidate.trial.loss):
            break
    assert judge.best is not None
    if temperature is not None:
        origin = judge.best
        for factor in PRIOR_FACTORS:
            other = judge(temperature, origin.trial.l2 / factor, origin.solution)
            judge.best = other if other.clearly_better(judge.best) else judge.best
    return judge.best


def held_out_rows(trainer: Trainer) -> np.ndarray:
    """A mask of the held-out rows, which score candidates and are not learned from."""
    rows = trainer.rows
    rng = np.random.default_rng([trainer.seed, len(rows)])
    groups = rows.y[:, 0] if trainer.stratify else np.zeros(len(rows))
    held_out = np.zeros(len(rows), bool)
    for group in np.unique(groups):
        members = rng.permutation(np.flatnonzero(groups == group))
        held_out[members[: int(HELD_OUT * len(members))]] = True
    if not held_out.any():
        held_out[rng.integers(len(rows))] = True
    return held_out


@dataclass(frozen=True)
class _Candidate:
    """A solution on one part of the rows, and its loss at each of the others."""

    trained: Trained
    trial: Trial
    losses: np.ndarray
    weights: np.ndarray

    @property
    def solution(self) -> Solution:
        return self.trained.solution

    def clearly_better(self, other: _Candidate) -> bool:
        """Whether the loss is lower by half a standard error of the paired differences.

        Of answers that the rows held out cannot tell apart, the hottest is the easiest to reach and
        to certify.
        """
        if not np.isfinite([self.trial.loss, other.trial.loss]).all():
            return self.trial.loss < other.trial.loss
        difference = other.losses - self.losses
        mean = self.weights @ difference
        error = np.sqrt(self.weights**2 @ (difference - mean) ** 2)
        return bool(mean > error / 2)


class _Scorer:
    """Makes candidates, all on the same split.

    A row held out is a row without weight: it does not influence the fit, but the solver computes
    the network's output there as it does everywhere else.
    """

    def __init__(self, trainer: Trainer, held_out: np.ndarray):
        self.trainer, self.held_out = trainer, held_out
        weights = trainer.rows.weights
        self.learning = np.where(held_out, 0, weights)
        self.weights = weights[held_out] / weights[held_out].sum()
        self.trials: list[Trial] = []
        self.best: _Candidate | None = None

    def __call__(self, temperature: float, l2: float, start: Solution | None) -> _Candidate:
        trainer = self.trainer
        problem = trainer.problem(temperature, l2, self.learning)
        seed = trainer.seed + len(self.trials)
        # Newton has converged once beta = 1; for other solvers we cannot tell, so run to the limit.
        iterations = PATH_ITERATIONS if trainer.solver.turns_on_loss else PATH_LIMIT
        # A run that keeps as many clouds as the fit shares its program.
        clouds = trainer.clouds(ITERATIONS)
        trained = trainer.run(
            problem, iterations, PATH_LIMIT, seed=seed, start=start, clouds=clouds
        )
        solution = trained.solution
        if solution.status == "interrupted":
            raise KeyboardInterrupt
        values = np.asarray(problem.loss.value(solution.moments), np.float64)
        losses = values[: len(self.held_out)][self.held_out]
        losses = np.where(np.isfinite(losses), losses, np.inf)
        if solution.status == Reason.TOO_COLD:
            # The answer is that of a higher temperature: the path ends before this one.
            losses = np.full_like(losses, np.inf)
        trial = Trial(temperature, l2, float(self.weights @ losses))
        self.trials.append(trial)
        trainer.say(f"temperature {temperature:.3g}, l2 {l2:.3g}: held-out loss {trial.loss:.4g}")
        return _Candidate(trained, trial, losses, self.weights)
