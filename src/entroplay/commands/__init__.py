"""The command line: `entroplay demo`, `paint`, `fit`, `predict`, `density` and `reproduce`.

Exit codes: 0 done, 1 failure, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from .. import __version__
from ..methods.samplers.base import ULA
from ..methods.solvers import EFP, MFLD, NewtonEFP, Solver
from ..problems.datasets.teacher import paper_network
from ..runs.solution import Solution
from ..verbs.certify import Certificate, certify
from ..verbs.solve import solve
from .estimate import (
    add_density_arguments,
    add_fit_arguments,
    add_predict_arguments,
    run_density,
    run_fit,
    run_predict,
)
from .paint import UsageError, add_paint_arguments, run_paint
from .reproduce import add_reproduce_arguments, run_reproduce

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
    except UsageError as error:
        print(f"entroplay {options.command}: {error}", file=sys.stderr)
        return 2
    except (ValueError, OSError, ImportError, ArithmeticError) as error:
        print(f"entroplay {options.command}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(summary))
    return 130 if summary.get("status") == "interrupted" else 0


def run() -> None:
    """The entry point of the installed command."""
    _keep_compiled_programs()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == 130:
        os._exit(
            code
        )  # an interrupted computation may still be under way, and would crash the interpreter's own ending
    sys.exit(code)


def _keep_compiled_programs() -> None:
    """In the user's cache folder, unless JAX was told another one: the second run of a command starts at once."""
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "entroplay"
        jax.config.update("jax_compilation_cache_dir", str(folder))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="entroplay", description="Optimisation over probability measures.")
    parser.add_argument("--version", action="version", version=f"entroplay {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="train the paper's two-layer network by several methods",
        description="Train the paper's two-layer network (n=500, d=5, cosine teacher, tanh student with bias, "
        "temperature = l2 = 0.01) and write a table, a picture and a summary.",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        metavar="DIR",
        help="folder for the files (default: %(default)s)",
    )
    demo.add_argument(
        "--particles",
        type=_count,
        default=1000,
        metavar="M",
        help="size of the cloud (default: %(default)s)",
    )
    demo.add_argument(
        "--iterations",
        type=_count,
        default=600,
        metavar="T",
        help="iterations of the paper's EFP (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)
    painter = commands.add_parser(
        "paint",
        help="paint photographs with transparent triangles",
        description="Paint photographs with transparent triangles: pictures at any resolution, vector files, films.",
    )
    add_paint_arguments(painter, _count)
    painter.set_defaults(run=run_paint)
    fit = commands.add_parser(
        "fit",
        help="learn a column of a table, with a certificate",
        description="Fit an infinitely wide two-layer network to a table: a score on rows held out beside baselines, a bound on "
        "the distance to the global optimum, a model file and a picture.",
    )
    add_fit_arguments(fit)
    fit.set_defaults(run=run_fit)
    predict = commands.add_parser(
        "predict",
        help="apply a saved model to a table",
        description="Apply a model that `fit` or `density` saved to a table.",
    )
    add_predict_arguments(predict)
    predict.set_defaults(run=run_predict)
    density = commands.add_parser(
        "density",
        help="estimate the density of a table's rows, with a certificate",
        description="Fit a mixture of normals over a free mixing measure to the numeric columns of a table.",
    )
    add_density_arguments(density)
    density.set_defaults(run=run_density)
    paper = commands.add_parser(
        "reproduce",
        help="the paper's figures and theorems, run anew",
        description="Run what the paper claims and write figures (PNG and SVG), numbers (JSON) and one page that puts claim and "
        "measurement side by side.",
    )
    add_reproduce_arguments(paper)
    paper.set_defaults(run=run_reproduce)
    for command in (demo, painter, fit, predict, density, paper):
        command.add_argument(
            "--seed", type=_seed, default=0, help="seed of all randomness (default: %(default)s)"
        )
        command.add_argument("--quiet", action="store_true", help="print nothing but errors")
        command.add_argument(
            "--json",
            action="store_true",
            help="the summary as one JSON object on stdout, all else on stderr",
        )
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


def _methods(full: int) -> dict[str, tuple[Solver, list[int]]]:
    """What the demo compares, and after how many iterations it draws up certificates."""
    return {
        "Algorithm 2 (paper)": (
            EFP(rate=0.01, sampler=ULA(step_size=0.01, steps=10)),
            _stops(full, 50, times=4),
        ),
        "EFP, rate auto": (EFP(rate="auto"), [max(1, full // 3)]),
        "MFLD": (MFLD(step_size=0.1), [5 * full]),
        "NewtonEFP": (NewtonEFP(), _stops(max(1, full // 6), 5, times=4)),
    }


def _demo(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    problem, methods = paper_network(), _methods(options.iterations)
    options.out.mkdir(parents=True, exist_ok=True)
    say(f"{problem}, {options.particles} particles, seed {options.seed}\n")
    say(
        f"{'method':<20}{'iterations':>11}{'pulls':>8}{'seconds':>9}{'loss':>11}{'own gap':>11}{'certified bound':>17}"
    )
    runs: dict[str, Solution] = {}
    certificates: dict[str, list[tuple[int, Certificate]]] = {}
    status = "done"
    try:
        for name, (solver, stops) in methods.items():
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
                certificates.setdefault(name, []).append(
                    (pulls, certify(runs[name], seed=options.seed))
                )
            say(_line(name, _row(runs[name], certificates[name][-1][1])))
    except KeyboardInterrupt:
        status = "interrupted"
        say("interrupted; what was done is kept")
    rows = {
        name: _row(solution, *[c for _, c in certificates.get(name, [])][-1:])
        for name, solution in runs.items()
    }
    files = [options.out / "convergence.png", options.out / "summary.json"]
    _picture(runs, certificates, files[0])
    summary = {
        "problem": repr(problem), "seed": options.seed, "particles": options.particles, "status": status,
        "methods": rows, "files": [str(f) for f in files],
    }  # fmt: skip
    files[1].write_text(json.dumps(summary, indent=2) + "\n")
    say(
        "\nThe certified bound says how far above the global optimum the answer can be, by independent clouds; the own gap is"
    )
    say(
        "what the run itself believed, good only if its chains had mixed. (?) marks bounds that the clouds did not verify."
    )
    say("Wrote " + ", ".join(summary["files"]))
    return summary


def _line(name: str, row: dict[str, Any]) -> str:
    """A row of the demo's table."""
    own = "-" if row["gap"] is None else f"{row['gap']:.1e}"
    bound = f"{row['bound']:.1e}" + ("" if row["mixed"] else " (?)")
    return f"{name:<20}{row['iterations']:>11}{row['pulls']:>8}{row['seconds']:>9.2f}{row['loss']:>11.6f}{own:>11}{bound:>17}"


def _stops(last: int, first: int, *, times: int) -> list[int]:
    """Iterations from `first` to `last`, each so many `times` the one before: where the demo draws up certificates."""
    stops = [last]
    while stops[0] // times >= first:
        stops.insert(0, stops[0] // times)
    return stops


def _row(solution: Solution, certificate: Certificate | None = None) -> dict[str, Any]:
    history = solution.history
    done = len(history["iteration"]) > 0
    recent = history["gap"][-10:]
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


def _picture(
    runs: dict[str, Solution], certificates: dict[str, list[tuple[int, Certificate]]], path: Path
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from ..verbs import plot

    figure = plot.certified(runs, certificates)
    figure.suptitle(
        "The paper's two-layer network: distance to the global optimum against gradient passes"
    )
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    run()
