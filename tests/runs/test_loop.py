"""The loop: interruption, divergence inside a chunk, and stages."""

import signal
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from children import INTERRUPTIBLE, child
from methods.cases import SOLVERS
from problems.cases import INPUTS, linear, squared
from runs.scripted import Counting, loop_of, start_of, tiny

import entroplay as ep
from entroplay.problems.features.base import mean_features
from entroplay.runs.checkpoints import Checkpoints
from entroplay.runs.loop import RUNAWAY, Loop, Stage
from entroplay.runs.observers import DualPath, RunningMean
from entroplay.runs.stopping import Rule, stopped_by_callback


def test_ctrl_c_returns_the_solution_so_far():
    """After an interruption in the callback of iteration 5 the run equals one of 5 iterations."""
    problem = squared()

    def interrupt(report):
        if report.iteration == 5:
            raise KeyboardInterrupt

    solution = ep.solve(problem, ep.EFP(0.1), particles=16, iterations=50, callback=interrupt)
    assert solution.status == "interrupted"
    assert "5 of 50" in solution.status.message
    whole = ep.solve(problem, ep.EFP(0.1), particles=16, iterations=5)
    np.testing.assert_array_equal(solution.particles, whole.particles)
    np.testing.assert_array_equal(solution.moments, whole.moments)


def test_a_real_sigint_is_caught_between_chunks():
    script = textwrap.dedent("""
        import os, signal, threading, time
        import numpy as np, entroplay as ep
        features, loss = ep.Neurons(np.ones((50, 2))), ep.Squared(np.ones(50))
        problem = ep.FiniteSum(features, loss, temperature=0.1, l2=0.1)
        ep.solve(problem, ep.MFLD(0.01), particles=100, iterations=5)
        threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        solution = ep.solve(problem, ep.MFLD(0.01), particles=100, iterations=10**8)
        done = len(solution.history["iteration"])
        assert solution.status == "interrupted", solution.status
        assert 0 < done < 10**8 and np.isfinite(solution.particles).all()
        print("kept", done)
    """)
    with child("-c", INTERRUPTIBLE + script) as process:
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output.startswith("kept")


def test_signals_are_left_as_they_were():
    before = signal.getsignal(signal.SIGINT)
    ep.solve(squared(), ep.EFP(0.1), particles=16, iterations=2)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("solver", [ep.EFP(0.5, ep.ULA(step_size=30.0, steps=5)), ep.MFLD(30.0)])
def test_a_diverging_run_stops_with_its_last_finite_state_and_a_remedy(solver):
    problem, _, _ = linear()  # step_size 30 > 1/l2 = 3.3: Langevin steps explode
    solution = ep.solve(problem, solver, particles=50, iterations=10_000)
    assert solution.status == "diverged"
    assert "step_size" in solution.status.message
    assert "30" in solution.status.message
    assert len(solution.history["iteration"]) < 200
    for array in (
        solution.particles,
        solution.moments,
        solution.dual,
        solution.predict(np.ones((3, 2))),
    ):
        assert np.isfinite(array).all()


def test_an_infinite_feature_is_a_divergence_not_a_crash():
    features = ep.FunctionFeatures(lambda theta, x: jnp.exp(theta[0] * x), [1.0, 100.0], dim=1)
    problem = ep.FiniteSum(features, ep.Squared([1.0, 2.0]), temperature=10.0, l2=0.1)
    solution = ep.solve(problem, ep.EFP(0.1, ep.ULA()), particles=50, iterations=10)
    assert solution.status == "diverged"
    assert "no iteration was completed" in repr(solution)


def test_rows_that_no_particle_sees_are_named_as_the_cause():
    problem = ep.FiniteSum(
        ep.GaussianKernel([0.0, 1e3], bandwidth=0.1), ep.NegLog(), temperature=0.1, l2=1.0
    )
    solution = ep.solve(problem, ep.EFP(0.1), particles=50, iterations=10)
    assert solution.status == "diverged"
    assert "bandwidth" in solution.status.message


CEILING = RUNAWAY * 0.1
"""Of `tiny` and `Counting`: the first loss is zero and the temperature 0.1."""


@pytest.mark.parametrize(
    ("bad", "caught"),
    [
        (Counting(5, particle=np.nan), True),
        (Counting(5, particle=np.inf), True),
        (Counting(5, loss=np.nan), True),
        (Counting(5, loss=1.01 * CEILING), True),
        (Counting(5, loss=0.99 * CEILING), False),
    ],
    ids=["NaN", "infinite", "NaN loss", "runaway loss", "loss below the ceiling"],
)
def test_divergence_is_caught_inside_a_chunk(bad, caught):
    """One chunk of 20 iterations: the sixth goes wrong, and the state after five is kept."""
    loop = loop_of(tiny(), bad, 20)
    first = np.asarray(loop.state.particles)
    status = loop.advance(20)
    done = 5 if caught else 20
    assert loop.done == done
    np.testing.assert_allclose(loop.state.particles, first + done, rtol=1e-6)
    np.testing.assert_array_equal(loop.state.moments, done / 4)
    np.testing.assert_array_equal(loop.history["iteration"], np.arange(1, done + 1))
    np.testing.assert_array_equal(loop.history["pulls"], 3 * np.arange(1, done + 1))
    np.testing.assert_array_equal(loop.history["passes"], 2 * np.arange(1, done + 1))
    if not caught:
        assert status is None
        return
    assert status == "diverged"
    assert "iteration 6 left the finite range, or its loss grew 1e+06-fold" in status.message
    assert np.isfinite(loop.history["loss_moments"]).all()


