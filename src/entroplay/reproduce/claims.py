"""What a part of the reproduction returns: claims with their verdicts, figures and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Claim:
    """A statement of the form measured <= bound; its verdict follows from the two numbers."""

    where: str
    """Place in the paper, for example "Theorem 2"."""
    statement: str
    setting: str
    measured: float
    bound: float
    trivial: float = np.inf
    """Bound known without the statement; a bound that is no smaller says nothing."""
    misprint: bool = False
    """Whether the statement is quoted as printed and expected to fail."""
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the numbers support the statement. NaN supports nothing."""
        return bool(self.measured <= self.bound)

    @property
    def as_expected(self) -> bool:
        """True for a statement that holds, and for a misprint that does not."""
        return self.holds != self.misprint

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if self.misprint:
            return "HOLDS, though taken for a misprint" if self.holds else "fails as printed"
        if not self.holds:
            return "FAILS"
        return "holds, but says nothing here" if self.bound >= self.trivial else "holds"

    def row(self) -> dict[str, Any]:
        """The claim as a JSON object."""
        return {
            "where": self.where,
            "statement": self.statement,
            "setting": self.setting,
            "measured": self.measured,
            "bound": self.bound,
            "verdict": self.verdict,
            "as_expected": self.as_expected,
            "note": self.note,
        }


@dataclass(frozen=True)
class Part:
    """One part of the reproduction: a figure of the paper, or a group of its statements."""

    name: str
    title: str
    paper: str
    """What the paper says and shows."""
    found: str
    """What was measured here."""
    figures: dict[str, Figure | None] = field(default_factory=dict)
    """Figures by file name; None once a figure has been written to its file."""
    captions: dict[str, str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    """Values chosen here because the paper does not state them."""
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def as_expected(self) -> bool:
        """Whether all claims came out as expected."""
        return all(claim.as_expected for claim in self.claims)


def largest(numbers: Iterable[float]) -> float:
    """The largest number; NaN if there are none, because an empty check supports nothing."""
    found = list(numbers)
    return float(np.max(found)) if found else float("nan")


def plain(value: Any) -> Any:
    """Numbers and arrays as JSON takes them; numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    # bool is a subclass of int, so it must be asked for first.
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value
