"""The choice of temperature and l2: a path from hot to cold, judged by rows that it did not see.

Where leave-one-out losses can be trusted they judge: all rows take part. Where a solution follows
single rows they are too optimistic, and a fifth of the rows is held out from a second path.

Of a large table a part of the rows is searched. In the kernel's limit the network is a ridge
regression whose noise is n T / scale^2: that is what the part finds, so the temperature for all n
rows is the part's, times its share of the rows. All temperatures and penalties of this module are
those for all rows; only `_Scorer` converts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..problems.features.base import Moments
from ..runs.solution import Reason, Solution
from ..verbs.leave_one_out import judged_rows
from .fit import ITERATIONS, Begin, Trained, Trainer

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
"""Lowest temperature that is tried by rows held out, in units of the hottest one over n.

A kernel regression with noise of that size interpolates. A tenth of it was tried on six tables:
better on two, worse on three, and up to ten times as slow. With several outputs every half decade
costs more than all that came before it, so that the second number holds for every judge.
"""
COLDEST_LEFT_OUT = 1e-5
"""Lowest temperature that is tried by leave-one-out losses, as a fraction of the hottest one.

Where these can be trusted so far down, there is hardly any noise. Single precision ends here.
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
        trainer: its trainer, with these rows.
        trials: the table of what was tried.
    """

    def __init__(self, trained: Trained, trainer: Trainer, trials: list[Trial]):
        super().__init__("the search was interrupted")
        self.trained, self.trainer, self.trials = trained, trainer, trials


class Found(NamedTuple):
    """What a search finds.

    Attributes:
        trainer: one of the trainers.
        temperature, l2: the values given or chosen.
        trials: what was tried with this trainer.
        begin: where its fit may begin.
    """

    trainer: Trainer
    temperature: float
    l2: float
    trials: list[Trial]
    begin: Begin | None = None


def search(trainers: Sequence[Trainer], temperature: float | None, l2: float | None) -> Found:
    """One of the trainers, and temperature and l2, chosen where they are None.

    The temperature falls, and l2 with it, which keeps the prior; each solution starts from the last
    one. The path ends when the loss at rows that were left out or held out has not improved for a
    while. Leave-one-out losses also choose between trainers; where there are none the first trainer
    is taken. At a given temperature a few priors are tried. Ctrl-C raises `SearchInterrupted` with
    the best network so far, once there is one.
    """
    first = trainers[0]
    if temperature is not None and l2 is not None:
        return Found(first, temperature, l2, [])
    if len(first.rows) < LEAST_SEARCHED:
        chosen = first.hottest * FALLBACK if temperature is None else temperature
        return Found(first, chosen, chosen / (2 * PRIOR_VARIANCE) if l2 is None else l2, [])
    winner, judge = first, None
    if temperature is None and first.solver.turns_on_loss:
        for trainer in trainers:
            other = _LeftOut(*searched(trainer))
            _try(other, None, l2, before=judge)
            if judge is None or other.beats(judge):
                winner, judge = trainer, other
        assert judge is not None
        if judge.best is not None and not judge.in_doubt:
            return judge.found(winner)
    # Rows held out decide only whether to go on from where leave-one-out losses end.
    held_out = _HeldOut(*searched(winner))
    _try(held_out, temperature, l2, before=judge)
    assert held_out.best is not None
    if judge is None or judge.best is None:
        return held_out.found(winner)
    chosen = held_out if held_out.colder_than(judge.best) else judge
    return chosen.found(winner)._replace(trials=judge.trials + held_out.trials)


def _try(
    judge: _Scorer, temperature: float | None, l2: float | None, before: _Scorer | None
) -> None:
    """Let `judge` find its best candidate, if any; `before` has judged already.

    Ctrl-C during this keeps the best candidate of either.
    """
    try:
        _find_best(judge, temperature, l2)
    except KeyboardInterrupt:
        known = judge if before is None or before.best is None else before
        if known.best is None:
            raise
        trials = (before.trials if before else []) + judge.trials
        raise SearchInterrupted(known.best.trained, known.trainer, trials) from None


def _find_best(judge: _Scorer, temperature: float | None, l2: float | None) -> None:
    """Find the best candidate; `judge.best` holds the best so far."""
    hottest = judge.trainer.hottest * judge.share
    ladder = [float(hottest * t) for t in LADDER if t >= judge.coldest] or [hottest]
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

    def __init__(self, share: float, trainer: Trainer, learning: np.ndarray, weights: np.ndarray):
        self.trainer, self.share, self.learning = trainer, share, learning
        self.weights = weights / weights.sum()
        self.trials: list[Trial] = []
        self.duals: list[tuple[float, Moments]] = []
        """The temperatures that were tried, with the dual vector of each."""
        self.best: _Candidate | None = None
        self.in_doubt = False
        """Whether the path ended at losses that are too optimistic while they were falling."""

    @property
    def coldest(self) -> float:
        """Lowest temperature that is tried, as a fraction of the hottest one."""
        outputs = self.trainer.outputs
        return (COLDEST if outputs == 1 else COLDEST_OF_CLASSES) / len(self.trainer.rows)

    def beats(self, other: _Scorer) -> bool:
        """Whether the best candidate is clearly better than that of a judge of the same kind."""
        if self.best is None or other.best is None:
            return self.best is not None
        return self.best.clearly_better(other.best)

    def colder_than(self, other: _Candidate) -> bool:
        """Whether the best candidate has a lower temperature than the other one."""
        assert self.best is not None
        return self.best.trial.temperature < other.trial.temperature

    def found(self, trainer: Trainer) -> Found:
        """The best candidate, for all rows of this trainer."""
        assert self.best is not None
        return Found(trainer, self.best.trial.temperature, self.best.trial.l2, self.trials)

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
        self.duals.append((temperature, solution.dual))
        note = ", too optimistic" if doubtful else ""
        trainer.say(
            f"temperature {temperature:.3g}, l2 {l2:.3g}: {self.kind} loss {trial.loss:.4g}{note}"
        )
        return _Candidate(trained, trial, losses, self.weights, doubtful)


class _LeftOut(_Scorer):
    """Every row judges the solution that it would have without itself."""

    kind = "leave-one-out"

    def __init__(self, share: float, trainer: Trainer):
        super().__init__(share, trainer, trainer.rows.weights, trainer.rows.weights)

    @property
    def coldest(self) -> float:
        return COLDEST_LEFT_OUT if self.trainer.outputs == 1 else super().coldest

    def found(self, trainer: Trainer) -> Found:
        found = super().found(trainer)
        assert self.best is not None
        if self.share < 1:
            return found
        # All rows took part: the fit goes on from there.
        duals = [
            (found.temperature / hotter) * np.asarray(dual)
            for hotter, dual in self.duals
            if hotter >= found.temperature
        ]
        return found._replace(begin=Begin(self.best.solution, np.stack(duals)))

    def losses(self, solution: Solution) -> tuple[np.ndarray, bool]:
        judged = judged_rows(solution)
        return judged.losses[: len(self.weights)], bool(judged.too_optimistic)


class _HeldOut(_Scorer):
    """Rows without weight judge.

    They do not influence the fit, but the solver computes the network's output there as it does
    everywhere else.
    """

    kind = "held-out"

    def __init__(self, share: float, trainer: Trainer):
        self.held_out = held_out_rows(trainer)
        weights = trainer.rows.weights
        learning = np.where(self.held_out, 0, weights)
        super().__init__(share, trainer, learning, weights[self.held_out])

    def losses(self, solution: Solution) -> tuple[np.ndarray, bool]:
        values = np.asarray(solution.problem.loss.value(solution.moments), np.float64)
        return values[: len(self.held_out)][self.held_out], False
