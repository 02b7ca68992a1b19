"""Peak resident memory of EFP and of NaiveEFP against the number of iterations.

Run: python benchmarks/memory.py. EFP's is constant, NaiveEFP's grows linearly. Each run has a
separate process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

import numpy as np
from harness import report

RUN = "--one"
"""Argument with which this script starts itself for a single run."""
NAIVE_PARTICLES, NAIVE_ROWS = 10_000, 4
"""Many particles, which memory shows; few rows, for speed."""


def one(method: str, iterations: int) -> None:
    """Run one method and print the process's peak resident memory in MiB."""
    import entroplay as ep

    sampler = ep.ULA(step_size=0.01, steps=1)
    if method == "EFP":
        ep.solve(
            ep.teacher.paper_network(), ep.EFP(0.01, sampler), particles=1000, iterations=iterations
        )
    else:
        X, y = ep.teacher.cosine_teacher(n=NAIVE_ROWS)
        problem = ep.FiniteSum(ep.Neurons(X, bias=True), ep.Squared(y), temperature=0.01, l2=0.01)
        ep.solve(
            problem, ep.NaiveEFP(0.01, sampler), particles=NAIVE_PARTICLES, iterations=iterations
        )
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def peak(method: str, iterations: int, cache: str) -> float:
    """Peak memory, in MiB, of a process that finds its programs in the compilation cache.

    The memory of the compiler itself varies by tens of MiB.
    """
    command = [sys.executable, __file__, RUN, method, str(iterations)]
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return float(
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    )


def least_peaks(method: str, lengths: tuple[int, ...], rounds: int) -> dict[int, float]:
    """The smallest of several peaks for each number of iterations, measured in turns.

    A first round, which compiles, does not count.
    """
    with tempfile.TemporaryDirectory() as cache:
        table = [[peak(method, t, cache) for t in lengths] for _ in range(rounds + 1)]
    return {t: min(row[i] for row in table[1:]) for i, t in enumerate(lengths)}


def main() -> None:
    efp = least_peaks("EFP", (200, 4000), rounds=4)
    naive = least_peaks("NaiveEFP", (150, 250, 350), rounds=1)
    for name, table in (("EFP", efp), ("NaiveEFP", naive)):
        for t, mebibytes in table.items():
            print(f"{name:<10}{t:>6} iterations {mebibytes:9.1f} MiB")
    growth = efp[4000] / efp[200] - 1
    times, sizes = np.array(list(naive)), np.array(list(naive.values()))
    slope, intercept = np.polyfit(times, sizes, 1)
    fit_error = np.abs(slope * times + intercept - sizes).max() / (sizes[-1] - sizes[0])
    stored = NAIVE_PARTICLES * 6 * 4 / 2**20  # MiB of one cloud in 6 dimensions, in float32
    constant = f"EFP at 4000 iterations within 3 % of 200 ({100 * growth:+.2f} %)"
    clouds = f"NaiveEFP grows by at least one cloud per iteration ({slope / stored:.2f} clouds)"
    deviation = f"largest deviation {100 * fit_error:.0f} % of the growth"
    checks = {
        constant: abs(growth) <= 0.03,
        clouds: slope >= stored,
        f"NaiveEFP's growth is linear ({deviation})": fit_error <= 0.1,
    }
    results = {"EFP MiB": efp, "NaiveEFP MiB": naive, "NaiveEFP MiB per iteration": slope}
    report("memory", results, checks)


if __name__ == "__main__":
    if RUN in sys.argv:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
