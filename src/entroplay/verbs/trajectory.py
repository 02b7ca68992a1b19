"""Ideal entropic fictitious play on a grid: Algorithm 1 with exact expectations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.arguments import Schedule, value_at
from ..measures.exact import TOLERANCE
from ..measures.following import follow, on_grid
from ..measures.quadrature import Quadrature, UnresolvedError, kl
from .cooling import Cold

TRAJECTORY_ERROR = 1e-5
"""Maximum change of the primal values of a trajectory, likewise, from one grid to the next."""
TRAJECTORY_GRIDS = 5
"""Maximum number of grids on which a trajectory is computed."""
TRAJECTORY_DUALS = {1: 40, 2: 12}
"""Maximum number of duals of a trajectory that a grid resolves, by the number of parameters."""


@dataclass(frozen=True)
class Trajectory:
    """Ideal EFP from the prior, eq. (8): mu^(t+1) = (1 - rate) mu^(t) + rate mu-hat^(t).

    Entry t of every array is time t.
    """

    primal: np.ndarray
    """L(mu^(t)), eq. (6)."""
    dual: np.ndarray
    """D(loss'(H^(t))), eq. (11)."""
    kl: np.ndarray
    """KL(mu^(t) | mu-hat^(t)), integrated on its own. By Theorem 2, primal - dual is temperature
    times kl."""
    primal_gibbs: np.ndarray
    """L(mu-hat^(t))."""
    moments: np.ndarray
    """H^(t), stacked along the first axis."""
    snapshots: np.ndarray
    """The times t at which densities were kept."""
    densities: np.ndarray
    """mu^(t) at the snapshots, each shaped like the grid."""
    gibbs_densities: np.ndarray
    """mu-hat^(t) at the snapshots."""


def ideal_play(
    quadrature: Quadrature, rate: float | Schedule, iterations: int, snapshots: int
) -> Trajectory:
    """Algorithm 1 with densities on the grid in place of samples."""
    times = np.unique(np.linspace(0, iterations, snapshots).round().astype(int))
    names = ("primal", "dual", "kl", "primal_gibbs", "moments")
    rows: dict[str, list] = {name: [] for name in names}
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    density, shape = quadrature.prior, quadrature.shape
    for t in range(iterations + 1):
        moments = quadrature.moments(density)
        dual = quadrature.slope(moments)
        gibbs, _ = quadrature.gibbs(dual)  # mu-hat, eq. (5)
        rows["primal"].append(quadrature.primal(density))
        rows["dual"].append(quadrature.dual_at(moments))
        rows["kl"].append(kl(density, quadrature.log_gibbs(dual), quadrature.cell))
        rows["primal_gibbs"].append(quadrature.primal(gibbs))
        rows["moments"].append(moments)
        if t in times:
            kept.append((density.reshape(shape), gibbs.reshape(shape)))
        density = density + float(value_at(rate, t)) * (gibbs - density)  # eq. (8)
    densities, gibbs_densities = (np.stack(arrays) for arrays in zip(*kept, strict=True))
    arrays = {name: np.array(values) for name, values in rows.items()}
    return Trajectory(
        **arrays, snapshots=times, densities=densities, gibbs_densities=gibbs_densities
    )


@dataclass(frozen=True)
class Play:
    """The settings of a trajectory of ideal EFP."""

    rate: float | Schedule
    iterations: int
    snapshots: int

    def on(self, quadrature: Quadrature) -> Trajectory:
        """The trajectory on a grid."""
        return ideal_play(quadrature, self.rate, self.iterations, self.snapshots)


def played(cold: Cold, play: Play, budget: int) -> tuple[Quadrature, Trajectory]:
    """Ideal EFP on a grid that resolves the optimum, the prior and the measures on the way."""
    landscape, temperature = cold.landscape, cold.landscape.problem.temperature
    optimum = landscape.tilt(cold.quadrature.slope(cold.moments), temperature)
    tilts, before = [optimum, 0 * optimum], None
    for _ in range(TRAJECTORY_GRIDS):
        grid = follow(
            landscape,
            np.stack(tilts, axis=1),
            tolerance=TOLERANCE,
            budget=budget,
            known=cold.grid.seeds,
        )
        quadrature = on_grid(landscape, grid)
        trajectory = play.on(quadrature)
        values = np.stack([trajectory.primal, trajectory.dual])
        if before is not None and np.allclose(
            values, before, rtol=TRAJECTORY_ERROR, atol=TRAJECTORY_ERROR
        ):
            return quadrature, trajectory
        before = values
        # The next grid resolves the measures that this trajectory has visited.
        count = min(len(trajectory.moments), TRAJECTORY_DUALS[landscape.dim])
        times = np.unique(np.linspace(0, len(trajectory.moments) - 1, count).round().astype(int))
        visited = [quadrature.slope(trajectory.moments[t]) for t in times]
        tilts = [optimum, 0 * optimum, *(landscape.tilt(g, temperature) for g in visited)]
    raise UnresolvedError(
        "The optimum was found, but the trajectory of ideal EFP visits measures that the grid does "
        "not resolve. Ask for a lower 'rate', more 'points', or 'iterations=0'."
    )
