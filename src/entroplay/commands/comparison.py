"""The work behind `entroplay demo`: solve one problem by several methods, and certify each."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from ..methods.samplers import ULA
from ..methods.solvers import EFP, MFLD, NewtonEFP, Solver
from ..problems.datasets.teacher import paper_network
from ..runs.solution import Solution
from ..verbs.certificate import Certificate
from ..verbs.certify import certify
from ..verbs.plot import certified
from ..verbs.solve import solve
from .options import Say

RECENT = 10
"""Number of last iterations over which the estimated gap is averaged."""
TITLE = "The paper's two-layer network: distance to the global optimum against gradient passes"
EXPLANATION = """
The certified bound says how far above the global optimum the answer can be, judged by independent
clouds. The own gap is the run's own estimate, which is right only if its chains have mixed.
(?) marks bounds that the clouds could not verify."""


def compare(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Solve, certify, and leave a table, a picture and a summary."""
    problem = paper_network()
    options.out.mkdir(parents=True, exist_ok=True)
    say(f"{problem}, {options.particles} particles, seed {options.seed}\n")
    say(
        f"{'method':<20}{'iterations':>11}{'pulls':>8}{'seconds':>9}{'loss':>11}{'own gap':>11}"
        f"{'certified bound':>17}"
    )
    runs: dict[str, Solution] = {}
    certificates: dict[str, list[tuple[int, Certificate]]] = {}
    status = "done"
    try:
        for name, (solver, stops) in _methods(options.iterations).items():
            # The same seed gives the same run: a shorter one is the beginning of a longer one.
            for iterations in stops:
                runs[name] = solve(
                    problem,
                    solver,
                    particles=options.particles,
                    iterations=iterations,
                    seed=options.seed,
                )
                if runs[name].status == "interrupted":
                    raise KeyboardInterrupt
                pulls = int(runs[name].history["pulls"][-1])
                certificate = certify(runs[name], seed=options.seed)
                certificates.setdefault(name, []).append((pulls, certificate))
            say(_line(name, _row(runs[name], certificates[name][-1][1])))
    except KeyboardInterrupt:
        status = "interrupted"
        say("interrupted; what was done is kept")
    picture, file = options.out / "convergence.png", options.out / "summary.json"
    figure = certified(runs, certificates)
    figure.suptitle(TITLE)
    figure.savefig(picture, dpi=120)
    summary = {
        "problem": repr(problem),
        "seed": options.seed,
        "particles": options.particles,
        "status": status,
        "methods": {
            name: _row(solution, *[c for _, c in certificates.get(name, [])][-1:])
            for name, solution in runs.items()
        },
        "files": [str(picture), str(file)],
    }
    file.write_text(json.dumps(summary, indent=2) + "\n")
    say(EXPLANATION)
    say("Wrote " + ", ".join(summary["files"]))
    return summary


def _methods(full: int) -> dict[str, tuple[Solver, list[int]]]:
    """The solvers that the demo compares, each with the iterations at which it is certified."""
    return {
        "Algorithm 2 (paper)": (
            EFP(rate=0.01, sampler=ULA(step_size=0.01, steps=10)),
            _stops(full, 50, times=4),
        ),
        "EFP, rate auto": (EFP(rate="auto"), [max(1, full // 3)]),
        "MFLD": (MFLD(step_size=0.1), [5 * full]),
        "NewtonEFP": (NewtonEFP(), _stops(max(1, full // 6), 5, times=4)),
    }


def _stops(last: int, first: int, *, times: int) -> list[int]:
    """Iterations from about `first` to `last`, each of them `times` the one before."""
    stops = [last]
    while stops[0] // times >= first:
        stops.insert(0, stops[0] // times)
    return stops


def _row(solution: Solution, certificate: Certificate | None = None) -> dict[str, Any]:
    """What the summary says about one run. An interrupted run may have no history and no bound."""
    history = solution.history
    done = len(history["iteration"]) > 0
    recent = history["gap"][-RECENT:]
    known = done and not np.isnan(recent).any()
    return {
        "solver": repr(solution.solver),
        "status": str(solution.status),
        "iterations": int(history["iteration"][-1]) if done else 0,
        "pulls": int(history["pulls"][-1]) if done else 0,
        "passes": int(history["passes"][-1]) if done else 0,
        "seconds": float(history["seconds"][-1]) if done else 0.0,
        "loss": float(history["loss_moments"][-1]) if done else None,
        "gap": float(recent.mean()) if known else None,
        "bound": None if certificate is None else certificate.bound,
        "mixed": None if certificate is None else certificate.mixed,
    }


def _line(name: str, row: dict[str, Any]) -> str:
    """A line of the printed table."""
    own = "-" if row["gap"] is None else f"{row['gap']:.1e}"
    bound = f"{row['bound']:.1e}" + ("" if row["mixed"] else " (?)")
    return (
        f"{name:<20}{row['iterations']:>11}{row['pulls']:>8}{row['seconds']:>9.2f}"
        f"{row['loss']:>11.6f}{own:>11}{bound:>17}"
    )
