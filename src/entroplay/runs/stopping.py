"""Rules that end a run early, consulted by the loop between two chunks of iterations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..problems.features.base import Moments, Particles
from .history import last_row
from .solution import RECENT, Reason, Status

if TYPE_CHECKING:
    from .loop import Loop

RARELY = 2**31
"""An interval that never shortens a chunk."""


class Rule(ABC):
    """Looks at a run now and then and may end it."""

    def interval(self, done: int) -> int:
        """Maximum number of iterations until this rule must look again.

        A rule whose answers must not depend on the machine's speed names the iterations at which it
        looks.
        """
        return RARELY

    @abstractmethod
    def verdict(self, loop: Loop) -> Status | None:
        """Why the run is to end now, or None."""


@dataclass(frozen=True)
class Report:
    """What a callback receives after an iteration; `row` is its entry in the history."""

    iteration: int
    row: dict[str, float]
    particles: Particles
    moments: Moments
    iterate: Particles | None = None

    def __getattr__(self, name: str) -> float:
        try:
            return self.row[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Callback(Rule):
    """Calls a function with a `Report` after every iteration; a true return value ends the run."""

    function: Callable[[Report], Any]

    def interval(self, done: int) -> int:
        return 1

    def verdict(self, loop: Loop) -> Status | None:
        state = loop.state
        report = Report(
            iteration=loop.done,
            row=last_row(loop.history),
            particles=state.particles,
            moments=state.moments,
            iterate=loop.solver.iterate(state),
        )
        return stopped_by_callback(loop.done) if self.function(report) else None


def stopped_by_callback(done: int) -> Status:
    """The status of a run that a callback ended."""
    return Status(Reason.CALLBACK, f"the callback asked to stop after iteration {done}.")


@dataclass
class Tolerance(Rule):
    """Ends a run once a certificate bounds the distance to the optimum by `tolerance`.

    A certificate costs more than many iterations. One is made only when the run's own estimate of
    the gap is below the tolerance, and again after half as many more iterations if it did not pass.
    """

    tolerance: float
    certify: Callable[[Loop], Any]
    """Makes a certificate of the run's present dual: with `mixed` and `bound`."""
    next_certificate: int = field(default=0, init=False)

    def interval(self, done: int) -> int:
        return RECENT - done % RECENT

    def verdict(self, loop: Loop) -> Status | None:
        if not self._promising(loop.done, loop.history["gap"][-RECENT:]):
            return None
        self.next_certificate = loop.done + loop.done // 2
        certificate = self.certify(loop)
        if not (certificate.mixed and certificate.bound <= self.tolerance):
            return None
        sentence = f"after {loop.done} iterations certified to be {certificate.verdict}."
        return Status(Reason.CONVERGED, sentence)

    def _promising(self, done: int, recent: np.ndarray) -> bool:
        """Whether the estimated gap is below the tolerance.

        Checked every `RECENT` iterations, so that results do not depend on timing. Methods without
        an estimate (NaN) are always worth a certificate.
        """
        if done % RECENT or done < self.next_certificate:
            return False
        return bool(np.isnan(recent).all() or np.nanmean(recent) <= self.tolerance)
