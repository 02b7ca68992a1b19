"""The paper's dynamics with exact expectations, on a grid. Nothing here is random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_banded

from ..measures.quadrature import Quadrature, kl, normalise

TINY = 1e-300
"""Smallest density that is divided by, or whose logarithm is taken."""


@dataclass(frozen=True)
class Values:
    """The quantities in the theorems, at one measure mu."""

    primal: float
    """L(mu)."""
    dual: float
    """D(g_mu)."""
    kl: float
    """KL(mu | mu-hat)."""
    reverse_kl: float
    """KL(mu-hat | mu)."""
    primal_gibbs: float
    """L(mu-hat)."""
    loss: float
    """F_0(mu)."""
    residual: np.ndarray
    """E_mu-hat[h] - E_mu[h]."""


def values(quadrature: Quadrature, density: np.ndarray) -> Values:
    """All quantities at one density, each by an independent integration."""
    # L - D = temperature KL is Theorem 2, which is to be tested: neither side may use the other.
    moments = quadrature.moments(density)
    gibbs, log_gibbs = proximal_gibbs(quadrature, density)
    return Values(
        primal=quadrature.primal(density),
        dual=quadrature.dual_at(moments),
        kl=kl(density, log_gibbs, quadrature.cell),
        reverse_kl=kl(gibbs, np.log(np.maximum(density, TINY)), quadrature.cell),
        primal_gibbs=quadrature.primal(gibbs),
        loss=quadrature.loss(moments),
        residual=quadrature.moments(gibbs) - moments,
    )


def proximal_gibbs(quadrature: Quadrature, density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The proximal Gibbs density mu-hat, eq. (5), and its logarithm, which does not underflow."""
    log_density = quadrature.log_gibbs(quadrature.slope(quadrature.moments(density)))
    return np.exp(log_density), log_density


def fictitious_play(
    quadrature: Quadrature, rate: float, start: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """All iterates of Algorithm 1, mu <- (1 - rate) mu + rate mu-hat, without end."""
    density = quadrature.prior if start is None else start
    while True:
        yield density
        # eq. (8)
        density = density + rate * (proximal_gibbs(quadrature, density)[0] - density)


def continuous_play(
    quadrature: Quadrature, step: float, start: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """The flow d mu/dt = mu-hat - mu at times 0, step, 2 step, ... by the classical Runge-Kutta
    method.
    """

    def slope(density: np.ndarray) -> np.ndarray:
        """The right-hand side of eq. (7), with time in units of 1 / gamma."""
        return proximal_gibbs(quadrature, density)[0] - density

    density = quadrature.prior if start is None else start
    while True:
        yield density
        a = slope(density)
        b = slope(density + step / 2 * a)
        c = slope(density + step / 2 * b)
        d = slope(density + step * c)
        density = density + step / 6 * (a + 2 * b + 2 * c + d)


def dual_averaging(quadrature: Quadrature, *, weighted: bool = True) -> Iterator[np.ndarray]:
    """Particle dual averaging with infinitely many particles.

    Args:
        quadrature: the problem on its grid.
        weighted: average slopes with weights 2 s / (t (t + 1)), at (t + 2)/t times the
            temperature. Otherwise the form of the paper's footnote, "removing the weighted
            averaging in the gradient": the plain mean of all slopes, at the problem's temperature.
    """
    density, dual, t = quadrature.prior, np.zeros(quadrature.problem.features.shape), 0
    while True:
        yield density
        t += 1
        # A running mean: with the weight 2/(t + 1) slope s ends up with 2 s / (t (t + 1)).
        dual = dual + (2 / (t + 1) if weighted else 1 / t) * (
            quadrature.slope(quadrature.moments(density)) - dual
        )
        heat = (t + 2) / t if weighted else 1.0
        density = normalise(
            -quadrature.energy(dual) / (heat * quadrature.problem.temperature), quadrature.cell
        )[0]


def langevin(
    quadrature: Quadrature, step: float, start: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Mean-field Langevin dynamics in one dimension, as its Fokker-Planck equation
    d mu/dt = (mu U')' + temperature mu''.

    In terms of rho = mu / mu-hat it reads d mu/dt = temperature (mu-hat rho')'. Finite volumes with
    mu-hat's geometric mean at the borders of cells keep mass and sign, and their stationary law is
    mu-hat itself (Scharfetter and Gummel 1969). Each step is implicit and uses the potential from
    its beginning.
    """
    if len(quadrature.axes) != 1:
        raise ValueError("langevin: on grids of one dimension only.")
    temperature = quadrature.problem.temperature
    width = quadrature.cell
    density = quadrature.prior if start is None else start
    while True:
        yield density
        log_gibbs = proximal_gibbs(quadrature, density)[1]
        half = np.diff(log_gibbs) / 2
        # The flux through a border is rate (mu_right exp(-half) - mu_left exp(half)).
        rate = temperature * step / width**2
        outward, inward = rate * np.exp(half), rate * np.exp(-half)  # to the right, to the left
        # The matrix of (1 - step * generator) in the band format of scipy: upper diagonal, main
        # diagonal, lower diagonal. Its columns sum to one, hence mass is kept.
        bands = np.zeros((3, len(density)))
        bands[0, 1:] = -inward
        bands[2, :-1] = -outward
        bands[1] = 1
        bands[1, :-1] += outward
        bands[1, 1:] += inward
        density = solve_banded((1, 1), bands, density)
