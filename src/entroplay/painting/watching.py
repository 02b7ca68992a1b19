"""Watching a painting: progress reports, the callback, and the error at which it may stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..problems.problem import FiniteSum
from ..runs.loop import Loop
from ..runs.solution import History, Reason, Status
from ..runs.stopping import Rule, stopped_by_callback
from .painting import psnr

LOOK = 10
"""Number of iterations between two looks at the target error."""


@dataclass(frozen=True)
class Progress:
    """Progress report passed to the callback."""

    iteration: int
    iterations: int
    seconds: float
    mse: float
    """Mean squared error of the triangles as they are, not clipped to [0, 1]."""

    def __str__(self) -> str:
        return f"{self.iteration} of {self.iterations}, {self.seconds:.1f} s, {quality(self.mse)}"


@dataclass(frozen=True)
class ProgressCallback(Rule):
    """Calls a function with a `Progress` after every chunk; a true return value ends the run."""

    function: Callable[[Progress], Any]

    def verdict(self, loop: Loop) -> Status | None:
        seconds = float(loop.history["seconds"][-1])
        mse = present_mse(loop.problem, loop.history)
        report = Progress(loop.done, loop.iterations, seconds, mse)
        return stopped_by_callback(loop.done) if self.function(report) else None


@dataclass(frozen=True)
class TargetMSE(Rule):
    """Ends the painting once its mean squared error, at the full size, is small enough."""

    target: float

    def interval(self, done: int) -> int:
        return LOOK - done % LOOK

    def verdict(self, loop: Loop) -> Status | None:
        mse = present_mse(loop.problem, loop.history)
        if loop.problem is not loop.stages[-1].problem or mse > self.target:
            return None
        message = f"the mean squared error {mse:.6f} is below {self.target:g}."
        return Status(Reason.CONVERGED, message)


def present_mse(problem: FiniteSum, history: History) -> float:
    """Mean squared error per pixel and channel: the loss is half the sum over channels."""
    features: Any = problem.features
    return 2 * float(history["loss_particles"][-1]) / features.colour_channels


def quality(mse: float) -> str:
    """An error in words."""
    return f"MSE {mse:.6f}, PSNR {psnr(mse):.1f} dB"
