"""Solvers: one method per file, one line here. The order below is that of `SOLVERS`."""
# ruff: noqa: I001

from .base import Info as Info
from .base import Solver as Solver
from .base import Start as Start
from .newton_efp import NewtonEFP as NewtonEFP
from .efp import EFP as EFP
from .naive_efp import NaiveEFP as NaiveEFP
from .mfld import MFLD as MFLD
from .pda import PDA as PDA
from .psdca import PSDCA as PSDCA

SOLVERS: dict[str, type[Solver]] = {
    item.nickname: item
    for item in list(globals().values())
    if isinstance(item, type) and issubclass(item, Solver) and item.nickname
}
"""All solvers imported above, by their nicknames."""
