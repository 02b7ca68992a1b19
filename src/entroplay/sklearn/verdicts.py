"""Checks of parameters before a fit, and the judgement of its certificate, for all estimators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..base.arguments import invalid, is_number, one_of, positive, whole
from ..methods.solvers import SOLVERS, NewtonEFP, Solver
from ..runs.solution import Reason, Solution
from ..verbs.certificate import Certificate
from .fit import GOOD

LEAST_PARTICLES, PARTICLES_PER_PARAMETER, PARTICLE_STEP = 1024, 16, 256
"""Cloud size for particles="auto": this many particles per parameter of a neuron, rounded up to a
multiple of the step, and at least the first number."""
MOST_PARTICLES = 2048
"""Maximum number of particles to which such clouds grow for more rows than are searched."""


def automatic(owner: str, name: str, value: object) -> float | None:
    """The positive number `value`, or None if it is "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    if isinstance(value, str) or not is_number(value):
        raise invalid(owner, name, "a positive number or 'auto'", value)
    return positive(owner, name, value)


def solver_of(owner: str, solver: object) -> Solver:
    """The solver that the parameter describes: by name, as an instance, or None for Newton's."""
    if solver is None:
        return NewtonEFP()
    if isinstance(solver, str):
        return SOLVERS[one_of(owner, "solver", solver, tuple(SOLVERS))]()
    if not isinstance(solver, Solver):
        names = ", ".join(map(repr, SOLVERS))
        raise invalid(owner, "solver", f"a Solver or one of {names}", solver)
    return solver


def cloud_sizes(owner: str, particles: object, dim: int, before: int | None) -> tuple[int, int]:
    """The number of particles for neurons with `dim` parameters, and up to which it may grow.

    A warm start keeps the number `before`.
    """
    if isinstance(particles, str) and particles == "auto":
        if before is not None:
            return before, before
        steps = -(-PARTICLES_PER_PARAMETER * dim // PARTICLE_STEP)  # rounded up
        size = max(LEAST_PARTICLES, PARTICLE_STEP * steps)
        return size, max(size, MOST_PARTICLES)
    if isinstance(particles, str):
        raise invalid(owner, "particles", "a whole number >= 8 or 'auto'", particles)
    size = whole(owner, "particles", particles, least=8)
    return size, size


def new_seed(random_state: Any) -> int:
    """A seed for JAX, drawn from any source of randomness that scikit-learn accepts."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def verified_bound(certificate: Certificate | None) -> float:
    """The bound of the certificate; infinite if there is none or if it could not be verified."""
    return np.inf if certificate is None or not certificate.verified else certificate.bound


def relative_bound(certificate: Certificate | None) -> float:
    """The verified bound, divided by the best constant's loss; NaN where no constant is best."""
    if certificate is None or not certificate.verified:
        return np.inf
    return certificate.relative_bound


def verdict_warning(
    owner: str,
    certificate: Certificate | None,
    solution: Solution,
    tol: float,
    done: int,
    max_iter: int,
    *,
    stacklevel: int = 3,
) -> None:
    """Warn about a fit that is not good after `done` iterations: why it stopped, and what helps.

    No warning is due where the bound is verified and at most `tol`, or below `GOOD` of the best
    constant's loss. `stacklevel` counts the calls up to the user's line: this function, `fit`, and
    what is between.
    """
    message = _complaint(certificate, solution, tol, done, max_iter)
    if message:
        warnings.warn(f"{owner} {message}", ConvergenceWarning, stacklevel=stacklevel)


def _complaint(
    certificate: Certificate | None, solution: Solution, tol: float, done: int, max_iter: int
) -> str:
    """What is wrong with the fit, and what would help; empty if nothing is wrong."""
    if certificate is None:
        return (
            "was interrupted: the best network or density so far is kept, without a certificate, "
            "and duality_gap_ is infinite. Fit again to go on."
        )
    if solution.status == Reason.DIVERGED:
        return f"diverged: {solution.status.message}"
    if solution.status == Reason.TOO_COLD:
        return f"stopped above its temperature: {solution.status.message}"
    if not certificate.verified:
        return (
            f"could not verify its answer: {certificate.reason}. The estimate of "
            f"{certificate.bound:.3g} is therefore no bound, and duality_gap_ is infinite. "
            "A higher temperature makes the problem easier; more particles help, too."
        )
    # NaN, where no constant is best, is not below GOOD: tol decides.
    if certificate.bound <= tol or certificate.relative_bound < GOOD:
        return ""
    share = certificate.relative_bound
    share = "" if np.isnan(share) else f" ({share:.0%} of the best constant's loss)"
    gap = f"duality_gap_ = {certificate.bound:.3g}{share} above tol={tol:g}"
    if done >= max_iter:
        return (
            f"reached max_iter={max_iter} with {gap}. Raise max_iter or particles, or the "
            "temperature, or accept a larger tol."
        )
    # More iterations were allowed, and the fit did not take them: another max_iter is no remedy.
    return (
        f"stopped after {done} of max_iter={max_iter} iterations with {gap}: it did not expect to "
        "get there in the others. Raise particles or the temperature, or accept a larger tol."
    )
