"""Memory: Algorithm 2 against the naive implementation.

The bytes of all live arrays are counted after every iteration, hence the numbers are the same in
every run; `benchmarks/memory.py` measures whole processes.
"""

from __future__ import annotations

import gc
from typing import Any

import jax
import numpy as np

from ..methods.samplers import ULA
from ..methods.solvers import EFP, NaiveEFP, Solver
from ..problems.datasets.teacher import cosine_teacher
from ..problems.features import Neurons
from ..problems.losses import Squared
from ..problems.problem import FiniteSum
from ..verbs.plot import pyplot
from ..verbs.solve import solve
from .claims import Claim, Part

PARTICLES, ROWS = 2000, 50
"""Many particles, whose growth is to be seen; few rows, for speed."""
CLOUD = PARTICLES * 6 * 4
"""Bytes of one cloud in six dimensions, in float32."""


def peak(solver: Solver, iterations: int, seed: int) -> int:
    """Maximum number of bytes that a run adds to the live arrays, over all its iterations."""
    X, y = cosine_teacher(n=ROWS)
    problem = FiniteSum(Neurons(X, bias=True), Squared(y), temperature=0.01, l2=0.01)
    gc.collect()
    before, most = alive(), 0

    def count(report: Any) -> None:
        nonlocal most
        most = max(most, alive() - before)

    solve(problem, solver, particles=PARTICLES, iterations=iterations, seed=seed, callback=count)
    return most


def alive() -> int:
    """Bytes of all live JAX arrays."""
    return sum(array.nbytes for array in jax.live_arrays())


def reproduce(*, quick: bool, seed: int = 0) -> Part:
    """Runs of several lengths by both methods; a line through their peaks gives the growth."""
    lengths = (20, 80) if quick else (25, 50, 100, 200, 400)
    sampler = ULA(step_size=0.01, steps=1)
    methods = {"EFP": EFP(0.01, sampler), "NaiveEFP": NaiveEFP(0.01, sampler)}
    found = {
        name: np.array([peak(solver, t, seed) for t in lengths]) for name, solver in methods.items()
    }
    # Rounded, because a slope of zero comes out as rounding error; adding 0.0 turns -0.0 into 0.0.
    slopes = {
        name: round(float(np.polyfit(lengths, values, 1)[0]) / CLOUD, 6) + 0.0
        for name, values in found.items()
    }
    return Part(
        name="memory",
        title="Memory over iterations",
        paper="The naive implementation keeps all particles of the past, Algorithm 2 none: its "
        "memory does not depend on the iterations.",
        found=f"Per iteration Algorithm 2 adds {slopes['EFP']:.2f} clouds of {PARTICLES} "
        f"particles, the naive implementation {slopes['NaiveEFP']:.2f}.",
        figures={"memory": draw(lengths, found, slopes)},
        captions={
            "memory": "Maximum number of bytes of live arrays during a run, against its number of "
            "iterations."
        },
        claims=(
            Claim(
                "Section 3.2",
                "memory of Algorithm 2 does not grow: less than a hundredth of a cloud per "
                "iteration",
                f"{PARTICLES} particles",
                abs(slopes["EFP"]),
                0.01,
            ),
            Claim(
                "Section 3.2",
                "memory of the naive implementation grows by a cloud per iteration at least",
                f"{PARTICLES} particles",
                1.0,
                slopes["NaiveEFP"],
            ),
        ),
        numbers={"iterations": lengths, "bytes": found, "clouds per iteration": slopes},
    )


def draw(lengths: tuple[int, ...], found: dict[str, np.ndarray], slopes: dict[str, float]):
    """Memory against the length of the run, one line per method."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(6, 3.8), layout="constrained")
    for index, (method, values) in enumerate(found.items()):
        label = f"{method}: {slopes[method]:.2f} clouds per iteration"
        panel.plot(lengths, values / 2**20, "o-", color=f"C{index}", label=label)
    panel.set(xlabel="iterations", ylabel="arrays alive, MiB", ylim=(0, None))
    panel.grid(alpha=0.3)
    panel.legend()
    return figure
