"""One method per file; each holds its initial state and its step, and nothing else."""

from .base import Info, Solver, Start
from .efp import EFP
from .mfld import MFLD
from .naive_efp import NaiveEFP
from .newton_efp import NewtonEFP
from .pda import PDA
from .psdca import PSDCA

__all__ = ["EFP", "MFLD", "PDA", "PSDCA", "Info", "NaiveEFP", "NewtonEFP", "Solver", "Start"]
