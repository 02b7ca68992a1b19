"""Stopping rules: the callback, and the tolerance with its certificates."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
from problems.cases import squared
from runs.scripted import Counting, loop_of, tiny

import entroplay as ep
from entroplay.runs.solution import RECENT
from entroplay.runs.stopping import RARELY, Rule, Tolerance


def test_a_callback_sees_every_iteration_and_may_stop():
    seen = []

    def callback(report):
        seen.append((report.iteration, report.gap, report.particles.shape, report.moments.shape))
        return report.iteration == 7

    solution = ep.solve(squared(), ep.EFP(0.1), particles=16, iterations=50, callback=callback)
    assert [s[0] for s in seen] == list(range(1, 8))
    assert seen[0][2:] == ((16, 1), (12,))
    assert solution.status == "callback"
    assert "iteration 7" in solution.status.message
    np.testing.assert_array_equal([s[1] for s in seen], solution.history["gap"])


def test_a_report_knows_the_history_and_nothing_else():
    def callback(report):
        assert report.pulls == report.row["pulls"]
        with pytest.raises(AttributeError):
            _ = report.nonsense
        return True

    ep.solve(squared(), ep.EFP(0.1), particles=16, iterations=2, callback=callback)


class Noting(Rule):
    """Looks when every chunk ends, and notes how far the run is."""

    def __init__(self, every=RARELY):
        self.every, self.seen = every, []

    def interval(self, done):
        return self.every - done % self.every

    def verdict(self, loop):
        self.seen.append(loop.done)


def test_a_rule_looks_at_the_iterations_that_it_names():
    often, rarely = Noting(every=6), Noting()
    assert loop_of(tiny(), Counting(), 40).drive([rarely, often]) == "iterations"
    assert {6, 12, 18, 24, 30, 36, 40} <= set(often.seen)
    assert often.seen == rarely.seen


def certifying(bound, mixed=True):
    """A function that makes such certificates, and notes after how many iterations."""
    made = []

    def certify(loop):
        made.append(loop.done)
        return SimpleNamespace(bound=bound, mixed=mixed, verdict=f"at most {bound} (a verdict)")

    return certify, made


def driven(tolerance, certify, iterations=100):
    """A run without an estimate of the gap, which is always worth a certificate."""
    loop = loop_of(tiny(), Counting(), iterations)
    return loop, loop.drive([Tolerance(tolerance, certify)])


def test_a_certificate_below_the_tolerance_ends_the_run_at_the_end_of_a_window():
    certify, made = certifying(0.05)
    loop, status = driven(0.1, certify)
    assert status == "converged"
    assert status.message == "after 10 iterations certified to be at most 0.05 (a verdict)."
    assert made == [loop.done] == [RECENT]


@pytest.mark.parametrize(("bound", "mixed"), [(0.2, True), (0.05, False)])
def test_a_certificate_that_does_not_pass_is_made_again_after_half_as_many_iterations(bound, mixed):
    """At 10, and then at the first end of a window from 15, 30, 45 and 75 iterations on."""
    certify, made = certifying(bound, mixed)
    _, status = driven(0.1, certify)
    assert status == "iterations"
    assert made == [10, 20, 30, 50, 80]


@pytest.mark.parametrize(
    ("gap", "promising"), [(0.05, True), (0.1, True), (0.2, False), (np.nan, True)]
)
def test_a_certificate_is_made_only_if_the_runs_own_estimate_is_good_enough(gap, promising):
    certify, made = certifying(0.0)
    recent = gap + 0.1 * np.sin(2 * np.pi * np.arange(RECENT) / RECENT)  # the mean is the gap
    history = {"gap": np.concatenate([np.full(10, 1e9), recent])}
    for done in (20, 21):  # the second is not the end of a window
        loop = SimpleNamespace(done=done, history=history)
        inspect.unwrap(Tolerance.verdict)(Tolerance(0.101, certify), loop)
    assert made == ([20] if promising else [])
