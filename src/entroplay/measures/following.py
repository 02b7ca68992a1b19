r"""A grid that follows the mass of Gibbs measures, for d <= 2.

An integral over the plane is iterated: panels along the first coordinate, and along each of the
lines through their nodes panels of its own along the second. A measure may be a needle that is a
million times longer than wide, at any angle: every line crosses it in a short interval, which is
found by bisection, while the integral over the line changes slowly from line to line.

Several measures share one grid, which resolves all of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ..problems.problem import FiniteSum
from .modes import Landscape, modes
from .panels import (
    DEPTH,
    NODES,
    WEIGHTS,
    HigherError,
    Task,
    TooManyError,
    bisect,
    halves,
    judge,
    panels_between,
    resolve,
    shortest,
    too_many,
)
from .quadrature import TAIL, Quadrature, UnresolvedError

LOOSENINGS = (1, 30, 1000)
"""Factors of the tolerance that are tried, in order, until the budget of points suffices. Errors
are estimated afterwards, hence known in any case."""
ATTEMPTS = 8
"""Maximum number of times that a grid is begun again because denser points were found."""


@dataclass(frozen=True)
class Grid:
    """Points u with weights, in units of the prior's deviations."""

    points: np.ndarray
    weights: np.ndarray
    cuts: np.ndarray
    """The ends of the panels along the first coordinate, of shape (panels, 2)."""
    seeds: np.ndarray


def follow(
    landscape: Landscape,
    tilts: np.ndarray,
    *,
    tolerance: float,
    budget: int,
    known: np.ndarray | None = None,
    seed: int = 0,
) -> Grid:
    """A grid that resolves the Gibbs measures of all tilts, whose array has shape (n k, J)."""
    seeds = np.zeros((0, landscape.dim)) if known is None else known
    for _ in range(ATTEMPTS):
        task, seeds = _task(landscape, tilts, tolerance, budget, seeds, seed)
        try:
            return _affordable(task, seeds)
        except HigherError as higher:
            seeds = np.concatenate([seeds, higher.point[None]])
    raise UnresolvedError("The mass of the measure was not found. Ask for more 'points'.")


def refined(
    landscape: Landscape, tilts: np.ndarray, grid: Grid, *, tolerance: float, budget: int
) -> Grid:
    """The grid with every panel halved, and a hundredth of the tolerance along the lines.

    The modes are searched again, from other random points as well. If one is found that the grid
    does not know, the grid is built from nothing.
    """
    task, seeds = _task(landscape, tilts, tolerance / 100, budget, grid.seeds, seed=1)
    inside = (seeds[:, :1] >= grid.cuts[:, 0]) & (seeds[:, :1] <= grid.cuts[:, 1])
    if inside.any(axis=1).all():
        with suppress(HigherError):
            return _affordable(task, seeds, halves(grid.cuts))
    return follow(landscape, tilts, tolerance=tolerance / 100, budget=budget, known=seeds, seed=1)


def _affordable(task: Task, seeds: np.ndarray, cuts: np.ndarray | None = None) -> Grid:
    """The grid of the best tolerance that the budget allows; kinks in the plane are expensive."""
    for loosening in LOOSENINGS[:-1]:
        with suppress(TooManyError):
            return _grid(replace(task, tolerance=task.tolerance * loosening), seeds, cuts)
    return _grid(replace(task, tolerance=task.tolerance * LOOSENINGS[-1]), seeds, cuts)


def _task(landscape, tilts, tolerance, budget, known, seed) -> tuple[Task, np.ndarray]:
    """What a grid for these measures must resolve, and points near all modes."""
    lattice = landscape.box(tilts)
    seeds, best = modes(landscape, lattice, tilts, _distinct(known), seed)
    marks = lattice.marks(tilts, best) if landscape.dim == 2 else []
    probe = np.random.default_rng(seed).normal(size=len(tilts))
    probe /= 1e-300 + np.abs(lattice.matrix).max(axis=0)
    task = Task(landscape, tilts, best, lattice.half, tolerance, budget, lattice.axis, marks, probe)
    return task, _distinct(seeds)


def _distinct(points: np.ndarray) -> np.ndarray:
    """The points without those that agree with another one to about six digits."""
    if not len(points):
        return points
    rounded = np.round(np.arcsinh(points) * 1e6).astype(np.int64)
    return points[np.unique(rounded, axis=0, return_index=True)[1]]


