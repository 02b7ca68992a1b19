"""Observers: the path of dual vectors, the running mean, the last clouds with the whole loss on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from methods.cases import SOLVERS
from problems.cases import squared
from runs.scripted import Counting, loop_of, tiny

import entroplay as ep
from entroplay.runs import observers
from entroplay.runs.observers import PATH, DualPath, LastClouds, RecordedPath, RunningMean
from entroplay.verbs.solve import run


def advanced(loop, *lengths):
    """The loop after chunks of these lengths."""
    for length in lengths:
        assert loop.advance(length) is None
    return loop


def test_the_running_mean_is_its_closed_form():
    """(1 - r)^T H_0 + sum_t r (1 - r)^(T - t) H_t, here with H_t = t / 4."""
    with jax.enable_x64(True):
        rate, T = 0.3, 20
        loop = loop_of(tiny(), Counting(), T, observers={"mean": RunningMean(rate)})
        advanced(loop, T)
        t = np.arange(1, T + 1)
        expected = np.sum(rate * (1 - rate) ** (T - t) * t / 4)
        np.testing.assert_allclose(loop.memory("mean"), np.full(2, expected), rtol=1e-13)


def test_what_observers_remember_does_not_depend_on_the_chunks():
    watching = {"mean": RunningMean(0.3), "path": DualPath(), "clouds": LastClouds(4, 100)}
    lengths = (40,), (1,) * 40, (7, 30, 3)
    memories = [
        advanced(loop_of(tiny(), Counting(), 40, observers=watching), *parts).latest.memories
        for parts in lengths
    ]
    for other in memories[1:]:
        for a, b in zip(*map(jax.tree.leaves, (memories[0], other)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert int(memories[0]["clouds"].seen) == 40


def thinned(vectors):
    """The rule of the path in NumPy, for vectors of full length."""
    path = []
    for vector in vectors:
        path.append(np.asarray(vector))
        if len(path) > PATH:
            apart = [np.sum((path[i + 1] - path[i - 1]) ** 2) for i in range(1, len(path) - 1)]
            del path[1 + int(np.argmin(apart))]
    return np.stack(path)


@pytest.mark.parametrize("count", [1, 5, PATH, PATH + 1, 60])
def test_a_full_path_loses_the_vector_whose_neighbours_are_closest(count):
    """Both ends always stay, and the order too."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(count, 2)).astype(np.float32)
    problem, recorder = tiny(), DualPath()

    class Follower(Counting):
        def target(self, problem, state):
            return state

    def update(path, item):
        iteration, vector = item
        return recorder.update(path, problem, Follower(), vector, iteration), None

    items = jnp.arange(count, dtype=jnp.int32), jnp.asarray(vectors)
    path, _ = jax.lax.scan(update, recorder.init(problem, None), items)
    recorded = path.recorded()
    np.testing.assert_array_equal(recorded, thinned(vectors))
    np.testing.assert_array_equal(recorded[[0, -1]], vectors[[0, -1]])


def test_long_vectors_are_recorded_less_often(monkeypatch):
    """Vectors of 2 numbers and room for PATH * 2 / 3 of them: every third iteration."""
    monkeypatch.setattr(observers, "RECORDED_ELEMENTS", PATH * 2 // 3)
    problem, recorder, solver = tiny(), DualPath(), Counting()
    path = recorder.init(problem, None)
    state = solver.init(problem, loop_of(problem, solver, 1).state, 1)
    for t in range(7):
        state, _ = solver.step(problem, None, state, t)
        path = recorder.update(path, problem, solver, state, jnp.asarray(t))
    # `Squared` with targets 0 has the slope H, which is (t + 1) / 4 after iteration t.
    np.testing.assert_array_equal(path.recorded(), np.array([[1, 1], [4, 4], [7, 7]]) / 4)


def test_a_path_shorter_than_its_room_is_cut():
    vectors = jnp.arange(2.0 * PATH).reshape(PATH, 2)
    for length in (0, 1, PATH):
        recorded = RecordedPath(vectors, jnp.asarray(length)).recorded()
        np.testing.assert_array_equal(recorded, np.arange(2.0 * length).reshape(length, 2))


def test_a_solutions_path_holds_the_duals_that_a_callback_sees():
    problem, seen = squared(d=2), []
    solution = ep.solve(
        problem,
        SOLVERS["EFP"](),
        particles=32,
        iterations=30,
        callback=lambda report: seen.append(np.asarray(problem.slope(report.moments))),
    )
    assert solution.path.shape == (PATH, 12)
    np.testing.assert_array_equal(solution.path, thinned(seen))
    np.testing.assert_array_equal(solution.path[-1], solution.dual)


CLOUDS, ITERATIONS = 3, 5


@pytest.fixture(scope="module")
def newton():
    """A run of NewtonEFP that ends after five iterations with the whole loss on."""
    watching = {"clouds": LastClouds(CLOUDS, ITERATIONS)}
    return run(
        squared(d=2, temperature=0.01),
        SOLVERS["NewtonEFP"](),
        particles=32,
        iterations=200,
        seed=0,
        observers=watching,
    )


def test_a_run_ends_so_many_iterations_after_the_whole_loss_is_on(newton):
    loop, status = newton
    beta = loop.history["beta"]
    risen = int(np.argmax(beta >= 1))
    assert 0 < risen < loop.done < 200
    assert (beta[:risen] < 1).all()
    assert loop.done - risen == ITERATIONS
    assert status == "iterations"
    assert status.message == f"{loop.done} iterations done, 5 of them with the whole loss on."


def test_the_clouds_that_are_kept_are_those_that_a_callback_sees(newton):
    """A callback makes chunks of one iteration: the clouds do not depend on chunks either.

    Two programs may round differently: by 2e-7, where the next iteration's cloud differs by 0.1.
    """
    loop, _ = newton
    seen = []
    ep.solve(
        squared(d=2, temperature=0.01),
        SOLVERS["NewtonEFP"](),
        particles=32,
        iterations=loop.done,
        callback=lambda report: seen.append(np.asarray(report.particles)),
    )
    clouds, count = loop.memory("clouds")
    assert int(count) == ITERATIONS
    np.testing.assert_allclose(clouds, np.stack(seen[-CLOUDS:]), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(clouds[-1], loop.state.particles)


def test_a_method_without_a_fraction_has_the_whole_loss_on_from_the_beginning():
    loop = loop_of(tiny(), Counting(), 40, observers={"clouds": LastClouds(2, 6)})
    first = np.asarray(loop.state.particles)
    assert loop.drive() == "iterations"
    assert loop.done == 6
    np.testing.assert_allclose(loop.memory("clouds").clouds, np.stack([first + 5, first + 6]))


def test_a_run_cut_short_keeps_the_clouds_that_there_were():
    loop = loop_of(tiny(), Counting(), 2, observers={"clouds": LastClouds(3, 6)})
    first = np.asarray(loop.state.particles)
    assert "all 2 iterations" in loop.drive().message
    clouds, count = loop.memory("clouds")
    assert int(count) == 2
    np.testing.assert_allclose(clouds, np.stack([0 * first, first + 1, first + 2]), rtol=1e-6)
