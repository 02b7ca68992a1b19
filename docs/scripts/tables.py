"""Shared by the scripts that make the documentation's tables."""

from __future__ import annotations

import sys
from pathlib import Path

TABLES = Path(__file__).parents[1] / "tables"


def write(name: str, header: list[str], rows: list[list[str]], note: str = "") -> None:
    """Write docs/tables/NAME.md and print it."""
    script = Path(sys.argv[0]).resolve().relative_to(Path(__file__).resolve().parents[2])
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    text = "\n".join([*lines, "", f"Made by `{script}`.{' ' + note if note else ''}", ""])
    TABLES.mkdir(exist_ok=True)
    (TABLES / f"{name}.md").write_text(text)
    print(text)
