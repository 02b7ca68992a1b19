"""Potential and pull of neurons: the C++ kernel against pure JAX, in one run.

Run: python benchmarks/neurons.py. Both are timed in turns, inside a compiled loop like that of a
sampler.
"""

from __future__ import annotations

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
from harness import report

import entroplay as ep
from entroplay.base import native
from entroplay.problems.features.base import FeatureMap

CALLS, TURNS = 20, 7
"""Calls in one compiled loop, and measurements of which the median is taken."""
SHAPES = {
    "diabetes": (384, 10, 1, 512),
    "breast_cancer": (512, 30, 1, 512),
    "wine": (160, 13, 3, 512),
    "digits": (1536, 64, 10, 1280),
    "many particles": (384, 10, 1, 8192),
}
"""Rows, inputs, outputs and particles."""


def milliseconds(both, features, particles, vector):
    """A function that measures the milliseconds of one call."""

    # Each call starts where the one before led: the compiler cannot merge them.
    @jax.jit
    def many(cloud):
        return jax.lax.fori_loop(
            0, CALLS, lambda _, c: c - 1e-6 * both(features, c, vector)[1], cloud
        )

    jax.block_until_ready(many(particles))

    def once():
        began = time.perf_counter()
        jax.block_until_ready(many(particles))
        return 1e3 * (time.perf_counter() - began) / CALLS

    return once


def main() -> None:
    if (reason := native.missing()) is not None:
        raise SystemExit(f"There are no kernels to measure: {reason}.")
    results, checks = {}, {}
    rng = np.random.default_rng(0)
    for activation, (shape, (n, p, k, m)) in itertools.product(("relu", "tanh"), SHAPES.items()):
        name = f"{activation}, {shape}"
        X = rng.normal(size=(n, p)) / np.sqrt(p)
        features = ep.Neurons(X, activation, bias=True, output_weight=True, outputs=k, scale=10.0)
        particles = jnp.asarray(rng.normal(size=(m, features.dim)), jnp.float32)
        vector = jnp.asarray(rng.normal(size=features.shape) / n, jnp.float32)
        kernel = milliseconds(ep.Neurons.potential_and_pull, features, particles, vector)
        plain = milliseconds(FeatureMap.potential_and_pull, features, particles, vector)
        turns = np.array([(kernel(), plain()) for _ in range(TURNS)])
        ours, theirs = np.median(turns, axis=0)
        results[name] = {"kernel": ours, "JAX": theirs, "ratio": theirs / ours}
        ratio = f"{theirs / ours:.1f} times"
        times = f"kernel {ours:.3f} ms, JAX {theirs:.3f} ms, {ratio}"
        print(f"{name:<22} n={n} p={p} k={k} m={m}: {times}", flush=True)
        checks[f"{name}: the kernel is not slower ({ratio} as fast)"] = ours <= theirs
    report("neurons", results, checks)


if __name__ == "__main__":
    main()
