"""Density estimation by a free mixture: the paper's Example 2, for which it has no experiment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problems.datasets import real as data
from ..problems.features import GaussianKernel
from ..problems.losses import NegLog
from ..problems.problem import FiniteSum
from ..runs.solution import Solution
from ..verbs import grid
from ..verbs.certificate import Certificate
from ..verbs.certify import certify
from ..verbs.grid import GridSolution
from ..verbs.plot import pyplot
from ..verbs.solve import solve
from .claims import Claim, Part

BANDWIDTH = {"galaxies": 0.2, "faithful": 0.35}
"""Standard deviation of the kernels, in units of the data's."""
TEMPERATURE, PRIOR_VARIANCE = 0.05, 1.0
FOUND = 0.01
"""Fraction of the prior's distance from the optimum that may be left."""
MARGIN = 0.7
"""Space that the panels leave around the data, in standard deviations."""


@dataclass(frozen=True)
class Estimate:
    """A mixture, its certificate, and the exact optimum by quadrature."""

    name: str
    rows: np.ndarray
    """The data, standardised."""
    solution: Solution
    certificate: Certificate
    exact: GridSolution

    @property
    def excess(self) -> float:
        """The exact distance of the solution's Gibbs measure from the minimum."""
        quadrature = self.exact.quadrature
        gibbs, _ = quadrature.gibbs(np.asarray(self.solution.dual, np.float64))
        return quadrature.primal(gibbs) - self.exact.value

    @property
    def start(self) -> float:
        """The prior's distance from the minimum."""
        return self.exact.quadrature.primal(self.exact.quadrature.prior) - self.exact.value


def estimate(name: str, *, quick: bool, seed: int) -> Estimate:
    """Fit a mixture to one data set, certify it, and solve the same problem on a grid."""
    raw = data.load(name)
    rows = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    l2 = TEMPERATURE / (2 * PRIOR_VARIANCE)  # nu of eq. (12) has variance temperature / (2 l2)
    problem = FiniteSum(
        GaussianKernel(rows, bandwidth=BANDWIDTH[name]), NegLog(), temperature=TEMPERATURE, l2=l2
    )
    solution = solve(
        problem, particles=500 if quick else 2000, iterations=40 if quick else 100, seed=seed
    )
    # Points per axis in one and in two dimensions; a coarser plane would not be resolved.
    points = (1001, 161) if quick else (4001, 201)
    exact = grid.solve(problem, iterations=0, points=points[rows.shape[1] - 1])
    return Estimate(name, rows, solution, certify(solution, seed=seed), exact)


def claims_of(e: Estimate) -> list[Claim]:
    """Whether the certificate is right, and whether the optimum was found."""
    n, d = e.rows.shape
    where = f"{e.name}, n = {n}, d = {d}"
    return [
        Claim(
            "Certificate",
            "the true distance to the optimum is below the certified bound",
            where,
            e.excess,
            e.certificate.bound,
            note=e.certificate.verdict,
        ),
        Claim(
            "Example 2",
            "the optimum is found: 1 % of the prior's distance is left at most",
            where,
            e.certificate.bound,
            FOUND * e.start,
        ),
    ]


def reproduce(*, quick: bool, seed: int = 0) -> Part:
    """Estimate the density of each data set; the quick scale takes the first one only."""
    names = data.NAMES[:1] if quick else data.NAMES
    found = [estimate(name, quick=quick, seed=seed) for name in names]
    return Part(
        name="density",
        title="Example 2: density estimation",
        paper="The negative log-likelihood of a Gaussian mixture over a free mixing measure is an "
        "instance; no experiment is given.",
        found="; ".join(
            f"{e.name}: certified within {e.certificate.bound:.1e}, truly {e.excess:.1e} above the "
            "optimum"
            for e in found
        )
        + ".",
        figures={"density": draw(found)},
        captions={
            "density": "Left: velocities of 82 galaxies, the estimated density, the particles of "
            "the mixing measure and its exact optimum. Right: eruptions of Old Faithful, contours "
            "of the estimated density, particles."
        },
        claims=tuple(claim for e in found for claim in claims_of(e)),
        numbers={
            e.name: {
                "minimum": e.exact.value,
                "distance of the prior": e.start,
                "excess": e.excess,
                "bound": e.certificate.bound,
                "gap": e.certificate.gap,
                "gap_error": e.certificate.gap_error,
                "mixed": e.certificate.mixed,
            }
            for e in found
        },
        choices=(
            f"Standardised data, kernels of width {BANDWIDTH['galaxies']} and "
            f"{BANDWIDTH['faithful']}, temperature {TEMPERATURE}, a prior of variance "
            f"{PRIOR_VARIANCE:g}, NewtonEFP.",
        ),
    )


def draw(found: list[Estimate]):
    """One panel per data set."""
    plt = pyplot()
    figure, panels = plt.subplots(
        1, len(found), figsize=(5.5 * len(found), 4.2), layout="constrained", squeeze=False
    )
    for panel, e in zip(panels[0], found, strict=True):
        (draw_line if e.rows.shape[1] == 1 else draw_plane)(panel, e)
        panel.set_title(e.name)
        panel.legend(fontsize="small")
    return figure


def draw_line(panel, e: Estimate) -> None:
    """Data in one dimension: histogram, density and mixing measure."""
    x = np.linspace(e.rows.min() - MARGIN, e.rows.max() + MARGIN, 400)
    panel.hist(e.rows[:, 0], bins=40, density=True, color="0.85", label="data")
    panel.plot(x, np.asarray(e.solution.predict(x[:, None])), "C0", lw=1.6, label="density")
    panel.plot(e.exact.axes[0], e.exact.density, "k--", lw=1, label="mixing measure, exact")
    panel.hist(
        np.asarray(e.solution.particles)[:, 0],
        bins=120,
        density=True,
        histtype="step",
        color="C3",
        lw=0.8,
        label="its particles",
    )
    panel.set(xlim=(x[0], x[-1]), xlabel="velocity, standardised")


def draw_plane(panel, e: Estimate) -> None:
    """Data in two dimensions: points, contours of the density and particles."""
    axes = [np.linspace(r.min() - MARGIN, r.max() + MARGIN, 80) for r in e.rows.T]
    mesh = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    heights = np.asarray(e.solution.predict(mesh)).reshape(80, 80)
    panel.contour(*axes, heights.T, levels=8, colors="C0", linewidths=1)
    panel.plot(*e.rows.T, ".", color="0.6", ms=4, label="data")
    cloud = np.asarray(e.solution.particles)[:500]
    panel.plot(*cloud.T, ".", color="C3", ms=2, alpha=0.6, label="particles of the mixing measure")
    panel.set(
        xlim=axes[0][[0, -1]],
        ylim=axes[1][[0, -1]],
        xlabel="eruption, standardised",
        ylabel="waiting, standardised",
    )
