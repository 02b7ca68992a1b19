"""The choice of temperature and l2: a path from hot to cold, judged by rows that it did not see.

In a large table a part is searched, and other rows judge. Otherwise leave-one-out losses judge
where they can be trusted: all rows take part. Where a solution follows single rows they are too
optimistic, and a fifth of the rows is held out from a second path.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .candidates import Trial
from .fit import Trained, Trainer
from .judges import Found, HeldOut, Judge, LeftOut, Others, searched

LEAST_SEARCHED = 10
"""With fewer distinct rows there is no search: the temperature is `FALLBACK * hottest`."""
FALLBACK = 0.1
"""Temperature without a search, as a fraction of the hottest one."""
LADDER = 10.0 ** np.arange(0, -8, -0.5)
"""Temperatures that are tried, as fractions of the hottest one."""
PATIENCE, AT_FIRST = 1, 4
"""Number of successive temperatures without a clear improvement after which the path ends; and as
long as the hottest one is the best, since a target that oscillates is not met at all until the
network is cold enough for it."""
PRIOR_VARIANCE = 1.0
"""Prior variance temperature / (2 l2) of every parameter along the path.

Inputs are scaled so that it is the variance of w.x, too.
"""
PRIOR_FACTORS = (3.0, 1 / 3.0)
"""Further prior variances that are tried at a given temperature, in units of `PRIOR_VARIANCE`."""


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
    winner, judge, given = first, None, temperature is not None
    parts = [searched(trainer) for trainer in trainers]
    large = parts[0].share < 1
    if large or (temperature is None and first.solver.turns_on_loss):
        for part in parts:
            other = Others(part) if large else LeftOut(part)
            _try(other, temperature, l2, before=judge)
            if judge is None or other.beats(judge):
                winner, judge = part.whole, other
        assert judge is not None
        if judge.best is not None and not judge.in_doubt:
            return judge.found(given)
    held_out = HeldOut(searched(winner))
    if judge is None or judge.best is None:
        _try(held_out, temperature, l2, before=judge)
        return held_out.found(given)
    # Rows held out decide only whether to go on from where leave-one-out losses end.
    _try(held_out, None, l2, before=judge, hottest=judge.best.trial.temperature)
    if not held_out.colder_than(judge.best):
        return judge.found(given)
    colder = held_out.found(given)
    return colder._replace(trials=judge.hotter_than(colder.trials[0]) + colder.trials)


def _try(
    judge: Judge,
    temperature: float | None,
    l2: float | None,
    *,
    before: Judge | None,
    hottest: float = np.inf,
) -> None:
    """Let `judge` find its best candidate, if any; `before` has judged already.

    Ctrl-C during this keeps the best candidate of either.
    """
    try:
        _find_best(judge, temperature, l2, hottest)
    except KeyboardInterrupt:
        known = judge if before is None or before.best is None else before
        if known.best is None:
            raise
        trials = (before.trials if before else []) + judge.trials
        raise SearchInterrupted(known.best.trained, known.trainer, trials) from None


def _find_best(judge: Judge, temperature: float | None, l2: float | None, hottest: float) -> None:
    """Find the best candidate, at most as hot as `hottest`; `judge.best` holds the best so far."""
    patience = AT_FIRST if np.isinf(hottest) else PATIENCE
    top = judge.trainer.hottest * judge.part.share
    ladder = [float(top * t) for t in LADDER if t >= judge.coldest] or [top]
    ladder = [t for t in ladder if t <= hottest]
    misses, start = 0, None
    for value in ladder if temperature is None else [temperature]:
        candidate = judge(value, value / (2 * PRIOR_VARIANCE) if l2 is None else l2, start)
        start = candidate.solution
        if candidate.doubtful:
            # What comes is doubtful, too. It matters if the last temperature was the best one.
            judge.in_doubt = misses == 0
            break
        if judge.best is None:
            judge.best = candidate
        elif candidate.clearly_better(judge.best):
            judge.best, misses, patience = candidate, 0, PATIENCE
        else:
            misses += 1
        if misses == patience or candidate.last or not np.isfinite(candidate.trial.loss):
            break
    if temperature is not None:
        origin = judge.best
        assert origin is not None
        for factor in PRIOR_FACTORS:
            other = judge(temperature, origin.trial.l2 / factor, origin.solution)
            judge.best = other if other.clearly_better(judge.best or origin) else judge.best
