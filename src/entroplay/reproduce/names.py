"""The names of the parts, for the command line. This module imports nothing."""

from __future__ import annotations

PARTS = ("fig1", "fig2", "fig3", "fig4", "fig5", "density", "theorems", "memory")
"""All parts, in the order of the page."""
PAINTED = ("fig3", "fig4", "fig5")
"""Parts that show the same paintings and need a target picture."""
GROUPS = (PAINTED, ("fig2",), ("density",), ("fig1",), ("memory",), ("theorems",))
"""Parts that share their work, the longest group first."""
SCALES = ("quick", "full")
