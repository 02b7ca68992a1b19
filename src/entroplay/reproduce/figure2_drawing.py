"""The panels of Figure 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..verbs.plot import pyplot

if TYPE_CHECKING:
    from .figure2 import Point, Study

INVISIBLE = 1e-9
"""Lower edge of the shaded area, far below the axis."""


def draw(studies: list[Study]):
    """One row per study: values on the left, certified distances on the right."""
    plt = pyplot()
    figure, panels = plt.subplots(
        len(studies), 2, figsize=(11, 4.1 * len(studies)), layout="constrained", squeeze=False
    )
    for s, (left, right) in zip(studies, panels, strict=True):
        draw_values(left, s)
        draw_distances(right, s)
        for panel in (left, right):
            panel.grid(alpha=0.3)
            panel.legend(fontsize="small")
    return figure


def draw_values(panel, s: Study) -> None:
    """Primal and dual values of Algorithm 2 against iterations, and the optimal value."""
    t = [p.iteration for p in s.algorithm2]
    dual = np.array([p.certificate.dual for p in s.algorithm2])
    error = 2 * np.array([p.certificate.dual_error for p in s.algorithm2])
    primal = [p.primal for p in s.algorithm2]
    panel.plot(t, primal, "o-", color="C0", label="primal of mu^(t), k-NN entropy")
    panel.plot(t, dual, "o-", color="C1", label="dual")
    panel.fill_between(t, dual - error, dual + error, color="C1", alpha=0.3, lw=0)
    # The band around the optimal value is two standard errors wide on either side.
    panel.axhspan(
        *(s.optimum.primal + sign * 2 * s.optimum.primal_error for sign in (-1, 1)),
        color="k",
        alpha=0.25,
        lw=0,
    )
    panel.axhline(s.optimum.primal, color="k", ls="--", lw=1, label="L(mu*) by PDA")
    panel.set(
        xlabel="iteration", ylabel="value", xscale="log", title=f"Algorithm 2, {s.choices.name}"
    )


def draw_distances(panel, s: Study) -> None:
    """Certified bounds of both methods against gradient passes."""
    methods = (("Algorithm 2", s.algorithm2, "C0"), ("NewtonEFP", s.newton, "C3"))
    for name, found, colour in methods:
        if found:
            draw_bounds(panel, found, colour, label=f"{name}: certified bound")
    bounds = [p.certificate.bound for p in [*s.algorithm2, *s.newton]]
    panel.set(
        xlabel="gradient passes over all particles",
        ylabel="distance to the optimum",
        xscale="log",
        yscale="log",
        ylim=(min(bounds) / 10, 2 * max(bounds)),
    )


def draw_bounds(panel, found: list[Point], colour: str, label: str) -> None:
    """One method's bounds, hollow where not verified, over the noise of its certificates."""
    pulls = [p.pulls for p in found]
    panel.plot(pulls, [p.certificate.bound for p in found], "-", color=colour, label=label)
    for p in found:
        face = colour if p.certificate.verified else "white"
        panel.plot(p.pulls, p.certificate.bound, "o", color=colour, mfc=face)
    # What the certificate would report at the optimum: sampling bias and two standard errors.
    noise = [
        p.certificate.gap - p.certificate.gap_debiased + 2 * p.certificate.gap_error for p in found
    ]
    panel.fill_between(pulls, INVISIBLE, noise, color=colour, alpha=0.12, lw=0)
