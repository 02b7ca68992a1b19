"""Warnings about fits: when they are due, why a fit stopped, and what they suggest."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from problems.cases import squared
from runs.cases import altered, solution_of
from sklearn.exceptions import ConvergenceWarning

from entroplay.runs.solution import Reason, Status
from entroplay.sklearn.verdicts import GOOD, relative_bound, verdict_warning, verified_bound
from entroplay.verbs.certificate import Certificate

CERTIFICATE = Certificate(
    gap=0.2,
    gap_error=0.0,
    gap_debiased=0.2,
    bound=0.2,
    mixed=True,
    primal=0.0,
    primal_error=0.0,
    dual=-0.2,
    dual_error=0.0,
    log_partition=0.0,
    log_partition_error=0.0,
    method="islands",
    reason="",
    islands=8,
    particles=64,
    pulls=100,
    best_constant=0.5,
)
"""A verified bound of 0.2, which is 40 % of the best constant's loss."""


def warned(certificate, *, reason=Reason.ITERATIONS, tol=0.1, done=20, max_iter=72):
    """The warning about such a fit; empty if there is none."""
    stopped = altered(solution_of(squared()), status=Status(reason, "the reason."))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        verdict_warning("Net", certificate, stopped, tol, done, max_iter)
    assert all(w.category is ConvergenceWarning for w in caught)
    return " ".join(str(w.message) for w in caught)


def test_a_bound_within_tol_is_silent():
    assert warned(CERTIFICATE, tol=0.2) == ""


def test_a_good_bound_is_silent_whatever_tol_says():
    good = replace(CERTIFICATE, bound=0.99 * GOOD * 0.5)
    assert warned(good, tol=1e-9) == ""
    assert warned(good, tol=1e-9, done=72) == ""
    assert warned(replace(good, bound=1.01 * GOOD * 0.5), tol=1e-9) != ""


def test_without_a_best_constant_tol_decides():
    density = replace(CERTIFICATE, bound=0.01, best_constant=float("nan"))
    assert "above tol=1e-09" in warned(density, tol=1e-9)
    assert "best constant" not in warned(density, tol=1e-9)
    assert warned(density, tol=0.1) == ""


def test_more_iterations_are_suggested_only_where_all_were_taken():
    spent = warned(CERTIFICATE, done=72)
    assert spent.startswith("Net reached max_iter=72 with duality_gap_ = 0.2 (40% of the best")
    assert "Raise max_iter or particles" in spent
    stopped = warned(CERTIFICATE, done=20)
    assert stopped.startswith("Net stopped after 20 of max_iter=72 iterations with duality_gap_")
    assert "Raise max_iter" not in stopped
    assert "Raise particles or the temperature" in stopped


def test_the_reason_why_a_fit_stopped_comes_first():
    unverified = replace(CERTIFICATE, mixed=False, reason="two islands disagree")
    assert "diverged: the reason." in warned(unverified, reason=Reason.DIVERGED)
    assert "stopped above its temperature: the reason." in warned(
        CERTIFICATE, reason=Reason.TOO_COLD
    )
    assert "two islands disagree. The estimate of 0.2 is therefore no bound" in warned(unverified)
    assert "was interrupted" in warned(None)


def test_the_attributes_agree_with_the_warning():
    assert (verified_bound(CERTIFICATE), relative_bound(CERTIFICATE)) == pytest.approx((0.2, 0.4))
    for nothing in (None, replace(CERTIFICATE, mixed=False)):
        assert verified_bound(nothing) == relative_bound(nothing) == np.inf
