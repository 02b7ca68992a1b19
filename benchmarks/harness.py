"""Shared by the benchmarks: timing on a noisy machine, and one format of report."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTLE = 0.02
"""Seconds between two measurements: OpenMP's threads spin for a while after their work is done."""


def interleaved_best(
    contestants: dict[str, Callable[[], Any]], rounds: int = 40
) -> dict[str, float]:
    """The best time of each contestant over rounds in which all take turns.

    A disturbance of the machine then affects all of them.
    """
    # A first call that is not timed compiles.
    for work in contestants.values():
        work()
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, work in contestants.items():
            time.sleep(SETTLE)
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def report(name: str, results: dict[str, Any], checks: dict[str, bool]) -> None:
    """Write bench-out/NAME.json and print which aims were reached; exit with 1 if any was not."""
    checks = {name: bool(passed) for name, passed in checks.items()}
    folder = Path("bench-out")
    folder.mkdir(exist_ok=True)
    document = {
        "benchmark": name,
        "machine": platform.machine(),
        "results": results,
        "checks": checks,
    }
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    for check, passed in checks.items():
        print(f"{'ok  ' if passed else 'MISS'}  {check}")
    if not all(checks.values()):
        raise SystemExit(1)
