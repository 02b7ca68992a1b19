"""A fitted estimator as a file holds it: plain records, so that reading one runs no code of the file's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..verbs.certify import Certificate
from .solution import Solution


@dataclass(frozen=True)
class Model:
    """An estimator of `entroplay.sklearn`, taken apart.

    Attributes:
        name: of its class.
        parameters: of its constructor.
        state: what it has learned besides the solution: numbers, texts, arrays, and lists and dictionaries of them.
        solution: its `solution_`.
        certificate: its `certificate_`.
    """

    name: str
    parameters: dict[str, Any]
    state: dict[str, Any]
    solution: Solution
    certificate: Certificate | None
