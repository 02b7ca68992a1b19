"""Judges of temperatures and penalties: by rows that were left out, or held out.

Of a large table a part of the rows is searched, and others judge. All temperatures and penalties
are those for all rows; only `Judge` converts them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..problems.features.base import Moments, mean_features
from ..runs.solution import Reason, Solution
from ..verbs.leave_one_out import judged_rows
from .candidates import Candidate, Trial
from .fit import ITERATIONS, Begin, Trained, Trainer
from .part import Part
from .rows import bucket, padded

HELD_OUT = 0.2
"""Fraction of the rows held out to score temperatures and penalties."""
MOST_SEARCHED, MOST_ENTRIES, LEAST_OF_MANY = 1500, 5000, 500
"""Maximum number of rows that are searched, and of rows times outputs; but for tables that are
larger, at least the last number of rows."""
MOST_JUDGING = 2048
"""Maximum number of rows that judge what a part of a large table has learned."""
COLDEST, COLDEST_OF_CLASSES = 0.003, 1.0
"""Lowest temperature that is tried by rows held out, in units of the hottest one over n.

A kernel regression with noise of that size interpolates. A tenth of it was tried on six tables:
better on two, worse on three, and up to ten times as slow. With several outputs every half decade
costs more than all that came before it, so that the second number holds for every judge.
"""
COLDEST_SHARP = 1e-5
"""Lowest temperature that is tried in a regression if all rows judge, or many that are not needed
for learning, as a fraction of the hottest one.

