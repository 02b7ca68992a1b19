"""Results to be stored, made without a run, and what their files are compared with."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from methods.cases import SOLVERS

import entroplay as ep
from entroplay.runs.solution import Reason

MARKER = 0.123456789
"""A training datum that no computation leaves behind by chance."""


def halving(t):
    return 0.4 * 0.5**t


def altered(record, **fields):
    """A copy with other values in some fields, whatever the constructor would say."""
    copy = object.__new__(type(record))
    for name, value in {**vars(record), **fields}.items():
        object.__setattr__(copy, name, value)
    return copy


def solution_of(problem, solver=None, m=5):
    """A Solution with every field filled, without a run: fast, and independent of the solvers."""
    with jax.enable_x64(problem.dtype == jnp.float64):
        rng = np.random.default_rng(0)
        particles = jnp.asarray(rng.normal(size=(m, problem.dim)), problem.dtype)
        moments = problem.features.average(particles)
        dual = problem.slope(moments)
        history = {
            "iteration": np.arange(1, 4),
            "gap": np.array([np.nan, 0.1, 1 / 3]),
            "seconds": np.arange(3.0),
        }
        return ep.Solution(
            problem=problem,
            solver=solver or ep.EFP(0.1),
            particles=particles,
            moments=moments,
            dual=dual,
            weights=jnp.asarray(rng.normal(size=m), problem.dtype),
            history=history,
            path=jnp.stack([0 * dual, dual]),
            status=ep.Status(Reason.ITERATIONS, "all 3 iterations done, naïvely “quoted”."),
            seed=7,
        )


def assert_same(a, b, place="solution"):
    """Equal to the last bit, in value, type, precision and kind of array."""
    assert type(a) is type(b), place
    if isinstance(a, np.ndarray | jax.Array):
        assert a.dtype == b.dtype, place
        assert a.shape == b.shape, place
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), place
    elif isinstance(a, dict):
        assert list(a) == list(b), place
        for key in a:
            assert_same(a[key], b[key], f"{place}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), place
        for i, pair in enumerate(zip(a, b, strict=True)):
            assert_same(*pair, f"{place}.{i}")
    elif dataclasses.is_dataclass(a):
        assert_same(dict(sorted(vars(a).items())), dict(sorted(vars(b).items())), place)
    else:
        assert a == b, place


def flip(raw, bit):
    """The bytes with one bit changed."""
    raw = bytearray(raw)
    raw[bit // 8] ^= 1 << bit % 8
    return bytes(raw)


STORED_SOLVERS = {
    **{name: make() for name, make in SOLVERS.items()},
    "NewtonEFP by default": ep.NewtonEFP(),
    "EFP with ULA": ep.EFP(0.1, ep.ULA(0.003, steps=3, fresh=True)),
    "NaiveEFP with MALA": ep.NaiveEFP(0.25, ep.MALA(steps=4, step_size=0.1)),
    "MFLD with a third": ep.MFLD(1 / 3),
    "PDA by default": ep.PDA(),
    "PSDCA with a half range": ep.PSDCA(batch=3, half_range=2.5),
}
"""All solvers, and some with unusual options."""
