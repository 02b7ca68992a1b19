"""The certificate: a bound on the distance to the global optimum, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.registry import storable


@storable
@dataclass(frozen=True)
class Certificate:
    """What `certify` found out about q_g, g = `solution.dual`.

    Attributes:
        gap: L(q_g) - D(g), by quadrature with one or two parameters, otherwise plug-in at the
            islands' moments; the latter is biased upwards by noise.
        gap_error: the error of the quadrature, or the standard error of the plug-in gap, to second
            order, so that it does not vanish at the optimum.
        gap_debiased: the gap less its noise bias.
        bound: gap + 2 gap_error: q_g is at most this far above the global optimum, if `mixed`.
        mixed: whether the bound is verified: by quadrature, or by islands that agree within
            Monte-Carlo error among themselves and with the run's own cloud after further moves.
        primal: L(q_g), with `primal_error`.
        dual: D(g), with `dual_error`.
        log_partition: log Z_g, with `log_partition_error` and the `method` that gave it.
        reason: why the bound is not verified; empty if it is.
        islands: the number of independent clouds; none are needed where quadrature applies.
        particles: the number of particles in each island.
        pulls: gradient passes over all particles of the islands.
    """

    gap: float
    gap_error: float
    gap_debiased: float
    bound: float
    mixed: bool
    primal: float
    primal_error: float
    dual: float
    dual_error: float
    log_partition: float
    log_partition_error: float
    method: str
    reason: str
    islands: int
    particles: int
    pulls: int

    @property
    def verdict(self) -> str:
        """The verdict in one line."""
        judged = "the clouds agree" if self.islands else "by quadrature"
        trust = judged if self.mixed else f"not verified: {self.reason}"
        return f"at most {self.bound:.3g} above the global optimum ({trust})"

    def __repr__(self) -> str:
        source = "by quadrature"
        if self.islands:
            source = (
                f"{self.gap_debiased:.3g} without noise bias, from {self.islands} independent "
                f"islands of {self.particles} particles, {self.pulls} pulls"
            )
        return (
            f"Certificate: {self.verdict}\n"
            f"  gap {self.gap:.3g} +- {self.gap_error:.1g}, {source}\n"
            f"  primal {self.primal:.8g} +- {self.primal_error:.1g}, "
            f"dual {self.dual:.8g} +- {self.dual_error:.1g}, "
            f"log-partition {self.log_partition:.6g} +- {self.log_partition_error:.1g} "
            f"by {self.method}"
        )
