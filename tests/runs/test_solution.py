"""A Solution: what it prints, what it predicts, and why it stopped."""

from html import escape

import numpy as np
import pytest
from problems.cases import cross_entropy, squared
from runs.cases import altered, assert_same, solution_of

import entroplay as ep
from entroplay.runs.history import empty_history
from entroplay.runs.solution import Reason, Status


def test_a_solution_prints_what_one_wants_to_know():
    solution = ep.solve(squared(), ep.EFP(0.2), particles=128, iterations=30)
    text = repr(solution)
    for part in (
        "FiniteSum(Neurons, Squared, n=12, d=1",
        "EFP(rate=0.2",
        "128 particles",
        "seed 0",
        "all 30 iterations",
        "gap",
        "30 iterations, 330 pulls, 360 passes",
    ):
        assert part in text
    assert "not bounded" not in text
    relu = ep.FiniteSum(
        ep.Neurons(np.ones((3, 1)), activation="relu"),
        ep.Squared(np.ones(3)),
        temperature=0.1,
        l2=0.1,
    )
    assert "not known to be bounded" in repr(ep.solve(relu, ep.EFP(0.1), particles=8, iterations=2))
    assert "not estimated" in repr(ep.solve(squared(), ep.MFLD(), particles=8, iterations=2))


def test_a_notebook_shows_the_same_as_a_table():
    solution = ep.solve(squared(), ep.EFP(0.2), particles=128, iterations=30)
    html = solution._repr_html_()
    for _, text in solution._facts():
        assert escape(text) in html
    assert "FiniteSum(Neurons, Squared" in html
    assert html.count("<polyline") == 1  # the loss
    empty = altered(solution, history=empty_history())
    assert "no iteration was completed" in empty._repr_html_()
    assert "<svg" not in empty._repr_html_()


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        ("a measure on weighted points", "by a measure on weighted points, 2 particles"),
        (None, "by a method that the file does not name, 2 particles"),
    ],
)
def test_a_result_that_no_solver_made_says_so(solver, words, small):
    history = {"iteration": np.zeros(0, np.int64)}
    assert words in repr(altered(small, solver=solver, history=history))


def test_prediction_is_the_weighted_mean_of_the_features():
    problem = squared()
    solution = ep.solve(problem, ep.EFP(0.2), particles=32, iterations=10)
    new = np.linspace(-1, 1, 7)[:, None]
    expected = np.tanh(np.asarray(solution.particles) @ new.T).T @ np.asarray(solution.weights)
    np.testing.assert_allclose(solution.predict(new), expected, rtol=1e-5, atol=1e-6)
    assert float(solution.weights.sum()) == pytest.approx(1, rel=1e-5)
    with pytest.raises(ValueError, match="1 columns, as in training"):
        solution.predict(np.ones((3, 2)))


def test_a_status_equals_its_bare_reason():
    status = Status(Reason.CONVERGED, "it is there.")
    assert status == "converged"
    assert status != "diverged"
    assert status == Status(Reason.CONVERGED, "it is there.")
    assert status != Status(Reason.CONVERGED, "it is elsewhere.")
    assert status != 7
    assert str(status) == "converged: it is there."
    assert len({status, Reason.CONVERGED}) == 1


@pytest.mark.parametrize("problem", [squared, cross_entropy])
def test_the_first_rows_are_cut_from_everything_that_has_rows(problem):
    solution = solution_of(problem())
    cut = solution.first_rows(5)
    cut.validate()
    for part, whole in (
        (cut.moments, solution.moments),
        (cut.dual, solution.dual),
        (cut.problem.weights, solution.problem.weights),
        (cut.problem.features.rows, solution.problem.features.rows),
    ):
        np.testing.assert_array_equal(part, whole[:5])
    np.testing.assert_array_equal(cut.path, solution.path[:, :5])
    assert_same(cut.particles, solution.particles)
