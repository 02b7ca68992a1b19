"""The choice of temperature and l2: a path from hot to cold, judged by rows that it did not see.

Where leave-one-out losses can be trusted they judge: all rows take part. Where a solution follows
single rows they are too optimistic, and a fifth of the rows is held out from a second path.

Of a large table a part of the rows is searched. In the kernel's limit the network is a ridge
regression whose noise is n T / scale^2: that is what the part finds, so the temperature for all n
rows is the part's, times its share of the rows. All temperatures and penalties of this module are
those for all rows; only `_Scorer` converts them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..runs.solution import Reason, Solution
from ..verbs.leave_one_out import judged_rows
from .fit import ITERATIONS, Trained, Trainer

HELD_OUT = 0.2
"""Fraction of the rows held out to score temperatures and penalties."""
LEAST_SEARCHED = 10
"""With fewer distinct rows there is no search: the temperature is `FALLBACK * hottest`."""
FALLBACK = 0.1
"""Temperature without a search, as a fraction of the hottest one."""
LADDER = 10.0 ** np.arange(0, -8, -0.5)
"""Temperatures that are tried, as fractions of the hottest one."""
MOST_SEARCHED, MOST_ENTRIES, LEAST_OF_MANY = 1500, 5000, 500
"""Maximum number of rows that are searched, and of rows times outputs; but for tables that are
larger, at least the last number of rows."""
COLDEST, COLDEST_OF_CLASSES = 0.3, 1.0
"""Lowest temperature that is tried, in units of the hottest one over n.

A kernel regression with noise of that size interpolates. A tenth of it was tried on six tables:
better on two, worse on three, and up to ten times as slow. With several outputs every half decade
costs more than all that came before it.
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


CLEARLY = 0.25
"""Standard errors of the paired differences by which a colder solution must be better."""


