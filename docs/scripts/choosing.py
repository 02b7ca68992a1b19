"""All solvers on three problems: certified gap, pulls, passes, seconds and memory.

Each run has a separate process, because memory is that of the process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile

import numpy as np
import tables

import entroplay as ep

PULLS = 1000
"""Gradient passes over all particles that each solver may make."""


def regression() -> ep.FiniteSum:
    """The paper's network without a bias."""
    X, y = ep.teacher.cosine_teacher()
    return ep.FiniteSum(ep.Neurons(X), ep.Squared(y), temperature=0.01, l2=0.01)


def classification() -> ep.FiniteSum:
    """Two classes, 30 standardised inputs."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return ep.FiniteSum(
        ep.Neurons(X, bias=True, scale=5.0), ep.Logistic(2 * y - 1), temperature=0.01, l2=0.01
    )


def density() -> ep.FiniteSum:
    """The length of the petals of three species."""
    from sklearn.datasets import load_iris

    x = load_iris().data[:, 2]
    x = (x - x.mean()) / x.std()
    return ep.FiniteSum(ep.GaussianKernel(x, bandwidth=0.2), ep.NegLog(), temperature=0.1, l2=0.05)


PROBLEMS = {
    "regression, d = 5 (cosine teacher)": regression,
    "classification, d = 31 (breast cancer)": classification,
    "density, d = 1 (iris petals)": density,
}
SOLVERS = {
    "NewtonEFP": lambda: ep.NewtonEFP(),
    "EFP": lambda: ep.EFP(),
    "EFP, as in the paper": lambda: ep.EFP(rate=0.01, sampler=ep.ULA(step_size=0.01, steps=10)),
    "NaiveEFP": lambda: ep.NaiveEFP(rate=0.01, sampler=ep.ULA(step_size=0.01, steps=10)),
    "MFLD": lambda: ep.MFLD(step_size=0.01),
    "PDA": lambda: ep.PDA(),
    "PSDCA": lambda: ep.PSDCA(),
}


def one(problem_name: str, solver_name: str, *, only_compile: bool) -> dict[str, object]:
    """Solve twice, the first time to compile; measure the second run, then certify it."""
    problem, solver = PROBLEMS[problem_name](), SOLVERS[solver_name]()
    try:
        probe = ep.solve(problem, solver, iterations=1)
    except ValueError as error:
        return {"refused": str(error)}
    iterations = max(1, round(PULLS / float(probe.history["pulls"][-1])))
    ep.solve(problem, solver, iterations=iterations)
    if only_compile:
        return {}
    solution = ep.solve(problem, solver, iterations=iterations)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    certificate = ep.certify(solution)
    work = {name: float(solution.history[name][-1]) for name in ("pulls", "passes", "seconds")}
    return work | {
        "memory": memory,
        "gap": certificate.gap_debiased,
        "bound": certificate.bound,
        "mixed": certificate.mixed,
    }


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        for problem in PROBLEMS:
            rows.append([f"**{problem}**", *[""] * 6])
            for solver in SOLVERS:
                # Compiling needs memory too: a first process fills the cache, a second measures.
                for turn in ("compile", "measure"):
                    command = [sys.executable, __file__, problem, solver, turn]
                    done = subprocess.run(
                        command, capture_output=True, text=True, check=True, env=environment
                    )
                result = json.loads(done.stdout)
                rows.append([solver, *_cells(result)])
                print(rows[-1], flush=True)
    header = [
        "solver",
        "certified bound",
        "gap without noise bias",
        "pulls",
        "passes",
        "seconds",
        "MiB",
    ]
    note = (
        f"1000 particles, about {PULLS} gradient passes each, seed 0; MiB is the process's peak "
        "before the certificate."
    )
    tables.write("choosing", header, rows, note)


def _cells(result: dict[str, object]) -> list[str]:
    """One result as the cells of its table row."""
    if "refused" in result:
        return ["refused", *[""] * 5]
    bound = f"{result['bound']:.1e}" + ("" if result["mixed"] else " (not verified)")
    gap = f"{result['gap']:.1e}" if np.isfinite(result["gap"]) else "none"
    return [
        bound,
        gap,
        f"{result['pulls']:.0f}",
        f"{result['passes']:.0f}",
        f"{result['seconds']:.2f}",
        f"{result['memory']:.0f}",
    ]


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(one(sys.argv[1], sys.argv[2], only_compile=sys.argv[3] == "compile")))
    else:
        main()