def _edges(half: float, marks: np.ndarray) -> np.ndarray:
    """The first panels along a coordinate: even near the origin, geometric far from it."""
    edges = [0.0, 1.0, 2.0, 3.0, 4.5, 7.0]
    while edges[-1] < half:
        edges.append(1.8 * edges[-1])
    side = np.minimum(np.array(edges), half)
    return np.unique(np.concatenate([-side, side, marks]))


def _grid(task: Task, seeds: np.ndarray, cuts: np.ndarray | None = None) -> Grid:
    """Bisect panels along the first coordinate until all measures are resolved.

    With `cuts` these panels are taken as they are.
    """
    d = task.landscape.dim
    fixed = cuts is not None
    if cuts is None:
        # A mode may be a kink, hence the end of a panel.
        cuts = panels_between(_edges(task.half, _distinct(seeds[:, :1])[:, 0]))
    if d == 1:
        kept = bisect(task, np.zeros((1, 0)), np.zeros(len(cuts), int), cuts, exactly=fixed)
        points, weights = kept.nodes()
        return Grid(points, weights, kept.panels, seeds)
    inner = _edges(task.half, np.zeros(0))
    parts, resolved, count = [], np.zeros(len(task.best)), 0
    for level in range(DEPTH):
        centre, radius = cuts.mean(axis=1), np.diff(cuts, axis=1)[:, 0] / 2
        abscissae = centre + NODES[:, None] * radius
        lines = resolve(task, abscissae.reshape(-1, 1), inner)
        shape = (len(NODES), len(cuts))
        tops, totals = (a.reshape(*shape, *a.shape[1:]) for a in (lines.top, lines.totals))
        verdict = judge(task, tops, totals, radius)
        resolved = resolved + verdict.mass[verdict.calm].sum(axis=0)
        scale = task.tolerance * np.maximum(verdict.mass, resolved)
        small = np.asarray((verdict.error <= scale[:, None]).all(axis=1))
        present = verdict.alive.any(axis=1) | fixed
        done = verdict.settled(small) | shortest(cuts) | (level == DEPTH - 1) | fixed
        keep, split = done & present, ~done & present
        taken = lines.only(np.tile(keep, len(NODES)))
        points, weights = taken.nodes()
        outer = (WEIGHTS[:, None] * radius).ravel()
        parts.append((points, weights * outer[taken.owners()], cuts[keep]))
        count += len(points)
        if count > task.budget:
            raise too_many(task)
        if not split.any():
            break
        again = split & verdict.calm
        resolved = resolved - verdict.mass[again].sum(axis=0)
        cuts = halves(cuts[split])
    points, weights, cuts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Grid(points, weights, cuts, seeds)


def on_grid(landscape: Landscape, grid: Grid, problem: FiniteSum | None = None) -> Quadrature:
    """The problem on a grid; another temperature with the same prior may be given."""
    matrix = landscape.matrix(grid.points)
    return quadrature_at(landscape, grid.points, grid.weights, matrix, problem)


def fenced(
    landscape: Landscape, grid: Grid, tilts: np.ndarray, problem: FiniteSum | None = None
) -> Quadrature:
    """The problem on a grid and on those points of a lattice that are negligible so far.

    The grid knows nothing of the energy outside its panels. With the lattice around it, a dual that
    moves the mass elsewhere is not mistaken for a better one.
    """
    lattice = landscape.box(tilts).thinned()
    logs = lattice.logs(tilts)
    matrix = landscape.matrix(grid.points)
    highest = (-(matrix @ tilts) - 0.5 * (grid.points**2).sum(axis=1, keepdims=True)).max(axis=0)
    out = (logs < highest - TAIL).all(axis=1)
    return quadrature_at(
        landscape,
        np.concatenate([grid.points, lattice.points[out]]),
        np.concatenate([grid.weights, lattice.volumes[out]]),
        np.concatenate([matrix, lattice.matrix[out]]),
        problem,
    )


def quadrature_at(landscape, points, weights, matrix, problem=None) -> Quadrature:
    """The problem at points, with weights, in units of the prior's deviations."""
    if landscape.dim == 1:  # in the order of the axis, as on a uniform grid
        order = np.argsort(points[:, 0])
        points, weights, matrix = points[order], weights[order], matrix[order]
    points = points * landscape.deviations
    axes = tuple(np.unique(points[:, j]) for j in range(landscape.dim))
    volumes = weights * float(np.prod(landscape.deviations))
    return Quadrature(problem or landscape.problem, axes, points, matrix, volumes)
