"""Checkpoints of a painting: it continues to the last bit, in either stage, and only itself."""

import numpy as np
import pytest
from painting.cases import photograph

import entroplay as ep
from entroplay.painting import plan
from entroplay.runs import loop
from entroplay.runs.checkpoints import read_checkpoint

ITERATIONS = 40
COARSE = int(plan.COARSE_SHARE * ITERATIONS)
"""Number of iterations at half the size, if there are any."""


def short(**options):
    return ep.paint(photograph(), **{"triangles": 20, "iterations": ITERATIONS, **options})


def interrupt_at(iteration):
    """A callback that acts as if Ctrl-C were pressed after this iteration."""

    def callback(report):
        if report.iteration == iteration:
            raise KeyboardInterrupt

    return callback


@pytest.fixture
def every_iteration(monkeypatch):
    """Callbacks after every iteration: no machine is fast enough for longer chunks."""
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.0)


@pytest.fixture
def two_stages(monkeypatch):
    """Begin with half the size, although the picture is small and has few triangles."""
    monkeypatch.setattr(plan, "COARSE_FROM", 16)
    monkeypatch.setattr(plan, "COARSE_TRIANGLES", 10)


def assert_same(painting, other):
    for field in ("particles", "moments", "dual"):
        np.testing.assert_array_equal(
            getattr(painting.solution, field), getattr(other.solution, field)
        )
    np.testing.assert_array_equal(painting.running_mean, other.running_mean)
    np.testing.assert_array_equal(painting.film.iterations, other.film.iterations)
    np.testing.assert_array_equal(painting.film.particles, other.film.particles)
    # All columns of the history apart from the clock.
    assert painting.solution.history.keys() == other.solution.history.keys()
    for name in painting.solution.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(
            painting.solution.history[name], other.solution.history[name], err_msg=name
        )


@pytest.mark.usefixtures("every_iteration", "two_stages")
@pytest.mark.parametrize("iteration", [5, COARSE - 1, COARSE, COARSE + 1, 30])
def test_an_interrupted_painting_continues_to_the_last_bit(iteration, tmp_path):
    """Interrupted in the coarse stage, where the stages meet, and in the fine stage."""
    path = tmp_path / "kept"
    stopped = short(checkpoint=path, callback=interrupt_at(iteration))
    assert stopped.solution.status == "interrupted"
    assert len(stopped.solution.history["iteration"]) == iteration
    assert stopped.picture.shape == photograph().shape  # shown at the full size in either case
    assert read_checkpoint(path).iteration == iteration
    whole = short()
    assert_same(short(checkpoint=path), whole)
    assert_same(short(checkpoint=path), whole)  # nothing is left to do


@pytest.mark.usefixtures("every_iteration")
def test_the_papers_method_continues_to_the_last_bit(tmp_path):
    path, options = tmp_path / "kept", {"triangles": 200, "preset": "paper"}
    short(checkpoint=path, callback=interrupt_at(7), **options)
    assert read_checkpoint(path).iteration == 7
    assert_same(short(checkpoint=path, **options), short(**options))


@pytest.mark.usefixtures("every_iteration", "two_stages")
def test_checkpoints_are_written_as_often_as_asked(tmp_path):
    """So often here that each iteration leaves one, at the seam of the stages as well."""
    path, found = tmp_path / "kept", []

    def look(report):
        found.append((report.iteration, read_checkpoint(path).iteration))

    short(checkpoint=path, checkpoint_seconds=1e-9, callback=look)
    assert found == [(i, i) for i in range(1, ITERATIONS + 1)]


@pytest.mark.parametrize(
    "other",
    [
        {"image": photograph()[::-1].copy()},
        {"image": photograph()[:20]},
        {"background": "black"},
        {"seed": 1},
        {"triangles": 21},
        {"iterations": ITERATIONS + 1},
        {"preset": "paper"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_checkpoint_of_another_painting_is_refused(other, tmp_path):
    path = tmp_path / "kept"
    short(checkpoint=path)
    before = path.read_bytes()
    arguments = {"image": photograph(), "triangles": 20, "iterations": ITERATIONS} | other
    with pytest.raises(ValueError, match="belongs to another run"):
        ep.paint(**arguments, checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.usefixtures("every_iteration")
def test_a_time_budget_is_planned_once(tmp_path):
    """Whoever continues keeps the number of iterations, whatever budget is named then."""
    path = tmp_path / "kept"
    begun = short(iterations=None, seconds=0.05, checkpoint=path, callback=interrupt_at(3))
    planned = int(begun.solution.solver.iterations)
    assert len(begun.solution.history["iteration"]) == 3 < planned
    ended = short(iterations=None, seconds=50.0, checkpoint=path)
    assert len(ended.solution.history["iteration"]) == planned
    assert ended.solution.solver.iterations == planned
    assert_same(ended, short(iterations=planned))
