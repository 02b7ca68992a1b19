"""Solutions that a search compares: by how much one must be better than another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..runs.solution import Solution
from .fit import Trained

CLEARLY = 1.0
"""Standard errors of the paired differences by which a colder solution must be better. With a
quarter, and one more temperature tried, four of 22 paths over tables with noise ended at solutions
with larger test errors, by three to nine per cent and once by more than half, at up to five times
the cost; three ended at solutions whose errors were smaller by at most 1.4 per cent."""


class Trial(NamedTuple):
    """A row of the table of what was tried; `loss` is that of rows left out or held out."""

    temperature: float
    l2: float
    loss: float


@dataclass(frozen=True)
class Candidate:
    """A solution, and its loss at each of the rows that judge it."""

    trained: Trained
    trial: Trial
    losses: np.ndarray
    weights: np.ndarray
    doubtful: bool = False
    """Whether the losses are known to be too optimistic."""
    last: bool = False
    """Whether the cloud is too small for a colder temperature."""

    @property
    def solution(self) -> Solution:
        return self.trained.solution

    def clearly_better(self, other: Candidate) -> bool:
        """Whether the loss is lower by CLEARLY standard errors of the paired differences.

        Of answers that the rows cannot tell apart, the hottest is the easiest to reach and to
        certify.
        """
        if not np.isfinite([self.trial.loss, other.trial.loss]).all():
            return self.trial.loss < other.trial.loss
        difference = other.losses - self.losses
        mean = self.weights @ difference
        error = np.sqrt(self.weights**2 @ (difference - mean) ** 2)
        return bool(mean > CLEARLY * error)
