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


@pytest.mark.parametrize(
    ("d", "temperature"),
    [(1, 0.05), (2, 0.05), (1, 1e-4), pytest.param(2, 1e-3, marks=pytest.mark.slow)],
)
def test_particles_are_drawn_over_the_exact_optimum(d, temperature):
    problem = squared(d=d, temperature=temperature, l2=temperature)
    solution = ep.solve(problem, ep.EFP(0.2), particles=64, iterations=20)
    exact = ep.grid.solve(problem, iterations=0, points=101)
    assert (exact.trajectory is None) == (temperature < 0.01)  # the grid follows the mass
    if d == 1:
        assert (np.diff(exact.quadrature.points[:, 0]) > 0).all()
    axes = ep.plot.particles(solution, exact)
    labels = [t.get_text() for t in axes.get_legend().get_texts()]
    assert "64 particles" in labels
    assert "exact optimum" in labels


def test_particles_need_a_picture_that_fits_on_paper():
    problem, _, _ = linear(d=3)
    solution = ep.solve(problem, ep.EFP(0.2), particles=8, iterations=2)
    with pytest.raises(ValueError, match="d = 3"):
        ep.plot.particles(solution)
