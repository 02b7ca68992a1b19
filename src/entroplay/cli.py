"""The command line: `entroplay demo`. Exit codes: 0 done, 1 failure, 2 usage, 130 interrupted."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .samplers import ULA
from .solution import Solution
from .solve import solve
from .solvers import EFP, MFLD, Solver
from .teacher import paper_network

Say = Callable[..., None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)

    def say(*words: object) -> None:
        if not options.quiet:
            print(*words, file=sys.stderr if options.json else sys.stdout, flush=True)

    try:
        summary = options.run(options, say)
    except KeyboardInterrupt:
        print("entroplay: interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError, ArithmeticError) as error:
        print(f"entroplay {options.command}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(summary))
    return 130 if summary.get("status") == "interrupted" else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="entroplay", description="Optimisation over probability measures.")
    parser.add_argument("--version", action="version", version=f"entroplay {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="train the paper's two-layer network by several methods",
        description="Train the paper's two-layer network (n=500, d=5, cosine teacher, tanh student with bias, "
        "temperature = l2 = 0.01) and write a table, a picture and a summary.",
    )
    demo.add_argument(
        "--out", type=Path, default=Path("demo-out"), metavar="DIR", help="folder for the files (default: %(default)s)"
    )
    demo.add_argument("--particles", type=_count, default=1000, metavar="M", help="size of the cloud (default: %(default)s)")
    demo.add_argument(
        "--iterations", type=_count, default=600, metavar="T", help="iterations of the paper's EFP (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)
    for command in (demo,):
        command.add_argument("--seed", type=_seed, default=0, help="seed of all randomness (default: %(default)s)")
        command.add_argument("--quiet", action="store_true", help="print nothing but errors")
        command.add_argument("--json", action="store_true", help="the summary as one JSON object on stdout, all else on stderr")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, got {text}")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 2**32 - 1, got {text}")
    return value


def _demo(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    problem = paper_network()
    paper = options.iterations
    methods: dict[str, tuple[Solver, int]] = {
        "EFP (paper: ULA)": (EFP(rate=0.01, sampler=ULA(step_size=0.01, steps=10)), paper),
        "EFP (MALA)": (EFP(rate=0.05), max(1, paper // 3)),
        "MFLD": (MFLD(step_size=0.1), 5 * paper),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    say(f"{problem}, {options.particles} particles, seed {options.seed}\n")
    say(f"{'method':<18}{'iterations':>11}{'pulls':>8}{'seconds':>9}{'loss':>12}{'estimated gap':>20}")
    runs: dict[str, Solution] = {}
    for name, (solver, iterations) in methods.items():
        runs[name] = solve(problem, solver, particles=options.particles, iterations=iterations, seed=options.seed)
        row = _row(runs[name])
        gap = "-" if row["gap"] is None else f"{row['gap']:.1e} +- {row['gap_error']:.0e}"
        say(f"{name:<18}{row['iterations']:>11}{row['pulls']:>8}{row['seconds']:>9.2f}{row['loss']:>12.6f}{gap:>20}")
        if runs[name].status == "interrupted":
            break
    status = "interrupted" if any(s.status == "interrupted" for s in runs.values()) else "done"
    summary = {
        "problem": repr(problem),
        "seed": options.seed,
        "particles": options.particles,
        "status": status,
        "methods": {name: _row(solution) for name, solution in runs.items()},
        "files": [],
    }
    picture = options.out / "convergence.png"
    _picture(runs, picture)
    summary["files"] = [str(picture), str(options.out / "summary.json")]
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    say("\nA gap is the run's own estimate of its distance to the optimum, over its last 10 iterations; below its error")
    say("it cannot be told from zero. MFLD has none: its moments are its particles' own.")
    say("Wrote " + ", ".join(summary["files"]))
    return summary


def _row(solution: Solution) -> dict[str, Any]:
    history = solution.history
    if len(history["iteration"]) == 0:
        return {"solver": repr(solution.solver), "status": str(solution.status), "iterations": 0, "pulls": 0, "passes": 0,
                "seconds": 0.0, "loss": float("nan"), "gap": None, "gap_error": None}  # fmt: skip
    recent = history["gap"][-10:]
    known = len(recent) > 1 and not np.isnan(recent).any()
    return {
        "solver": repr(solution.solver),
        "status": str(solution.status),
        "iterations": int(history["iteration"][-1]),
        "pulls": int(history["pulls"][-1]),
        "passes": int(history["passes"][-1]),
        "seconds": float(history["seconds"][-1]),
        "loss": float(history["loss_moments"][-1]),
        "gap": float(recent.mean()) if known else None,
        "gap_error": float(recent.std(ddof=1) / np.sqrt(len(recent))) if known else None,
    }


def _picture(runs: dict[str, Solution], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from . import plot

    figure = plot.convergence(runs, against="pulls")
    figure.suptitle("The paper's two-layer network: gap and loss against gradient passes")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
