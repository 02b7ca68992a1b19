"""Checkpoints: an interrupted run ends where the uninterrupted one does, whatever interrupts it."""

import random
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from methods.cases import SOLVERS, solvers
from problems.cases import logistic, squared

import entroplay as ep
from entroplay.runs import files as storage


@pytest.mark.parametrize("name", solvers("EFP", "NewtonEFP", "PSDCA"))
def test_a_resumed_run_gives_the_uninterrupted_runs_numbers(name, tmp_path):
    problem, path = squared(d=2), tmp_path / "run.ckpt"

    def solve(**arguments):
        return ep.solve(problem, SOLVERS[name](), particles=32, iterations=30, **arguments)

    whole = solve()

    def interrupt(report):
        if report.iteration == 11:
            raise KeyboardInterrupt

    stopped = solve(checkpoint=path, callback=interrupt)
    assert stopped.status == "interrupted"
    resumed = solve(checkpoint=path)
    for field in ("particles", "moments", "path"):
        np.testing.assert_array_equal(getattr(resumed, field), getattr(whole, field))
    np.testing.assert_array_equal(resumed.history["loss_moments"], whole.history["loss_moments"])
    assert len(resumed.history["iteration"]) == 30
    finished = solve(checkpoint=path)  # nothing left to do
    np.testing.assert_array_equal(finished.particles, whole.particles)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    ep.solve(squared(), SOLVERS["EFP"](), particles=32, iterations=3, checkpoint=path)
    others = [
        lambda: ep.solve(logistic(), SOLVERS["EFP"](), particles=32, iterations=3, checkpoint=path),
        lambda: ep.solve(
            squared(temperature=0.06), SOLVERS["EFP"](), particles=32, iterations=3, checkpoint=path
        ),
        lambda: ep.solve(
            squared(), ep.EFP(0.2, ep.MALA(steps=3)), particles=32, iterations=3, checkpoint=path
        ),
        lambda: ep.solve(squared(), SOLVERS["EFP"](), particles=33, iterations=3, checkpoint=path),
        lambda: ep.solve(
            squared(), SOLVERS["EFP"](), particles=32, iterations=3, seed=1, checkpoint=path
        ),
    ]
    for other in others:
        with pytest.raises(ValueError, match="belongs to another run"):
            other()


def test_a_full_disk_does_not_stop_the_run(tmp_path, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "replace", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        solution = ep.solve(
            squared(),
            SOLVERS["EFP"](),
            particles=32,
            iterations=3,
            checkpoint=tmp_path / "run.ckpt",
        )
    assert solution.status == "iterations"
    assert list(tmp_path.iterdir()) == []


def killed_runs(tmp_path, kills, seed):
    """Start a run that checkpoints every 0.2 s, kill it at a random moment, start it again ... then let it end."""
    script = textwrap.dedent("""
        import sys
        import numpy as np, entroplay as ep
        problem = ep.teacher.paper_network()
        checkpoint = sys.argv[1] if len(sys.argv) > 1 else None
        solver, keep = ep.EFP(0.01, ep.ULA()), {'checkpoint': checkpoint, 'checkpoint_seconds': 0.2}
        solution = ep.solve(problem, solver, particles=200, iterations=%d, **keep)
        print(repr(np.asarray(solution.moments).tobytes().hex()))
    """)
    iterations = 400 * kills
    path = tmp_path / "run.ckpt"
    whole = subprocess.run(
        [sys.executable, "-c", script % iterations], capture_output=True, text=True, check=True
    )
    rng = random.Random(seed)
    reached = []
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", script % iterations, str(path)], stdout=subprocess.DEVNULL
        )
        deadline = time.time() + 60
        while not path.exists() and time.time() < deadline:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 6))
        process.kill()
        process.wait()
        reached.append(storage.read_checkpoint(path).iteration)
    assert (np.diff(reached) >= 0).all()
    end = subprocess.run(
        [sys.executable, "-c", script % iterations, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert end.stdout == whole.stdout
    assert reached[-1] > 0


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_moments(tmp_path):
    killed_runs(tmp_path, kills=1, seed=0)


@pytest.mark.slow
def test_twenty_five_kills_at_random_moments(tmp_path):
    killed_runs(tmp_path, kills=25, seed=1)
