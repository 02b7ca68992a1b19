"""Gauss-Legendre panels that are bisected until densities are resolved, along lines.

Coordinates and log-densities are those of `modes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .modes import Landscape
from .quadrature import TAIL, UnresolvedError
from .uniform import STEEP, slack

NODES, WEIGHTS = np.polynomial.legendre.leggauss(15)
"""The rule of one panel on [-1, 1], exact for polynomials of degree 29."""
TO_COEFFICIENTS = (
    np.polynomial.legendre.legvander(NODES, 14) * WEIGHTS[:, None] * (np.arange(15) + 0.5)
)
"""From the values at the nodes to the coefficients of Legendre's polynomials."""
MIDDLE, END = slice(10, 12), slice(13, 15)
"""The coefficients whose ratio says how fast the expansion of the integrand converges."""
SURPRISE = 30.0
"""The grid is begun again if a log-density exceeds the greatest one known by more than this."""
DEPTH = 64
"""Maximum number of bisections of a panel."""
TINY = 1e-14
"""Width of a panel, relative to its distance from the origin, that is not divided further."""
NOISE = 2e-15
"""Relative rounding error of a log-density."""
GROUP_ELEMENTS = 6 * 10**6
"""Approximate number of entries of the feature matrix of the lines that are treated at once."""
EFFORT = 10
"""Number of points that may be evaluated for each one of the budget."""
COUPLED = 0.5
"""A line whose density is exp(-a) of the greatest may have an error exp(COUPLED a) times larger."""


class HigherError(Exception):
    """A point was found that is far denser than all that were known."""

    def __init__(self, point: np.ndarray):
        super().__init__()
        self.point = point


@dataclass(frozen=True)
class Task:
    """What a grid must resolve, and how well."""

    landscape: Landscape
    tilts: np.ndarray
    best: np.ndarray
    """The greatest log-density of each measure."""
    half: float
    tolerance: float
    budget: int
    """Maximum number of points."""
    axis: np.ndarray
    """The first coordinates of the columns that `marks` belong to."""
    marks: list[np.ndarray]
    """Ends of panels near which the lattice has local maxima, for each of its columns; d = 2."""
    probe: np.ndarray
    """A random combination of the features, which the grid resolves as well as the density."""


def halves(cuts: np.ndarray) -> np.ndarray:
    """All left halves of the panels, then all right halves."""
    middle = cuts.mean(axis=1)
    left, right = np.stack([cuts[:, 0], middle], 1), np.stack([middle, cuts[:, 1]], 1)
    return np.concatenate([left, right])


def shortest(cuts: np.ndarray) -> np.ndarray:
    """Whether panels are too short to be divided in floating point."""
    return np.diff(cuts, axis=1)[:, 0] <= TINY * (1e-3 + np.abs(cuts).max(axis=1))


@dataclass(frozen=True)
class Verdict:
    """What the nodes of each panel say, for each measure j; arrays of shape (panels, J)."""

    alive: np.ndarray
    """Whether the panel may hold mass."""
    steep: np.ndarray
    """Whether the density changes too fast between the nodes for anything to be known."""
    integrals: np.ndarray
    """The integrals of the density and of the probe: (panels, 2, J)."""
    error: np.ndarray
    """The estimated errors of the integrals: (panels, 2, J)."""

    @property
    def mass(self) -> np.ndarray:
        """The integral of the density."""
        return self.integrals[:, 0]

    @property
    def calm(self) -> np.ndarray:
        """Panels whose masses are known to within a tenth."""
        good = (self.error[:, 0] <= 0.1 * self.mass) & ~self.steep
        return np.asarray(good.all(axis=1))

    def settled(self, small: np.ndarray) -> np.ndarray:
        """Whether every measure is either absent or resolved; `small` says where errors are."""
        return np.asarray((~self.alive | (small & ~self.steep)).all(axis=1))


def judge(task: Task, logs: np.ndarray, values: np.ndarray, radius: np.ndarray) -> Verdict:
    """Judge panels by log-densities (15, P, J) and integrands (15, P, 2, J) at their nodes.

    Where even the log-density between the nodes is negligible a panel holds no mass. The
    coefficients of the integrand decrease by the ratio END / MIDDLE over three degrees, and the
    rule integrates fifteen degrees more than there are coefficients. Only the square of the ratio
    is relied upon. At a kink the coefficients decrease slowly, and the ratio is near one.
    """
    between = slack(logs)
    counts = logs + between > task.best - TAIL
    alive = np.asarray(counts.any(axis=0))
    steep = np.asarray((counts & (between > STEEP)).any(axis=0))
    flat = values.reshape(len(NODES), -1)
    shape = values.shape[1:]
    end = np.abs(TO_COEFFICIENTS[:, END].T @ flat).max(axis=0).reshape(shape)
    middle = np.abs(TO_COEFFICIENTS[:, MIDDLE].T @ flat).max(axis=0).reshape(shape)
    ratio = end / np.maximum(middle, 1e-300)
    # What rounding alone leaves in the last coefficients is no error that bisection removes.
    noise = NOISE * np.abs(task.best) * np.abs(values).max(axis=0)
    width = radius[:, None, None]
    error = np.maximum(end - noise, 0) * np.minimum(1, 10 * ratio**2) * 2 * width
    return Verdict(alive, steep, (WEIGHTS @ flat).reshape(shape) * width, error)