class Trial(NamedTuple):
    """A row of the table of what was tried; `loss` is that of rows left out or held out."""

    temperature: float
    l2: float
    loss: float


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a search that has something to show.

    Attributes:
        trained: the best network so far, fitted to the rows that were searched.
        rows: the number of those rows.
        trials: the table of what was tried.
    """

    def __init__(self, trained: Trained, rows: int, trials: list[Trial]):
        super().__init__("the search was interrupted")
        self.trained, self.rows, self.trials = trained, rows, trials


def search(
    trainer: Trainer, temperature: float | None, l2: float | None
) -> tuple[float, float, list[Trial]]:
    """Temperature and l2, chosen where they are None, and the table of what was tried.

    The temperature falls, and l2 with it, which keeps the prior; each solution starts from the last
    one. The path ends when the loss at rows that were left out or held out has not improved for a
    while. At a given temperature a few priors are tried. Ctrl-C raises `SearchInterrupted` with the
    best network so far, once there is one.
    """
    if temperature is not None and l2 is not None:
        return temperature, l2, []
    n, hottest = len(trainer.rows), trainer.hottest
    if n < LEAST_SEARCHED:
        chosen = hottest * FALLBACK if temperature is None else temperature
        return chosen, chosen / (2 * PRIOR_VARIANCE) if l2 is None else l2, []
    best, trials = None, []
    share, trainer = searched(trainer)
    if temperature is None and trainer.solver.turns_on_loss:
        judge = _LeftOut(trainer, share)
        best, trials = _tried(judge, None, l2), judge.trials
        if best is not None and not judge.in_doubt:
            return best.trial.temperature, best.trial.l2, trials
    other_judge = _HeldOut(trainer, share)
    other = _tried(other_judge, temperature, l2, before=(best, trials))
    assert other is not None
    # Rows held out decide only whether to go on from where leave-one-out losses end.
    if best is None or other.trial.temperature < best.trial.temperature:
        best = other
    return best.trial.temperature, best.trial.l2, trials + other_judge.trials


def _tried(
    judge: _Scorer,
    temperature: float | None,
    l2: float | None,
    before: tuple[_Candidate | None, list[Trial]] = (None, []),
) -> _Candidate | None:
    """The best candidate of this judge, if any; `before` is what an earlier judge found."""
    try:
        return _best(judge, temperature, l2)
    except KeyboardInterrupt:
        best = before[0] or judge.best
        if best is None:
            raise
        trials = before[1] + judge.trials
        raise SearchInterrupted(best.trained, len(judge.trainer.rows), trials) from None


def _best(judge: _Scorer, temperature: float | None, l2: float | None) -> _Candidate | None:
    """The best candidate; `judge.best` holds the best so far."""
    trainer = judge.trainer
    hottest, outputs = trainer.hottest * judge.share, trainer.outputs
    coldest = (COLDEST if outputs == 1 else COLDEST_OF_CLASSES) / len(trainer.rows)
    ladder = [float(hottest * t) for t in LADDER if t >= coldest] or [hottest]
    misses, start = 0, None
    for value in ladder if temperature is None else [temperature]:
        candidate = judge(value, value / (2 * PRIOR_VARIANCE) if l2 is None else l2, start)
        start = candidate.solution
        if candidate.doubtful:
            # What comes is doubtful, too. It matters if the last temperature was the best one.
            judge.in_doubt = misses == 0
            break
        if judge.best is None or candidate.clearly_better(judge.best):
            judge.best, misses = candidate, 0
        else:
            misses += 1
        if misses == PATIENCE or not np.isfinite(candidate.trial.loss):
            break
    if temperature is not None:
        origin = judge.best
        assert origin is not None
        for factor in PRIOR_FACTORS:
            other = judge(temperature, origin.trial.l2 / factor, origin.solution)
            judge.best = other if other.clearly_better(judge.best or origin) else judge.best
    return judge.best


def searched(trainer: Trainer) -> tuple[float, Trainer]:
    """The share of the rows that is searched, and the trainer with these rows only."""
    n = len(trainer.rows)
    most = min(MOST_SEARCHED, max(LEAST_OF_MANY, MOST_ENTRIES // trainer.outputs))
    if n <= most:
        return 1.0, trainer
    chosen = _random_part(trainer, most / n, least=1)
    return chosen.mean(), replace(trainer, rows=trainer.rows.part(chosen))


def held_out_rows(trainer: Trainer) -> np.ndarray:
    """A mask of the held-out rows, which score candidates and are not learned from."""
    held_out = _random_part(trainer, HELD_OUT, least=0)
    if not held_out.any():
        held_out[np.random.default_rng(trainer.seed).integers(len(held_out))] = True
    return held_out


def _random_part(trainer: Trainer, share: float, *, least: int) -> np.ndarray:
    """A mask of a random part of the rows, by label if targets are labels.

    Of every label there are at least so many.
    """
    rows = trainer.rows
    rng = np.random.default_rng([trainer.seed, len(rows)])
    groups = rows.y[:, 0] if trainer.stratify else np.zeros(len(rows))
    part = np.zeros(len(rows), bool)
    for group in np.unique(groups):
        members = rng.permutation(np.flatnonzero(groups == group))
        part[members[: max(least, int(share * len(members)))]] = True
    return part


@dataclass(frozen=True)
class _Candidate:
    """A solution, and its loss at each of the rows that judge it."""

    trained: Trained
    trial: Trial
    losses: np.ndarray
    weights: np.ndarray
    doubtful: bool = False
    """Whether the losses are known to be too optimistic."""

    @property
    def solution(self) -> Solution:
        return self.trained.solution

    def clearly_better(self, other: _Candidate) -> bool:
        """Whether the loss is lower by `CLEARLY` standard errors of the paired differences.

        Of answers that the rows cannot tell apart, the hottest is the easiest to reach and to
        certify.
        """
        if not np.isfinite([self.trial.loss, other.trial.loss]).all():
            return self.trial.loss < other.trial.loss
        difference = other.losses - self.losses
        mean = self.weights @ difference
        error = np.sqrt(self.weights**2 @ (difference - mean) ** 2)
        return bool(mean > CLEARLY * error)


class _Scorer:
    """Makes candidates, all judged by the same rows."""

    kind: str
    """The loss in words."""

    def __init__(self, trainer: Trainer, share: float, learning: np.ndarray, weights: np.ndarray):
        self.trainer, self.share, self.learning = trainer, share, learning
        self.weights = weights / weights.sum()
        self.trials: list[Trial] = []
        self.best: _Candidate | None = None
        self.in_doubt = False
        """Whether the path ended at losses that are too optimistic while they were falling."""

    def losses(self, solution: Solution) -> tuple[np.ndarray, bool]:
        """The loss of every row that judges, and whether it is doubtful."""
        raise NotImplementedError

    def __call__(self, temperature: float, l2: float, start: Solution | None) -> _Candidate:
        trainer = self.trainer
        # The same noise, and the same prior.
        problem = trainer.problem(temperature / self.share, l2 / self.share, self.learning)
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
        losses, doubtful = self.losses(solution)
        losses = np.where(np.isfinite(losses), losses, np.inf)
        if solution.status == Reason.TOO_COLD:
            # The answer is that of a higher temperature: the path ends before this one.
            losses, doubtful = np.full_like(losses, np.inf), False
        trial = Trial(temperature, l2, float(self.weights @ losses))
        self.trials.append(trial)
        note = ", too optimistic" if doubtful else ""
        trainer.say(
            f"temperature {temperature:.3g}, l2 {l2:.3g}: {self.kind} loss {trial.loss:.4g}{note}"
        )
        return _Candidate(trained, trial, losses, self.weights, doubtful)


class _LeftOut(_Scorer):
    """Every row judges the solution that it would have without itself."""

    kind = "leave-one-out"

    def __init__(self, trainer: Trainer, share: float):
        super().__init__(trainer, share, trainer.rows.weights, trainer.rows.weights)

    def losses(self, solution: Solution) -> tuple[np.ndarray, bool]:
        judged = judged_rows(solution)
        return judged.losses[: len(self.weights)], bool(judged.too_optimistic)


class _HeldOut(_Scorer):
    """Rows without weight judge.

    They do not influence the fit, but the solver computes the network's output there as it does
    everywhere else.
    """

    kind = "held-out"

    def __init__(self, trainer: Trainer, share: float):
        self.held_out = held_out_rows(trainer)
        weights = trainer.rows.weights
        learning = np.where(self.held_out, 0, weights)
        super().__init__(trainer, share, learning, weights[self.held_out])

    def losses(self, solution: Solution) -> tuple[np.ndarray, bool]:
        values = np.asarray(solution.problem.loss.value(solution.moments), np.float64)
        return values[: len(self.held_out)][self.held_out], False
