"""Plots: what is drawn is what was computed."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from problems.cases import linear, squared

import entroplay as ep


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_convergence_draws_the_histories():
    runs = {
        "EFP": ep.solve(squared(), ep.EFP(0.2), particles=32, iterations=20),
        "MFLD": ep.solve(squared(), ep.MFLD(0.1), particles=32, iterations=20),
    }
    figure = ep.plot.convergence(runs, against="pulls")
    left, right = figure.axes
    # MFLD has no estimate of the gap.
    assert [t.get_text() for t in left.get_legend().get_texts()] == ["EFP"]
    assert len(right.get_lines()) == 4
    np.testing.assert_array_equal(
        right.get_lines()[0].get_ydata(), runs["EFP"].history["loss_moments"]
    )
    np.testing.assert_array_equal(right.get_lines()[0].get_xdata(), runs["EFP"].history["pulls"])
    assert len(ep.plot.convergence(runs["MFLD"]).axes) == 2


@pytest.mark.parametrize("d", [1, 2])
def test_particles_are_drawn_over_the_exact_optimum(d):
    problem = squared(d=d)
    solution = ep.solve(problem, ep.EFP(0.2), particles=64, iterations=20)
    axes = ep.plot.particles(solution, ep.grid.solve(problem, iterations=0, points=101))
    labels = [t.get_text() for t in axes.get_legend().get_texts()]
    assert "64 particles" in labels
    assert "exact optimum" in labels


def test_particles_need_a_picture_that_fits_on_paper():
    problem, _, _ = linear(d=3)
    solution = ep.solve(problem, ep.EFP(0.2), particles=8, iterations=2)
    with pytest.raises(ValueError, match="d = 3"):
        ep.plot.particles(solution)
