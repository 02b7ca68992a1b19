"""One method per file; each holds its initial state and its step, and nothing else."""

from .efp import EFP
from .mfld import MFLD
from .naive_efp import NaiveEFP
from .solver import Info, Solver

__all__ = ["EFP", "MFLD", "Info", "NaiveEFP", "Solver"]
