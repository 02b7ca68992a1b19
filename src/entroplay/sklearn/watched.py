"""Somebody who watches a fit: every line of progress, and the model before its certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Watcher:
    """What is called during a fit.

    Attributes:
        say: takes a line of progress.
        drafted: takes the estimator, which is fitted but has no certificate yet.
    """

    say: Callable[[str], None]
    drafted: Callable[[Any], None]


class Watched:
    """An estimator that says what it does."""

    _watcher: Watcher | None = None
    """Not a parameter: copies of the estimator are not watched."""

    def _speaker(self, verbose: int) -> Callable[[str], None]:
        """A function that tells the watcher and, if `verbose`, prints."""
        watcher, owner = self._watcher, type(self).__name__

        def say(line: str) -> None:
            if verbose:
                print(f"[{owner}] {line}", flush=True)
            if watcher is not None:
                watcher.say(line)

        return say

    def _show_draft(self) -> None:
        if self._watcher is not None:
            self._watcher.drafted(self)