Where losses fall so far down, there is hardly any noise. Single precision ends here. For labels
this is not allowed: where classes part, the losses fall for ever.
"""
PATH_ITERATIONS, PATH_LIMIT, FIRST_LIMIT = 2, 24, 100
"""Iterations at each temperature of the path after the whole loss is on, at most, and at most at
the first one, to which the run comes from the prior."""
ENOUGH = 4.0
"""Particles per effective degree of freedom below which no colder temperature is tried: the cloud
could not carry it, or only after many slow steps."""


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


def searched(trainer: Trainer) -> Part:
    """The rows that are searched."""
    n = len(trainer.rows)
    most = min(MOST_SEARCHED, max(LEAST_OF_MANY, MOST_ENTRIES // trainer.outputs))
    if n <= most:
        return Part(trainer, np.ones(n, bool))
    return Part(trainer, _random_part(trainer, most / n, least=1))


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


class Judge:
    """Makes candidates, all judged by the same rows."""

    kind: str
    """The loss in words."""
    sharp: bool = True
    """Whether enough rows judge for the lowest temperatures."""

    def __init__(self, part: Part, learning: np.ndarray, weights: np.ndarray):
        self.part, self.learning = part, learning
        self.weights = weights / weights.sum()
        self.trials: list[Trial] = []
        self.duals: list[tuple[float, Moments]] = []
        """The temperatures that were tried, with the dual vector of each."""
        self.best: Candidate | None = None
        self.in_doubt = False
        """Whether the path ended at losses that are too optimistic while they were falling."""

    @property
    def trainer(self) -> Trainer:
        """The trainer of the part."""
        return self.part.trainer

    @property
    def coldest(self) -> float:
        """Lowest temperature that is tried, as a fraction of the hottest one."""
        outputs = self.trainer.outputs
        if self.sharp and outputs == 1 and not self.trainer.stratify:
            return COLDEST_SHARP
        return (COLDEST if outputs == 1 else COLDEST_OF_CLASSES) / len(self.trainer.rows)

    def beats(self, other: Judge) -> bool:
        """Whether the best candidate is clearly better than that of a judge of the same kind."""
        if self.best is None or other.best is None:
            return self.best is not None
        return self.best.clearly_better(other.best)

    def colder_than(self, other: Candidate) -> bool:
        """Whether there is a best candidate with a lower temperature than the other one."""
        return self.best is not None and self.best.trial.temperature < other.trial.temperature

    def hotter_than(self, other: Trial) -> list[Trial]:
        """What was tried at higher temperatures than the other one."""
        return [trial for trial in self.trials if trial.temperature > other.temperature]

    def found(self, given: bool) -> Found:
        """The best candidate, for all rows; a given temperature stays."""
        assert self.best is not None
        chosen = self.best.trial
        trainer, temperature = self.part.for_all(chosen.temperature)
        temperature = chosen.temperature if given else temperature
        l2 = chosen.l2 * temperature / chosen.temperature
        return Found(trainer, temperature, l2, self.trials)

    def losses(self, trained: Trained) -> tuple[np.ndarray, bool]:
        """The loss of every row that judges, and whether it is doubtful."""
        raise NotImplementedError

    def __call__(self, temperature: float, l2: float, start: Solution | None) -> Candidate:
        trainer = self.trainer
        # The same noise, and the same prior.
        share = self.part.share
        problem = trainer.problem(temperature / share, l2 / share, self.learning)
        seed = trainer.seed + len(self.trials)
        # Newton has converged once beta = 1; for other solvers we cannot tell, so run to the limit.
        rises = trainer.solver.turns_on_loss
        iterations = PATH_ITERATIONS if rises else PATH_LIMIT
        limit = FIRST_LIMIT if rises and start is None else PATH_LIMIT
        # A run that keeps as many clouds as the fit shares its program.
        clouds = trainer.clouds(ITERATIONS)
        trained = trainer.run(problem, iterations, limit, seed=seed, start=start, clouds=clouds)
        solution = trained.solution
        if solution.status == "interrupted":
            raise KeyboardInterrupt
        losses, doubtful = self.losses(trained)
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
        # Only methods that turn the loss on know their degrees of freedom.
        d_eff = float(solution.history["d_eff"][-1]) if "d_eff" in solution.history else 0.0
        self.part.degrees.append((problem.temperature, d_eff))
        last = ENOUGH * d_eff > trainer.particles
        return Candidate(trained, trial, losses, self.weights, doubtful, last)


class LeftOut(Judge):
    """Every row judges the solution that it would have without itself."""

    kind = "leave-one-out"

    def __init__(self, part: Part):
        super().__init__(part, part.trainer.rows.weights, part.trainer.rows.weights)

    def found(self, given: bool) -> Found:
        found = super().found(given)
        assert self.best is not None
        if self.part.share < 1:
            return found
        # All rows took part: the fit goes on from there.
        duals = [
            (found.temperature / hotter) * np.asarray(dual)
            for hotter, dual in self.duals
            if hotter >= found.temperature
        ]
        return found._replace(begin=Begin(self.best.solution, np.stack(duals)))

    def losses(self, trained: Trained) -> tuple[np.ndarray, bool]:
        judged = judged_rows(trained.solution)
        return judged.losses[: len(self.weights)], bool(judged.too_optimistic)


class HeldOut(Judge):
    """Rows without weight judge.

    They do not influence the fit, but the solver computes the network's output there as it does
    everywhere else.
    """

    kind, sharp = "held-out", False

    def __init__(self, part: Part):
        self.held_out = held_out_rows(part.trainer)
        weights = part.trainer.rows.weights
        learning = np.where(self.held_out, 0, weights)
        super().__init__(part, learning, weights[self.held_out])

    def losses(self, trained: Trained) -> tuple[np.ndarray, bool]:
        solution = trained.solution
        values = np.asarray(solution.problem.loss.value(solution.moments), np.float64)
        return values[: len(self.held_out)][self.held_out], False


class Others(Judge):
    """Rows of a large table that are not searched judge the network's predictions."""

    kind = "held-out"

    def __init__(self, part: Part):
        rows, seed = part.whole.rows, part.whole.seed
        others = np.random.default_rng([seed, 1]).permutation(np.flatnonzero(~part.members))
        self.rows = rows.part(np.sort(others[:MOST_JUDGING]))
        super().__init__(part, part.trainer.rows.weights, self.rows.weights)
        size = bucket(len(self.rows))
        self._features = self.trainer.features(padded(self.rows.X, size))
        self._loss = self.trainer.loss(padded(self.rows.y, size))

    def losses(self, trained: Trained) -> tuple[np.ndarray, bool]:
        pooled = trained.pooled()
        moments = mean_features(self._features, pooled.particles, pooled.weights)
        values = np.asarray(self._loss.value(moments), np.float64)
        return values[: len(self.rows)], False
