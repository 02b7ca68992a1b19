"""The optimal moments on a grid by Newton's method, their errors, and the stability of EFP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..measures.quadrature import Quadrature

NEWTON_STEPS = 200
"""Maximum number of Newton steps."""
SETTLED = 1e-13
"""Residual of the optimality condition, relative to the moments, at which Newton's method stops."""
PATIENCE = 4
"""Number of steps in succession that gain nothing after which Newton's method stops."""
HALVINGS = 60
"""Maximum number of times that a Newton step is halved."""
ROUNDING = 1e-14
"""Relative decrease of the dual that is put down to rounding."""


def newton(quadrature: Quadrature, *, start: np.ndarray | None = None) -> np.ndarray:
    """The optimal moments: the root of H - E_q[h], q = q_g, g = loss'(H), by Newton's method.

    It starts at the moments `start`; default: those of the prior. The Jacobian of H -> E_q[h] is
    -J, see `jacobian`. The Newton step is an ascent direction of the concave dual. Halving it until
    the dual increases therefore converges from any start.
    """
    moments = quadrature.moments(quadrature.prior) if start is None else start
    value = quadrature.dual_at(moments)
    smallest, stalled, gained = np.inf, 0, True
    for _ in range(NEWTON_STEPS):
        density, _ = quadrature.gibbs(quadrature.slope(moments))
        residual = quadrature.moments(density) - moments
        if np.abs(residual).max() <= SETTLED * (1 + np.abs(moments).max()):
            break
        # At low temperatures rounding alone leaves a larger residual than SETTLED.
        stalled = 0 if np.abs(residual).max() < 0.5 * smallest or gained else stalled + 1
        smallest = min(smallest, np.abs(residual).max())
        if stalled >= PATIENCE:
            break
        # (I + J) direction = E_q[h] - H.
        response = jacobian(quadrature, density, moments)
        direction = np.linalg.solve(np.eye(len(response)) + response, residual.ravel())
        direction = direction.reshape(moments.shape)
        for halving in range(HALVINGS):
            candidate = quadrature.retract(moments, 0.5**halving * direction)
            new_value = quadrature.dual_at(candidate)
            if new_value >= value - ROUNDING * (1 + abs(value)):
                break
        else:
            break  # no gain left in floating point
        gained = new_value > value + ROUNDING * (1 + abs(value))
        moments, value = candidate, new_value
    return moments


def jacobian(quadrature: Quadrature, density: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """J = C W loss''(H) / temperature, of shape (n k, n k), where C = Cov_q(h).

    From d log q_g / dg = -(h - E_q[h]) W / temperature, the derivative of E_q[h] in g is
    -C W / temperature; loss'' is the derivative of g in H.
    """
    covariance = quadrature.covariance(density)
    curvature = quadrature.weighted_curvature(moments)
    if curvature.ndim == 1:
        return covariance * curvature / quadrature.problem.temperature
    n, k = moments.shape
    product = np.einsum("xnk,nkl->xnl", covariance.reshape(n * k, n, k), curvature)
    return product.reshape(n * k, n * k) / quadrature.problem.temperature


def stability_limit(quadrature: Quadrature, density: np.ndarray, moments: np.ndarray) -> float:
    """The rate at which I - rate (I + J), EFP's linearisation at the optimum, has eigenvalue -1."""
    eigenvalues = np.linalg.eigvals(jacobian(quadrature, density, moments))
    return float(2 / (1 + eigenvalues.real.max()))


@dataclass(frozen=True)
class Errors:
    """Estimated absolute errors of an optimum, by comparison with a finer grid."""

    value: float
    """The error of the minimum of L."""
    moments: float
    """The largest error of an optimal moment."""

    def within(self, value: float, moments: np.ndarray, limits: tuple[float, float]) -> bool:
        """Whether both are below the limits, relative to 1 plus the size of what they are of."""
        return bool(
            self.value <= limits[0] * (1 + abs(value))
            and self.moments <= limits[1] * (1 + np.abs(moments).max())
        )


def error_of_moments(
    quadrature: Quadrature, density: np.ndarray, moments: np.ndarray, residual: np.ndarray
) -> float:
    """The error of moments H for which E_q[h] - H is `residual`.

    It is the size of a Newton step, (I + J)^{-1} (E_q[h] - H).
    """
    response = jacobian(quadrature, density, moments)
    step = np.linalg.solve(np.eye(len(response)) + response, residual.ravel())
    return float(np.abs(step).max())