FIRST, LAST, M = 7, 20, 32
"""Last iteration of the first stage and of the second, and the number of particles."""


def coarse():
    """Every other row of `squared`."""
    x = INPUTS[::2]
    return ep.FiniteSum(
        ep.Neurons(x[:, None]), ep.Squared(np.sin(1.5 * x)), temperature=0.05, l2=0.05
    )


def two_stages():
    problem = coarse()
    observers = {"path": DualPath(), "mean": RunningMean(0.2)}
    stages = [Stage(problem, FIRST), Stage(squared(), LAST)]
    solver, key = SOLVERS["EFP"](), jax.random.key(5)
    return Loop(stages, solver, key, start_of(problem, M), observers=observers)


class At(Rule):
    """Looks after every iteration, notes the rows of the stage, and acts at one iteration."""

    def __init__(self, iteration, action):
        self.iteration, self.action, self.rows = iteration, action, []

    def interval(self, done):
        return 1

    def verdict(self, loop):
        self.rows.append(loop.problem.features.shape[0])
        return self.action(loop) if loop.done == self.iteration else None


def interrupted(loop):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole():
    """A run through both stages in chunks of any length."""
    loop = two_stages()
    status = loop.drive()
    assert status == "iterations"
    assert f"all {LAST} iterations" in status.message
    return loop


def assert_the_same_run(loop, whole):
    assert loop.latest.stage == whole.latest.stage
    for a, b in zip(
        jax.tree.leaves((loop.state, loop.latest.memories)),
        jax.tree.leaves((whole.state, whole.latest.memories)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert list(loop.history) == list(whole.history)
    for name in set(whole.history) - {"seconds"}:
        np.testing.assert_array_equal(loop.history[name], whole.history[name])


def test_a_loop_goes_through_all_its_stages(whole):
    """Two stages equal two runs of one stage, the second of which starts at the first one's end."""
    rule, loop = At(0, None), two_stages()
    loop.drive([rule])
    assert rule.rows == [6] * FIRST + [12] * (LAST - FIRST)
    assert_the_same_run(loop, whole)  # chunks of one iteration do not matter
    np.testing.assert_array_equal(loop.history["iteration"], np.arange(1, LAST + 1))

    problem, key, observers = squared(), jax.random.key(5), loop.observers
    first = Loop(
        [Stage(coarse(), FIRST)], loop.solver, key, start_of(coarse(), M), observers=observers
    )
    first.drive()
    particles = first.state.particles
    start = start_of(problem, M)._replace(
        particles=particles, moments=mean_features(problem.features, particles)
    )
    stage, history = Stage(problem, LAST), first.history
    second = Loop([stage], loop.solver, key, start, observers=observers, history=history)
    assert second.done == FIRST
    second.drive()
    np.testing.assert_array_equal(second.state.particles, whole.state.particles)
    np.testing.assert_array_equal(second.state.moments, whole.state.moments)
    np.testing.assert_array_equal(second.memory("mean"), whole.memory("mean"))
    # The path begins again with the second stage: one vector for each of its iterations.
    assert whole.memory("path").recorded().shape == (LAST - FIRST, 12)
    np.testing.assert_array_equal(second.memory("path").recorded(), whole.memory("path").recorded())


@pytest.mark.parametrize("iteration", [4, FIRST, 12])
def test_a_checkpoint_of_either_stage_resumes_to_the_same_numbers(iteration, whole, tmp_path):
    """The iteration 7 is the last of the first stage: the resumed run begins with the second."""

    def begun():
        loop = two_stages()
        loop.keep_checkpoints(Checkpoints(tmp_path / "run.ckpt", 1e9, "the same run"))
        return loop

    stopped = begun()
    assert stopped.drive([At(iteration, interrupted)]) == "interrupted"
    stopped.save_checkpoint(now=True)
    resumed = begun()
    assert resumed.done == iteration
    assert resumed.problem.features.shape == ((6,) if iteration < FIRST else (12,))
    assert resumed.drive() == "iterations"
    assert_the_same_run(resumed, whole)


def test_a_run_that_ends_early_is_shown_to_its_last_stage():
    loop = two_stages()
    assert loop.drive([At(3, lambda loop: stopped_by_callback(loop.done))]) == "callback"
    particles = loop.state.particles
    assert loop.problem.features.shape == (6,)
    loop.finish_stages()
    assert loop.problem.features.shape == (12,)
    assert loop.done == 3
    np.testing.assert_array_equal(loop.state.particles, particles)
    expected = mean_features(loop.problem.features, particles)
    np.testing.assert_array_equal(loop.state.moments, expected)