@dataclass(frozen=True)
class Lines:
    """Panels along lines parallel to the last coordinate, resolved for all measures."""

    fixed: np.ndarray
    """The other coordinates of each line, of shape (lines, d - 1)."""
    owner: np.ndarray
    """The line that each panel lies on."""
    panels: np.ndarray
    """The ends of each panel, of shape (panels, 2)."""
    top: np.ndarray
    """The greatest log-density that was seen on each line, of shape (lines, J)."""
    totals: np.ndarray
    """The integrals of the density and of the probe over each line: (lines, 2, J)."""

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """The nodes of all panels, of shape (N, d), and their weights along the lines.

        The first nodes of all panels come first, then the second ones.
        """
        radius = np.diff(self.panels, axis=1)[:, 0] / 2
        last = (self.panels.mean(axis=1) + NODES[:, None] * radius).ravel()
        points = np.concatenate([self.fixed[self.owners()], last[:, None]], axis=1)
        return points, (WEIGHTS[:, None] * radius).ravel()

    def owners(self) -> np.ndarray:
        """The line that each node lies on."""
        return np.tile(self.owner, len(NODES))

    def only(self, lines: np.ndarray) -> Lines:
        """The panels of the lines for which `lines` is true."""
        kept = lines[self.owner]
        return Lines(self.fixed, self.owner[kept], self.panels[kept], self.top, self.totals)


def resolve(task: Task, fixed: np.ndarray, edges: np.ndarray) -> Lines:
    """Bisect panels, on every line from the same edges on, until all measures are resolved.

    In the plane the marks of the two columns of the lattice next to a line are edges, too.
    """
    column = np.searchsorted(task.axis, fixed[:, 0])
    # Lines between the same two columns have the same edges.
    between, which = np.unique(column, return_inverse=True)
    all_marks = [task.marks[max(c - 1, 0) : c + 1] for c in between]
    firsts = [panels_between(np.concatenate([edges, *marks])) for marks in all_marks]
    counts = np.array([len(first) for first in firsts])[which]
    # Groups of lines of bounded size.
    entries = np.cumsum(counts) * len(NODES) * len(task.tilts) // GROUP_ELEMENTS
    parts = []
    for group in np.unique(entries):
        lines = np.flatnonzero(entries == group)
        owner = np.repeat(np.arange(len(lines)), counts[lines])
        cuts = np.concatenate([firsts[which[line]] for line in lines])
        part = bisect(task, fixed[lines], owner, cuts)
        parts.append((lines[part.owner], part.panels, part.top, part.totals))
    return Lines(fixed, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def panels_between(edges: np.ndarray) -> np.ndarray:
    """The panels between edges in any order, of shape (panels, 2)."""
    edges = np.unique(edges)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def bisect(
    task: Task, fixed: np.ndarray, owner: np.ndarray, cuts: np.ndarray, *, exactly: bool = False
) -> Lines:
    """Bisect panels, each on the line that `owner` says, until all measures are resolved.

    With `exactly` the panels are taken as they are.
    """
    lines, measures = len(fixed), len(task.best)
    top, known = np.full((lines, measures), -np.inf), np.zeros((lines, measures))
    totals = np.zeros((lines, 2, measures))
    kept, count = [], 0
    for depth in range(DEPTH):
        count += len(cuts) * len(NODES)
        if count > EFFORT * task.budget:
            raise too_many(task)
        logs, matrix = _logs(task, Lines(fixed, owner, cuts, top, totals).nodes()[0])
        np.maximum.at(top, owner, logs.max(axis=0))
        # Most panels hold no mass, and are judged no further.
        present = (logs + slack(logs) > task.best - TAIL).any(axis=(0, 2)) | exactly
        owner, cuts, logs = owner[present], cuts[present], logs[:, present]
        values = _integrands(
            task, logs, matrix.reshape(len(NODES), -1, len(task.tilts))[:, present]
        )
        verdict = judge(task, logs, values, np.diff(cuts, axis=1)[:, 0] / 2)
        np.add.at(known, owner[verdict.calm], verdict.mass[verdict.calm])
        # Lines of low density need not be resolved as well.
        allowed = task.tolerance * np.exp(COUPLED * np.clip(task.best - top, 0, 2 * TAIL))
        scale = allowed[owner] * np.maximum(verdict.mass, known[owner])
        small = np.asarray((verdict.error <= scale[:, None]).all(axis=1))
        done = verdict.settled(small) | shortest(cuts) | (depth == DEPTH - 1) | exactly
        np.add.at(totals, owner[done], verdict.integrals[done])
        kept.append((owner[done], cuts[done]))
        if done.all():
            break
        # A panel that is bisected gives its mass back to be counted again.
        again = ~done & verdict.calm
        np.add.at(known, owner[again], -verdict.mass[again])
        owner, cuts = np.tile(owner[~done], 2), halves(cuts[~done])
    owners, panels = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    return Lines(fixed, owners, panels, top, totals)


def _logs(task: Task, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-densities (15, P, J) at nodes, and the features there."""
    matrix = task.landscape.matrix(points)
    logs = -(matrix @ task.tilts) - 0.5 * np.einsum("nd,nd->n", points, points)[:, None]
    highest = logs.argmax(axis=0)
    above = logs[highest, np.arange(len(task.best))] - task.best
    if above.max() > SURPRISE:
        raise HigherError(points[highest[above.argmax()]])
    return logs.reshape(len(NODES), -1, len(task.best)), matrix


def _integrands(task: Task, logs: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The density, and the density times the probe, relative to the greatest: (15, P, 2, J)."""
    density = np.exp(logs - task.best)
    return np.stack([density, density * (matrix @ task.probe)[..., None]], axis=2)


class TooManyError(UnresolvedError):
    """A measure is not resolved by the budget of points."""


def too_many(task: Task) -> TooManyError:
    """The error, with what to do about it."""
    return TooManyError(
        f"The measure is not resolved by {task.budget} points in all. Ask for more 'points'."
    )
