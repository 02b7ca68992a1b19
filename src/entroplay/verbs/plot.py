"""Figures of runs. matplotlib is imported only when one is drawn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.arguments import invalid, one_of
from ..measures.quadrature import Quadrature
from ..runs.solution import Solution
from .certificate import Certificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .grid import GridSolution

AGAINST = ("iteration", "pulls", "passes", "seconds")
"""Columns of the history that can be the horizontal axis."""
WIDE, SINGLE = (11, 4.2), (6, 4.5)
"""Size in inches of a figure with two panels, and of one with a single panel."""
WINDOWS = 50
"""Number of windows of the running mean along a whole run."""
NEGLIGIBLE = 1e-6
"""Fraction of the maximum below which a density is not drawn."""
CONTOURS = (8.0, 4.5, 2.0, 0.5)
"""Contours of a density, as minus the logarithm of its ratio to the maximum: those of a Gaussian at
4, 3, 2 and 1 standard deviations."""
PLANE_POINTS = 201
"""Number of points per axis at which a density is drawn whose grid follows the mass."""
VIEW = 1.5
"""Half the side of the region drawn, as a factor of the cloud's largest coordinate."""


def pyplot() -> Any:
    """Return `matplotlib.pyplot`, with which all figures are drawn.

    A script that has neither imported pyplot nor chosen a backend only writes files: it gets "Agg",
    which needs no display. In every other case the user or matplotlib decides where figures appear.
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError(
            "entroplay.plot draws with matplotlib: pip install 'entroplay[plot]'."
        ) from None
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    if "matplotlib.pyplot" not in sys.modules and not interactive and _undecided(matplotlib):
        matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _undecided(matplotlib: Any) -> bool:
    """Whether neither MPLBACKEND, nor a matplotlibrc file, nor the program named a backend."""
    try:
        return matplotlib.get_backend(auto_select=False) is None
    except TypeError:  # before matplotlib 3.10, asking makes matplotlib decide: leave it to that
        return False


def convergence(solutions: Solution | dict[str, Solution], *, against: str = "iteration") -> Figure:
    """Draw the estimated gap (left) and the losses (right) along one or several runs.

    Args:
        solutions: a `Solution`, or a dictionary from labels to Solutions.
        against: the horizontal axis: "iteration", "pulls", "passes" or "seconds".
    """
    one_of("plot.convergence", "against", against, AGAINST)
    runs = {"": solutions} if isinstance(solutions, Solution) else solutions
    figure, (left, right) = pyplot().subplots(1, 2, figsize=WIDE, layout="constrained")
    for index, (label, solution) in enumerate(runs.items()):
        colour, history = f"C{index}", solution.history
        x = history[against]
        gap(history, left, against=against, label=label or "estimated gap", color=colour)
        right.plot(x, history["loss_moments"], color=colour, label=f"{label} moments".strip())
        faint = {"color": colour, "lw": 0.8, "ls": ":"}
        right.plot(x, history["loss_particles"], label=f"{label} particles".strip(), **faint)
    left.set(xlabel=against, ylabel="estimated gap to the optimum", yscale="log")
    right.set(xlabel=against, ylabel="loss", yscale=_loss_scale(runs))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    return figure


def certified(
    runs: dict[str, Solution],
    certificates: dict[str, list[tuple[int, Certificate]]],
    *,
    against: str = "pulls",
) -> Figure:
    """Draw certified bounds along several runs (left) and their losses (right).

    The axes are logarithmic; that of the losses is linear if some loss is not positive.

    Args:
        runs: labels and Solutions.
        certificates: for each label, pairs of a position on the horizontal axis and the certificate
            computed there. A hollow marker is a bound that the clouds did not verify; a faint line
            is the run's own estimate of the gap.
        against: the horizontal axis: "pulls", "passes", "iteration" or "seconds".
    """
    figure, (left, right) = pyplot().subplots(1, 2, figsize=WIDE, layout="constrained")
    for index, (label, solution) in enumerate(runs.items()):
        colour, history = f"C{index}", solution.history
        left.plot(history[against], _positive(history["gap"]), color=colour, lw=0.7, alpha=0.35)
        points = certificates.get(label, [])
        bounds = [certificate.bound for _, certificate in points]
        left.plot([x for x, _ in points], bounds, color=colour, lw=1.5, label=label)
        for x, certificate in points:
            filling = colour if certificate.verified else "white"
            left.plot(x, certificate.bound, "o", color=colour, mfc=filling, ms=6)
        right.plot(history[against], history["loss_moments"], color=colour, label=label)
    left.set(xlabel=against, ylabel="certified distance to the optimum", xscale="log", yscale="log")
    right.set(xlabel=against, ylabel="loss at the moments", xscale="log", yscale=_loss_scale(runs))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure


def gap(
    history: dict[str, np.ndarray],
    axes: Axes,
    *,
    against: str = "iteration",
    label: str = "",
    **style: Any,
) -> None:
    """Draw the estimated gap of a run on given axes: single iterations faint, a running mean bold.

    Single estimates may be negative, which a logarithmic axis cannot show; the running mean uses
    them all.
    """
    values, x = history["gap"], history[against]
    if len(values) == 0 or np.isnan(values).all():
        return
    window = max(1, len(values) // WINDOWS)
    mean = np.convolve(values, np.ones(window) / window, mode="valid")
    axes.plot(x, _positive(values), alpha=0.25, lw=0.8, **style)
    # Each mean is drawn at the last iteration of its window.
    axes.plot(x[window - 1 :], _positive(mean), lw=1.8, label=label, **style)


def _positive(values: np.ndarray) -> np.ndarray:
    """The values that a logarithmic axis can show; NaN, which leaves a gap, for the others."""
    return np.where(values > 0, values, np.nan)


def _loss_scale(runs: dict[str, Solution]) -> str:
    """The scale of an axis for the losses: logarithmic if all of them are positive."""
    columns = ("loss_moments", "loss_particles")
    positive = all((s.history[k] > 0).all() for s in runs.values() for k in columns)
    return "log" if positive else "linear"


def particles(
    solution: Solution, exact: GridSolution | None = None, *, axes: Axes | None = None
) -> Axes:
    """Draw the cloud of a problem with one or two parameters, over the exact optimum if given.

    Args:
        solution: the cloud to draw.
        exact: what `grid.solve` returned for the same problem.
        axes: where to draw; by default, a new figure.
    """
    if solution.problem.dim > 2:
        must_be = "of a problem with one or two parameters"
        raise invalid("plot.particles", "solution", must_be, f"d = {solution.problem.dim}")
    if axes is None:
        axes = pyplot().subplots(figsize=SINGLE, layout="constrained")[1]
    assert axes is not None
    cloud = np.asarray(solution.particles)
    if solution.problem.dim == 1:
        _draw_line(axes, cloud, exact)
    else:
        _draw_plane(axes, cloud, exact)
    axes.legend(fontsize="small")
    return axes


def _draw_line(axes: Axes, cloud: np.ndarray, exact: GridSolution | None) -> None:
    """One parameter: a histogram, and the exact density as a line."""
    label = f"{len(cloud)} particles"
    axes.hist(cloud[:, 0], bins="auto", density=True, alpha=0.5, label=label)
    if exact is not None:
        inside = exact.density > NEGLIGIBLE * exact.density.max()
        line, density = exact.axes[0][inside], exact.density[inside]
        axes.plot(line, density, "k", lw=1.5, label="exact optimum")
    axes.set(xlabel="theta", ylabel="density")


def _draw_plane(axes: Axes, cloud: np.ndarray, exact: GridSolution | None) -> None:
    """Two parameters: points, and the exact density as contours."""
    axes.scatter(cloud[:, 0], cloud[:, 1], s=6, alpha=0.6, label=f"{len(cloud)} particles")
    if exact is not None:
        lines, density = exact.axes, exact.density
        if density.ndim == 1:  # the grid follows the mass and is no product of axes
            points = exact.quadrature.points[density > NEGLIGIBLE * density.max()]
            ends = zip(points.min(axis=0), points.max(axis=0), strict=True)
            lines = tuple(np.linspace(low, high, PLANE_POINTS) for low, high in ends)
            local = Quadrature.on(exact.quadrature.problem, lines)
            density = local.gibbs(exact.dual_vector)[0].reshape(local.shape)
        levels = density.max() * np.exp(-np.array(CONTOURS))
        axes.contour(*lines, density.T, levels=levels, colors="k", linewidths=0.8)
        axes.plot([], [], "k", lw=0.8, label="exact optimum")  # contours have no legend entry
        # The grid reaches far beyond the mass: show the region of the cloud.
        x, y = VIEW * np.abs(cloud).max(axis=0)
        axes.set(xlim=(-x, x), ylim=(-y, y))
    axes.set(xlabel="theta 1", ylabel="theta 2")
