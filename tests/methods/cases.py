"""All solvers and samplers as parameters of tests: a new one is one line here."""

from __future__ import annotations

import pytest

import entroplay as ep

SOLVERS = {
    "EFP": lambda: ep.EFP(0.1, ep.MALA(steps=3)),
    "NaiveEFP": lambda: ep.NaiveEFP(0.1, ep.ULA(step_size=0.1, steps=3)),
    "MFLD": lambda: ep.MFLD(0.1),
    "NewtonEFP": lambda: ep.NewtonEFP(ep.MALA(steps=3, jumps=1, leaps=1)),
    "PDA": lambda: ep.PDA(ep.MALA(steps=3)),
    "PSDCA": lambda: ep.PSDCA(ep.MALA(steps=3), batch=5, half_range=3.0),
}
"""All solvers, with few moves, for tests of the contract.

Tests that use the same numbers of particles and rows share compiled programs.
"""


def solvers(*always):
    """All solvers as parameters of a test.

    Those that are not named here run in `make test-all` only: each takes seconds to compile.
    """
    return [
        pytest.param(name, marks=() if name in always else pytest.mark.slow) for name in SOLVERS
    ]


SAMPLERS = {
    "ULA": lambda **options: ep.ULA(**{"step_size": 0.1, **options}),
    "MALA": lambda **options: ep.MALA(**options),
}
"""All samplers, as functions of options. `steps` and `fresh` are options of every sampler."""
