"""What a part of the reproduction hands over: claims with their verdicts, figures, numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Claim:
    """A statement in the form measured <= bound. The verdict is computed from the two numbers, never written."""

    where: str
    """In the paper: "Theorem 2"."""
    statement: str
    setting: str
    measured: float
    bound: float
    trivial: float = np.inf
    """What is known without the statement: a bound beyond it says nothing."""
    misprint: bool = False
    """The statement is given as printed, and expected to fail."""
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the numbers support it. NaN supports nothing."""
        return bool(self.measured <= self.bound)

    @property
    def as_expected(self) -> bool:
        """True for a statement that holds, and for a misprint that does not."""
        return self.holds != self.misprint

    @property
    def verdict(self) -> str:
        if self.misprint:
            return "HOLDS, though taken for a misprint" if self.holds else "fails as printed"
        if not self.holds:
            return "FAILS"
        return "holds, but says nothing here" if self.bound >= self.trivial else "holds"

    def row(self) -> dict[str, Any]:
        """For JSON."""
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
    """One part of the reproduction."""

    name: str
    title: str
    paper: str
    """What the paper says and shows."""
    found: str
    """What came out here."""
    figures: dict[str, Figure | None] = field(default_factory=dict)
    """None where a figure is in its file already."""
    captions: dict[str, str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    """What the paper leaves open, and what was taken."""
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def as_expected(self) -> bool:
        return all(claim.as_expected for claim in self.claims)


def plain(value: Any) -> Any:
    """Numbers and arrays as JSON takes them: what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value
