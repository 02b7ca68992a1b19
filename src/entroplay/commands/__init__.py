"""The command line: `entroplay demo`, `paint`, `fit`, `predict`, `density` and `reproduce`.

Each command is a module of this folder that exports a `COMMAND`. Only the module of the command
that was asked for is imported, and it imports JAX and other large libraries only when it runs.
Help texts and usage errors therefore appear at once. The work of a command that needs large
libraries stands in a second module: `comparison` for demo, `photographs` for paint, `fit_study`,
`density_study`.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..base.program_cache import program_folder
from ..base.version import installed_version
from .options import Command, UsageError, seed

COMMANDS = {
    "demo": "train the paper's two-layer network by several methods",
    "paint": "paint photographs with transparent triangles",
    "fit": "learn to predict a column of a table, with a certificate",
    "predict": "apply a saved model to a table",
    "density": "estimate the density of a table's rows, with a certificate",
    "reproduce": "run the paper's figures and theorems again",
}
"""Every command, named as its module is, with the line that `entroplay --help` shows."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of the signal, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Wrong options raise SystemExit, as argparse does."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(arguments).parse_args(arguments)

    def say(*words: object) -> None:
        if not options.quiet:
            print(*words, file=sys.stderr if options.json else sys.stdout, flush=True)

    try:
        summary = options.run(options, say)
    except KeyboardInterrupt:
        print("entroplay: interrupted", file=sys.stderr)
        return INTERRUPTED
    except UsageError as error:
        print(f"entroplay {options.command}: {error}", file=sys.stderr)
        return 2
    except (ValueError, OSError, ImportError, ArithmeticError) as error:
        print(f"entroplay {options.command}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(summary))
    return INTERRUPTED if summary.get("status") == "interrupted" else 0


def run() -> None:
    """Entry point of the installed command and of `python -m entroplay`."""
    _set_environment()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == INTERRUPTED:
        # The interrupted computation may still be running in JAX's threads. It would crash the
        # interpreter's own shutdown, so leave without one.
        os._exit(code)
    sys.exit(code)


def _set_environment() -> None:
    """Tell libraries that are not imported yet, here and in child processes, what commands need."""
    # Keep compiled programs in the user's cache folder, unless JAX was told another one: the second
    # run of a command then starts at once.
    folder = program_folder()
    if folder is not None and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # Commands draw into files and never open a window.
    os.environ["MPLBACKEND"] = "Agg"


class _Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these arguments: it knows the options of the one command that they name."""
    parser = _Parser(prog="entroplay", description="Optimisation over probability measures.")
    parser.add_argument("--version", action="version", version=f"entroplay {installed_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # No option before the command takes a value, so the first other word is the command.
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary)
        if name == asked:
            _add_options(subparser, importlib.import_module(f".{name}", __name__).COMMAND)
    return parser


def _add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add what a command declares, then the options that all commands share."""
    parser.description = command.description
    parser.set_defaults(run=command.run)
    command.add(parser)
    parser.add_argument(
        "--seed", type=seed, default=0, help="seed of all random numbers (default: %(default)s)"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the summary as one JSON object to stdout and everything else to stderr",
    )
