"""The certificate: a bound on the distance to the global optimum, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.registry import storable


@storable
@dataclass(frozen=True)
class Certificate:
    """What `certify` found out about q_g, g = `solution.dual`.

    Attributes:
        gap: L(q_g) - D(g), plug-in at the islands' moments; biased upwards by noise.
        gap_error: its standard error, to second order, so that it does not vanish at the optimum.
        gap_debiased: the gap less its noise bias.
        bound: gap + 2 gap_error: q_g is at most this far above the global optimum, if the clouds
            have mixed.
        mixed: whether the islands among themselves, and the run's own cloud after further moves,
            agree within Monte-Carlo error.
        primal: L(q_g), with `primal_error`.
        dual: D(g), with `dual_error`.
        log_partition: log Z_g, with `log_partition_error` and the `method` that gave it.
        reason: what the clouds disagree about; empty if they agree.
        islands: the number of independent clouds.
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
        trust = "the clouds agree" if self.mixed else f"not verified: {self.reason}"
        return f"at most {self.bound:.3g} above the global optimum ({trust})"

    def __repr__(self) -> str:
        return (
            f"Certificate: {self.verdict}\n"
            f"  gap {self.gap:.3g} +- {self.gap_error:.1g}, {self.gap_debiased:.3g} without noise "
            f"bias, from {self.islands} independent islands of {self.particles} particles, "
            f"{self.pulls} pulls\n"
            f"  primal {self.primal:.8g} +- {self.primal_error:.1g}, "
            f"dual {self.dual:.8g} +- {self.dual_error:.1g}, "
            f"log-partition {self.log_partition:.6g} +- {self.log_partition_error:.1g} "
            f"by {self.method}"
        )
