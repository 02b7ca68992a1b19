"""Checks of parameters before a fit, and the judgement of its certificate, for all estimators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..base.arguments import invalid, is_number, one_of, positive
from ..methods.solvers import SOLVERS, NewtonEFP, Solver
from ..runs.solution import Solution
from ..verbs.certificate import Certificate


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


def new_seed(random_state: Any) -> int:
    """A seed for JAX, drawn from any source of randomness that scikit-learn accepts."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def verified_bound(certificate: Certificate | None) -> float:
    """The bound of the certificate; infinite if there is none or if it could not be verified."""
    return np.inf if certificate is None or not certificate.verified else certificate.bound


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
    """Warn about a fit that is not certified to `tol` after `done` iterations; say what would help.

    `stacklevel` counts the calls up to the user's line: this function, `fit`, and what is between.
    """
    if certificate is None:
        message = "was interrupted: its last state is kept, without a certificate."
    elif solution.status == "diverged":
        message = f"diverged: {solution.status.message}"
    elif not certificate.verified:
        message = (
            f"could not verify its answer: {certificate.reason}. The estimate of "
            f"{certificate.bound:.3g} is therefore no bound, and duality_gap_ is infinite. "
            "A higher temperature makes the problem easier; more particles help, too."
        )
    elif certificate.bound > tol:
        message = (
            f"stopped after {done} of max_iter={max_iter} iterations with duality_gap_ = "
            f"{certificate.bound:.3g} above tol={tol:g}. Raise max_iter or particles, or the "
            "temperature, or accept a larger tol."
        )
    else:
        return
    warnings.warn(f"{owner} {message}", ConvergenceWarning, stacklevel=stacklevel)
