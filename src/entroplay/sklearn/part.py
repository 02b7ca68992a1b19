"""A part of a table's rows, which is searched, and what it says of a fit on all rows.

In the kernel's limit the network is a ridge regression whose noise is n T / scale^2: that is what
the part finds, so the temperature for all n rows is the part's, times its share of them. The number
of effective degrees of freedom depends on the temperature, and hardly on the rows: at the lower
temperature all rows have more of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..measures.cloud import KEPT_ELEMENTS
from .fit import Trainer

CARRIED = 5.0
"""Particles per effective degree of freedom of a fit on all rows."""
STEP = 256
"""Numbers of particles are multiples of this one, so that fits share programs."""
GROWTH = (0.1, 1.0)
"""Least and greatest power of 1 / T with which degrees of freedom are taken to grow."""


@dataclass(frozen=True)
class Part:
    """Some of the rows of a trainer."""

    whole: Trainer
    members: np.ndarray
    """A mask of the rows."""
    degrees: list[tuple[float, float]] = field(default_factory=list)
    """The temperatures at which the part was solved, with the degrees of freedom of each."""

    @cached_property
    def trainer(self) -> Trainer:
        """The trainer with these rows only."""
        if self.members.all():
            return self.whole
        return replace(self.whole, rows=self.whole.rows.part(self.members))

    @cached_property
    def share(self) -> float:
        """The number of these rows, as a share of all."""
        return float(self.members.mean())

    def for_all(self, temperature: float) -> tuple[Trainer, float]:
        """The trainer for all rows, with as many particles as the temperature needs.

        Where so many would take too much memory, the temperature is raised to what fewer carry.
        """
        whole, known = self.whole, [(t, d) for t, d in self.degrees if d > 0]
        if self.share == 1 or not known:
            return whole, temperature
        last, d_eff = known[-1]
        power = GROWTH[1]
        if len(known) > 1:
            before, fewer = known[-2]
            power = float(np.clip(np.log(d_eff / fewer) / np.log(before / last), *GROWTH))
        needed = CARRIED * d_eff * (last / temperature) ** power
        most = max(whole.particles, min(whole.most, KEPT_ELEMENTS // whole.size))
        particles = int(np.clip(STEP * np.ceil(needed / STEP), whole.particles, most))
        if needed > particles:
            temperature = min(temperature * (needed / particles) ** (1 / power), last)
        return replace(whole, particles=particles), temperature
