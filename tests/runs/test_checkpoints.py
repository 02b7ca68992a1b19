"""Checkpoints: an interrupted run ends where the uninterrupted one does, whatever interrupts it."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from methods.cases import SOLVERS, solvers
from problems.cases import logistic, squared
from runs.cases import assert_same, flip

import entroplay as ep
from entroplay.runs import container
from entroplay.runs.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from entroplay.runs.container import FileFormatError


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
    same = {"problem": squared(), "solver": SOLVERS["EFP"](), "particles": 32, "seed": 0}
    others = {
        "problem": [logistic(), squared(temperature=0.06)],
        "solver": [ep.EFP(0.2, ep.MALA(steps=3))],
        "particles": [33],
        "seed": [1],
    }
    for name, values in others.items():
        for value in values:
            with pytest.raises(ValueError, match="belongs to another run"):
                ep.solve(**(same | {name: value}), iterations=3, checkpoint=path)


def test_a_full_disk_does_not_stop_the_run(tmp_path, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container.os, "replace", full)
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


def test_a_checkpoint_comes_back(path):
    assert read_checkpoint(path) is None
    with jax.enable_x64(True):
        leaves = [
            jnp.arange(3.0),
            jnp.ones((2, 2), jnp.float32),
            np.array(0.1),
            jnp.asarray(7, jnp.int32),
            jnp.zeros((0, 4)),
        ]
        leaves += [jax.random.key_data(jax.random.key(1))]
    history = {"gap": np.array([np.nan, np.inf, 0.1]), "iteration": np.arange(3)}
    write_checkpoint(path, Checkpoint("abc", 3, leaves, history))
    checkpoint = read_checkpoint(path)
    assert (checkpoint.fingerprint, checkpoint.iteration) == ("abc", 3)
    assert_same(leaves, checkpoint.leaves)
    assert_same(history, checkpoint.history)
    assert checkpoint.iterations == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        checkpoint.iteration = 4


def test_a_checkpoint_holds_many_leaves_in_order(path):
    leaves = [np.full(2, float(i)) for i in range(23)]
    write_checkpoint(path, Checkpoint("", 0, leaves, {}))
    assert_same(leaves, read_checkpoint(path).leaves)


def test_a_bad_checkpoint_is_neither_written_nor_read(path):
    good = Checkpoint("f", 1, [np.ones(2)], {"gap": np.ones(1)})

    def write(**changes):
        write_checkpoint(path, dataclasses.replace(good, **changes))

    with pytest.raises(ValueError, match=r"leaves\.1\[1\] is nan"):
        write(leaves=[np.ones(1), np.array([1, np.nan])])
    with pytest.raises(ValueError, match=r"leaves\.0 is an array of key<"):
        write(leaves=[jax.random.key(0)])
    with pytest.raises(ValueError, match="'iteration' parameter of write_checkpoint"):
        write(iteration=-1)
    assert list(path.parent.iterdir()) == []
    write()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError):
            read_checkpoint(path)
    for bit in random.Random(1).sample(range(8 * len(whole)), 200):
        path.write_bytes(flip(whole, bit))
        with pytest.raises(FileFormatError):
            read_checkpoint(path)
    path.write_bytes(whole)
    with pytest.raises(FileFormatError, match="max_bytes"):
        read_checkpoint(path, max_bytes=10)
