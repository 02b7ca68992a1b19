"""Ideal entropic fictitious play on a grid: Algorithm 1 with exact expectations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.arguments import Schedule, value_at
from ..measures.quadrature import Quadrature, kl


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
