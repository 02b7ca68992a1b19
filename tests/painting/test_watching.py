"""Watching a painting: the callback, the progress bar, and what happens when it diverges."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from painting.cases import photograph

import entroplay as ep
from entroplay.painting import plan
from entroplay.painting.watching import Progress
from entroplay.runs import loop

SECONDS_PER_ITERATION = 0.004
"""Speed of the machine that the fake clock pretends to run on."""


@pytest.fixture
def clock(monkeypatch):
    """A clock that only iterations advance: what is tested does not depend on the machine."""
    now = SimpleNamespace(seconds=0.0)

    def timed(advance):
        def chunk(*arguments):
            outcome = advance(*arguments)
            now.seconds += SECONDS_PER_ITERATION * int(outcome.completed)
            return outcome

        return chunk

    chunks = {level: timed(advance) for level, advance in loop.ADVANCE.items()}
    monkeypatch.setattr(loop, "ADVANCE", chunks)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


def test_the_callback_is_called_several_times_per_second(clock):
    reports, times = [], []

    def callback(report):
        reports.append(report)
        times.append(clock.seconds)

    painting = ep.paint(photograph(), triangles=20, iterations=400, callback=callback)
    assert max(np.diff(times)) <= 0.2
    assert times[-1] == pytest.approx(400 * SECONDS_PER_ITERATION)
    assert all(isinstance(report, Progress) for report in reports)
    iterations = [report.iteration for report in reports]
    assert iterations == sorted(set(iterations))
    assert (reports[-1].iteration, reports[-1].iterations) == (400, 400)
    losses = painting.solution.history["loss_particles"]
    # The loss is half the sum over the three channels.
    expected = [2 / 3 * losses[i - 1] for i in iterations]
    np.testing.assert_allclose([report.mse for report in reports], expected, rtol=1e-12)
    assert str(reports[-1]).startswith("400 of 400, ")


def test_the_callback_can_stop_at_once():
    painting = ep.paint(photograph(), triangles=20, iterations=400, callback=lambda report: True)
    assert painting.solution.status == "callback"
    assert len(painting.solution.history["iteration"]) == 1
    assert painting.film.iterations.tolist() == [1]


def test_the_progress_bar_shows_the_error(capsys):
    ep.paint(photograph(), triangles=20, iterations=40, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "40/40" in captured.err
    assert "MSE 0." in captured.err
    ep.paint(photograph(), triangles=20, iterations=40)
    assert capsys.readouterr().err == ""


def test_the_progress_bar_of_a_continued_painting_begins_where_it_stopped(tmp_path, capsys):
    path = tmp_path / "kept"
    for _ in range(2):
        painting = ep.paint(
            photograph(), triangles=20, iterations=40, progress=True, checkpoint=path
        )
    assert len(painting.solution.history["iteration"]) == 40
    assert "40/40" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("step", "kept"), [(1e3, 1), (1e30, 0)])
def test_a_painting_that_diverges_ends_with_its_last_finite_state(step, kept, monkeypatch):
    """Steps of 1e3 leave the finite range in the second iteration, steps of 1e30 in the first."""
    absurd = partial(ep.TrianglePainter, colour_step=step)
    monkeypatch.setattr(plan, "TrianglePainter", absurd)
    painting = ep.paint(photograph(), triangles=20, iterations=400)
    solution = painting.solution
    assert solution.status == "diverged"
    assert f"iteration {kept + 1} left the finite range" in solution.status.message
    assert "Reduce corner_step and colour_step" in solution.status.message
    assert len(solution.history["iteration"]) == kept
    for array in (solution.particles, solution.moments, painting.running_mean, painting.picture):
        assert np.isfinite(array).all()
    assert painting.film.iterations.tolist() == [kept]
    np.testing.assert_array_equal(painting.film.particles[-1], solution.particles)
    if kept:
        # The state is that of a painting that was stopped there.
        stopped = ep.paint(photograph(), triangles=20, iterations=400, callback=lambda report: True)
        np.testing.assert_array_equal(solution.particles, stopped.solution.particles)
        np.testing.assert_array_equal(solution.moments, stopped.solution.moments)
