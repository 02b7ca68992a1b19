"""Verdicts on the theorems follow from numbers: wrong numbers turn them red."""

import pytest

from entroplay.measures.quadrature import Quadrature
from entroplay.reproduce import exact, theorems
from entroplay.reproduce.settings import Run, bounded_settings


@pytest.fixture(scope="module")
def setting():
    return bounded_settings(quick=True)[1]


def verdicts(setting):
    run = Run.of(setting.quadrature, exact.fictitious_play(setting.quadrature, 0.1), 20)
    return {(c.where, c.statement): c.as_expected for c in theorems.duality(setting, run)}


def test_a_wrong_sign_in_the_dual_turns_verdicts_red(setting, monkeypatch):
    assert all(verdicts(setting).values())
    right = Quadrature.dual_at

    def wrong(self, moments):
        """D with +temperature log Z."""
        return (
            right(self, moments) + 2 * self.problem.temperature * self.gibbs(self.slope(moments))[1]
        )

    monkeypatch.setattr(Quadrature, "dual_at", wrong)
    assert not verdicts(setting)["Theorem 2", "L(mu) - D(g_mu) = temperature KL(mu | mu-hat)"]


def test_so_does_a_wrong_rate_in_the_dynamics(setting):
    """A flow with a fifth of the speed that gamma says does not decay like exp(-gamma t)."""
    slow = Run.of(setting.quadrature, exact.continuous_play(setting.quadrature, 0.02), 61)
    claims = {c.where: c.holds for c in theorems.continuous(setting, slow, 0.1)}
    assert not claims["Theorem 1"]
    assert not claims["Theorem 3"]
