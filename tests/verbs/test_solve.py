"""The loop: stopping, interruption, divergence, warm starts, progress, what a Solution says of itself."""

import builtins
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import linear, negative_log, squared

import entroplay as ep


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

    ep.solve(squared(), ep.EFP(0.1), particles=4, iterations=2, callback=callback)


def test_ctrl_c_returns_the_solution_so_far():
    """An interruption inside the callback of iteration 5: five iterations are kept, as if they had been all."""
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
        problem = ep.FiniteSum(ep.Neurons(np.ones((50, 2))), ep.Squared(np.ones(50)), temperature=0.1, l2=0.1)
        ep.solve(problem, ep.MFLD(0.01), particles=100, iterations=5)
        threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        solution = ep.solve(problem, ep.MFLD(0.01), particles=100, iterations=10**8)
        done = len(solution.history["iteration"])
        assert solution.status == "interrupted", solution.status
        assert 0 < done < 10**8 and np.isfinite(solution.particles).all()
        print("kept", done)
    """)
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("kept")


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


def test_a_warm_start_goes_on_where_the_last_run_stopped():
    problem = squared()
    first = ep.solve(problem, ep.EFP(0.1), particles=64, iterations=60)
    second = ep.solve(problem, ep.EFP(0.1), particles=64, iterations=1, start=first, seed=1)
    assert second.history["loss_moments"][0] == pytest.approx(
        float(problem.empirical_loss(first.moments)), rel=1e-6
    )
    # Other data: the moments are recomputed from the cloud.
    other = ep.FiniteSum(
        ep.Neurons(np.linspace(0, 1, 5)[:, None]),
        ep.Squared(np.zeros(5)),
        temperature=0.05,
        l2=0.05,
    )
    third = ep.solve(other, ep.EFP(0.1), particles=64, iterations=1, start=first)
    expected = float(other.empirical_loss(other.features.average(first.particles)))
    assert third.history["loss_moments"][0] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"'start' parameter of solve must be .*\(32, 1\)"):
        ep.solve(problem, particles=32, iterations=1, start=first)


def test_a_schedule_that_leaves_its_range_is_refused_before_any_work():
    with pytest.raises(
        ValueError, match=r"'rate' parameter of EFP must be .*1\.1.* at iteration 6"
    ):
        ep.solve(
            squared(), ep.EFP(lambda t: 0.5 + 0.1 * t.astype(float)), particles=4, iterations=20
        )
    with pytest.raises(ValueError, match=r"'step_size' parameter of ULA .* at iteration 5"):
        ep.solve(
            squared(),
            ep.EFP(0.1, ep.ULA(lambda t: 0.5 - 0.1 * t.astype(float))),
            particles=4,
            iterations=20,
        )


def test_progress_with_tqdm_and_without(capsys, monkeypatch):
    ep.solve(squared(), ep.EFP(0.1), particles=8, iterations=20, progress=True)
    assert "20/20" in capsys.readouterr().err
    real_import = builtins.__import__

    def no_tqdm(name, *args, **kwargs):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_tqdm)
    ep.solve(squared(), ep.EFP(0.1), particles=8, iterations=20, progress=True)
    assert "iteration 20 of 20" in capsys.readouterr().out


def test_a_solution_prints_what_one_wants_to_know():
    solution = ep.solve(squared(), ep.EFP(0.2), particles=128, iterations=30)
    text = repr(solution)
    for part in ("FiniteSum(Neurons, Squared, n=12, d=1", "EFP(rate=0.2", "128 particles", "seed 0", "all 30 iterations",
                 "gap", "30 iterations, 330 pulls, 360 passes"):  # fmt: skip
        assert part in text
    assert "not bounded" not in text
    relu = ep.FiniteSum(
        ep.Neurons(np.ones((3, 1)), activation="relu"),
        ep.Squared(np.ones(3)),
        temperature=0.1,
        l2=0.1,
    )
    assert "not known to be bounded" in repr(ep.solve(relu, ep.EFP(0.1), particles=8, iterations=2))
    assert "particles' own" in repr(ep.solve(squared(), ep.MFLD(), particles=8, iterations=2))


def test_prediction_is_the_weighted_mean_of_the_features():
    problem = squared()
    solution = ep.solve(problem, ep.EFP(0.2), particles=32, iterations=10)
    new = np.linspace(-1, 1, 7)[:, None]
    expected = np.tanh(np.asarray(solution.particles) @ new.T).T @ np.asarray(solution.weights)
    np.testing.assert_allclose(solution.predict(new), expected, rtol=1e-5, atol=1e-6)
    assert float(solution.weights.sum()) == pytest.approx(1, rel=1e-5)
    with pytest.raises(ValueError, match="1 columns, as in training"):
        solution.predict(np.ones((3, 2)))


def test_double_precision_is_kept_outside_the_context():
    with jax.enable_x64(True):
        problem = squared()
    solution = ep.solve(problem, ep.EFP(0.1), particles=8, iterations=3)
    assert solution.particles.dtype == solution.moments.dtype == np.float64
    assert solution.predict(np.zeros((2, 1))).dtype == np.float64


def test_sample_weights_count_as_repetitions():
    """Integer weights and repeated rows are the same problem: the same particles for the same seed."""
    with jax.enable_x64(True):
        x, y, counts = np.array([-1.0, 0.3, 1.2]), np.array([0.2, -0.4, 0.9]), [1, 3, 2]
        weighted = ep.FiniteSum(
            ep.Neurons(x[:, None]), ep.Squared(y), temperature=0.1, l2=0.1, weights=counts
        )
        repeated = ep.FiniteSum(
            ep.Neurons(np.repeat(x, counts)[:, None]),
            ep.Squared(np.repeat(y, counts)),
            temperature=0.1,
            l2=0.1,
        )
        a, b = (
            ep.solve(p, ep.EFP(0.2), particles=20, iterations=20).particles
            for p in (weighted, repeated)
        )
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_signals_are_left_as_they_were():
    before = signal.getsignal(signal.SIGINT)
    ep.solve(negative_log(), ep.EFP(0.1), particles=8, iterations=2)
    assert signal.getsignal(signal.SIGINT) is before
