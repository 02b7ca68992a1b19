"""Processes killed at random moments: files stay whole, and runs continue from them."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import jax.numpy as jnp
import numpy as np
import pytest
from children import child
from runs.cases import altered, assert_same

import entroplay as ep
from entroplay.runs.checkpoints import read_checkpoint

SAVING = textwrap.dedent("""
    import os, signal, sys
    import entroplay  # before the forks, so that it is imported once
    from entroplay.runs.files import load, save
    folder = sys.argv[1]
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(100)  # the end, should nobody kill it
            pair = load(folder + "/a"), load(folder + "/b")
            print(os.getpid(), flush=True)
            while True:
                for solution in pair:
                    save(solution, folder + "/target")
        os.waitpid(child, 0)
        print("dead", flush=True)
""")
"""For every line of input, fork a process that saves two solutions in turn until it is killed."""


@pytest.mark.parametrize("kills", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_a_process_killed_while_saving_leaves_a_whole_file(tmp_path, small, kills):
    pair = [
        altered(small, particles=jnp.full((m, 1), m, jnp.float32), weights=jnp.ones(m))
        for m in (200_000, 300_000)
    ]
    for name, solution in zip("ab", pair, strict=True):
        ep.save(solution, tmp_path / name)
    target, rng, seen = tmp_path / "target", random.Random(0), set()
    ep.save(small, target)
    expected = {solution.particles.shape[0]: solution for solution in (small, *pair)}
    arguments = "-W", "ignore", "-c", SAVING, str(tmp_path)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    saver = None
    with child(*arguments, stdin=subprocess.PIPE, env=environment) as parent:
        try:
            for kill in range(kills):
                print("go", file=parent.stdin, flush=True)
                saver = int(parent.stdout.readline())
                time.sleep(rng.uniform(0, 0.08))
                deadline = time.monotonic() + 30
                while kill % 2 and not list(tmp_path.glob(f".entroplay-{saver}-*")):
                    # Every other one is killed in the middle of a write.
                    assert time.monotonic() < deadline, "no write began in half a minute"
                os.kill(saver, signal.SIGKILL)
                assert parent.stdout.readline() == "dead\n"
                saver = None
                loaded = ep.load(target)
                seen.add(loaded.particles.shape[0])
                assert_same(loaded, expected[loaded.particles.shape[0]])
        finally:
            if saver is not None:
                os.kill(saver, signal.SIGKILL)
    assert seen & {200_000, 300_000}, (
        "no save was ever completed: the kills came too early to prove anything"
    )
    unfinished = set(tmp_path.glob(".entroplay-*.tmp"))
    assert unfinished or kills < 25, "no kill fell into a write: nothing is proved"
    assert set(tmp_path.iterdir()) - unfinished == {tmp_path / "a", tmp_path / "b", target}


RUNNING = textwrap.dedent("""
    import sys
    import numpy as np, entroplay as ep
    problem = ep.teacher.paper_network()
    iterations, checkpoint = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    solver, keep = ep.EFP(0.01, ep.ULA()), {'checkpoint': checkpoint, 'checkpoint_seconds': 0.2}
    solution = ep.solve(problem, solver, particles=200, iterations=iterations, **keep)
    print(repr(np.asarray(solution.moments).tobytes().hex()))
""")
"""A run that saves a checkpoint every 0.2 s if it is given a file, and prints its moments."""


def completed_run(*arguments):
    """What the run prints when nobody kills it."""
    command = [sys.executable, "-c", RUNNING, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return result.stdout


def killed_runs(tmp_path, kills, seed):
    """Start a run, kill it at a random moment, start it again, ... and finally let it end."""
    iterations, path = str(400 * kills), tmp_path / "run.ckpt"
    whole = completed_run(iterations)
    rng = random.Random(seed)
    reached = []
    for _ in range(kills):
        with child("-c", RUNNING, iterations, str(path)) as process:
            deadline = time.monotonic() + 60
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(rng.uniform(0, 6))
            process.kill()
            process.wait()
        reached.append(read_checkpoint(path).iteration)
    assert (np.diff(reached) >= 0).all()
    assert completed_run(iterations, str(path)) == whole
    assert reached[-1] > 0


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_moments(tmp_path):
    killed_runs(tmp_path, kills=1, seed=0)


@pytest.mark.slow
def test_twenty_five_kills_at_random_moments(tmp_path):
    killed_runs(tmp_path, kills=25, seed=1)
