"""The panels of Figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..verbs.plot import pyplot

if TYPE_CHECKING:
    from ..verbs.grid import GridSolution
    from .figure1 import Measured, Snapshot

HALF_WIDTH = 4
"""Largest |theta| shown in the panels."""


def draw(found: list[Measured], exact: GridSolution):
    """One column per method, one row per time."""
    plt = pyplot()
    figure, panels = plt.subplots(
        3, len(found), figsize=(3.1 * len(found), 6.4), sharex=True, layout="constrained"
    )
    for column, measured in enumerate(found):
        for row, snapshot in enumerate(measured.rows):
            panel = panels[row, column]
            draw_snapshot(panel, snapshot, exact, colour=f"C{column}")
            heading = measured.method.name if row == 0 else ""
            panel.set_title(
                f"{heading}\n{measured.method.unit} {snapshot.time:g}".strip(), fontsize=9
            )
    panels[0, 0].legend(fontsize=7, frameon=False)
    for panel in panels[-1]:
        panel.set_xlabel("theta")
    return figure


def draw_snapshot(panel, snapshot: Snapshot, exact: GridSolution, colour: str) -> None:
    """mu_t, its particles, its Gibbs measure and the optimum in one panel."""
    axis = exact.axes[0]
    shown = np.abs(axis) < HALF_WIDTH
    panel.fill_between(
        axis[shown], snapshot.density[shown], color=colour, alpha=0.35, lw=0, label="mu_t"
    )
    if len(snapshot.cloud):
        panel.hist(
            snapshot.cloud,
            bins=60,
            range=(-HALF_WIDTH, HALF_WIDTH),
            density=True,
            histtype="step",
            color=colour,
            lw=0.8,
        )
    panel.plot(axis[shown], snapshot.gibbs[shown], color="C3", lw=1.1, label="its Gibbs measure")
    panel.plot(axis[shown], exact.density[shown], "k--", lw=1, label="optimum")
    panel.set_yticks([])
