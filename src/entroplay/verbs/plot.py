"""Pictures of a run. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.arguments import invalid
from ..runs.solution import Solution
from .certify import Certificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .grid import GridSolution


def pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(
            "entroplay.verbs.plot draws with matplotlib: pip install 'entroplay[plot]'."
        ) from None
    return plt


def convergence(solutions: Solution | dict[str, Solution], *, against: str = "iteration") -> Figure:
    """Estimated gap (left) and losses (right) along one or several runs.

    Args:
        solutions: a `Solution`, or a dictionary from labels to Solutions.
        against: the horizontal axis: "iteration", "pulls", "passes" or "seconds".
    """
    if against not in ("iteration", "pulls", "passes", "seconds"):
        raise invalid(
            "plot.convergence", "against", "'iteration', 'pulls', 'passes' or 'seconds'", against
        )
    runs = {"": solutions} if isinstance(solutions, Solution) else solutions
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for index, (label, solution) in enumerate(runs.items()):
        colour, history = f"C{index}", solution.history
        x = history[against]
        gap(history, left, against=against, label=label or "estimated gap", color=colour)
        right.plot(x, history["loss_moments"], color=colour, label=f"{label} moments".strip())
        right.plot(
            x,
            history["loss_particles"],
            color=colour,
            lw=0.8,
            ls=":",
            label=f"{label} particles".strip(),
        )
    left.set(xlabel=against, ylabel="estimated gap to the optimum", yscale="log")
    right.set(xlabel=against, ylabel="loss", yscale="log" if _positive_losses(runs) else "linear")
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
    """Certified bounds along several runs (left) and their losses (right), both axes logarithmic.

    Args:
        runs: labels and Solutions.
        certificates: for each label, pairs of the position on the horizontal axis and the certificate drawn up there. A
            hollow marker is a bound that the clouds did not verify; a faint line is what the run itself believed.
        against: the horizontal axis: "pulls", "passes", "iteration" or "seconds".
    """
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for index, (label, solution) in enumerate(runs.items()):
        colour, history = f"C{index}", solution.history
        own = history["gap"]
        left.plot(
            history[against], np.where(own > 0, own, np.nan), color=colour, lw=0.7, alpha=0.35
        )
        points = certificates.get(label, [])
        left.plot(
            [x for x, _ in points], [c.bound for _, c in points], color=colour, lw=1.5, label=label
        )
        for x, certificate in points:
            left.plot(
                x,
                certificate.bound,
                "o",
                color=colour,
                mfc=colour if certificate.mixed else "white",
                ms=6,
            )
        right.plot(history[against], history["loss_moments"], color=colour, label=label)
    left.set(xlabel=against, ylabel="certified distance to the optimum", xscale="log", yscale="log")
    right.set(
        xlabel=against,
        ylabel="loss at the moments",
        xscale="log",
        yscale="log" if _positive_losses(runs) else "linear",
    )
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
    """The estimated gap of a run on given axes: single iterations faint, a running mean bold.

    Single estimates may fall below zero, where a logarithmic axis cannot show them; the running mean uses them all.
    """
    values, x = history["gap"], history[against]
    if len(values) == 0 or np.isnan(values).all():
        return
    window = max(1, len(values) // 50)
    mean = np.convolve(values, np.ones(window) / window, mode="valid")
    axes.plot(x, np.where(values > 0, values, np.nan), alpha=0.25, lw=0.8, **style)
    axes.plot(x[window - 1 :], np.where(mean > 0, mean, np.nan), lw=1.8, label=label, **style)


def _positive_losses(runs: dict[str, Solution]) -> bool:
    return all(
        (s.history[k] > 0).all() for s in runs.values() for k in ("loss_moments", "loss_particles")
    )


def particles(
    solution: Solution, exact: GridSolution | None = None, *, axes: Axes | None = None
) -> Axes:
    """The cloud of a one- or two-dimensional problem, over the exact optimum where `grid.solve`'s answer is given."""
    if solution.problem.dim > 2:
        raise invalid(
            "plot.particles",
            "solution",
            "of a problem with one or two parameters",
            f"d = {solution.problem.dim}",
        )
    if axes is None:
        axes = pyplot().subplots(figsize=(6, 4.5), layout="constrained")[1]
    assert axes is not None
    cloud = np.asarray(solution.particles)
    if solution.problem.dim == 1:
        axes.hist(
            cloud[:, 0], bins="auto", density=True, alpha=0.5, label=f"{len(cloud)} particles"
        )
        if exact is not None:
            inside = exact.density > 1e-6 * exact.density.max()
            axes.plot(
                exact.axes[0][inside], exact.density[inside], "k", lw=1.5, label="exact optimum"
            )
        axes.set(xlabel="theta", ylabel="density")
    else:
        axes.scatter(cloud[:, 0], cloud[:, 1], s=6, alpha=0.6, label=f"{len(cloud)} particles")
        if exact is not None:
            levels = exact.density.max() * np.exp(-np.array([8.0, 4.5, 2.0, 0.5]))
            axes.contour(*exact.axes, exact.density.T, levels=levels, colors="k", linewidths=0.8)
            axes.plot([], [], "k", lw=0.8, label="exact optimum")
            spread = 1.5 * np.abs(cloud).max(axis=0)
            axes.set(xlim=(-spread[0], spread[0]), ylim=(-spread[1], spread[1]))
        axes.set(xlabel="theta 1", ylabel="theta 2")
    axes.legend(fontsize="small")
    return axes
