"""Peak resident memory of EFP and of NaiveEFP against the number of iterations, each in a process of its own.

Run: python benchmarks/memory.py. EFP's stays, NaiveEFP's grows linearly.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
from harness import report

RUN = "--one"


NAIVE_PARTICLES, NAIVE_ROWS = 10_000, 4  # many particles to see them in memory, few rows to end soon


def one(method: str, iterations: int) -> None:
    """Run one method and print the process's peak resident memory in MiB."""
    import entroplay as ep

    sampler = ep.ULA(step_size=0.01, steps=1)
    if method == "EFP":
        ep.solve(ep.teacher.paper_network(), ep.EFP(0.01, sampler), particles=1000, iterations=iterations)
    else:
        X, y = ep.teacher.cosine_teacher(n=NAIVE_ROWS)
        problem = ep.FiniteSum(ep.Neurons(X, bias=True), ep.Squared(y), temperature=0.01, l2=0.01)
        ep.solve(problem, ep.NaiveEFP(0.01, sampler), particles=NAIVE_PARTICLES, iterations=iterations)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def peak(method: str, iterations: int) -> float:
    command = [sys.executable, __file__, RUN, method, str(iterations)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    efp = {t: min(peak("EFP", t) for _ in range(4)) for t in (200, 4000)}
    naive = {t: peak("NaiveEFP", t) for t in (50, 150, 250, 350)}
    for name, table in (("EFP", efp), ("NaiveEFP", naive)):
        for t, mebibytes in table.items():
            print(f"{name:<10}{t:>6} iterations {mebibytes:9.1f} MiB")
    growth = efp[4000] / efp[200] - 1
    times, sizes = np.array(list(naive)), np.array(list(naive.values()))
    slope, intercept = np.polyfit(times, sizes, 1)
    fit_error = np.abs(slope * times + intercept - sizes).max() / (sizes[-1] - sizes[0])
    stored = NAIVE_PARTICLES * 6 * 4 / 2**20  # MiB that one cloud in 6 dimensions takes
    checks = {
        f"EFP at 4000 iterations within 3 % of 200 ({100 * growth:+.2f} %)": abs(growth) <= 0.03,
        f"NaiveEFP grows by at least one cloud per iteration ({slope / stored:.2f} clouds)": slope >= stored,
        f"NaiveEFP's growth is linear (largest deviation {100 * fit_error:.0f} % of the growth)": fit_error <= 0.1,
    }
    report("memory", {"EFP MiB": efp, "NaiveEFP MiB": naive, "NaiveEFP MiB per iteration": slope}, checks)


if __name__ == "__main__":
    if RUN in sys.argv:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
