"""The certificate: a bound on the distance to the global optimum, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from ..base.notebook import card
from ..base.registry import storable


@storable
@dataclass(frozen=True)
class Certificate:
    """What `certify` found out about q_g, g = `solution.dual`, and about an explicit mixture.

    Attributes:
        gap: L(q_g) - D(g), by quadrature with one or two parameters, otherwise plug-in at the
            islands' moments; the latter is biased upwards by noise. NaN if q_g was not judged, as
            for paintings; so are the other numbers about q_g.
        gap_error: the error of the quadrature, or the standard error of the plug-in gap, to second
            order, so that it does not vanish at the optimum.
        gap_debiased: the gap less its noise bias.
        bound: the measure is at most this far above the global optimum, if `verified`. For q_g it
            is gap + 3 gap_error by islands, and gap + 2 gap_error by quadrature.
        mixed: whether the bound of q_g is verified: by quadrature, or by islands that agree within
            Monte-Carlo error among themselves and with the run's own cloud after further moves, and
            by a search that found no mass which they missed.
        primal: L of the measure, with `primal_error`.
        dual: the number below min L with which it is compared, with `dual_error`: D(g), or D(0).
        log_partition: log Z_g, with `log_partition_error` and the `method` that gave it.
        reason: why the bound is not verified; empty if it is.
        islands: the number of independent clouds; none are needed where quadrature applies or
            where q_g is not judged.
        particles: the number of particles in each island.
        pulls: gradient passes over all particles of the islands.
        measure: what the bound is about: "gibbs" for q_g, "mixture" for `solution.measure`.
        lower_bound: "dual" for D(g), or "zero dual" for D(0), the value of no loss and of the
            prior, which is known exactly: no cloud has to agree with another.
        gibbs_bound: the bound of q_g, whatever the measure; NaN in old files.
        best_constant: the loss of the best constant moments; NaN if no constant is best, as for
            densities, and in old files.
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
    measure: str = "gibbs"
    lower_bound: str = "dual"
    gibbs_bound: float = float("nan")
    best_constant: float = float("nan")

    @property
    def verified(self) -> bool:
        """Whether the bound holds: a mixture has one only if what it leans on is verified."""
        return self.mixed or self.measure == "mixture"

    @property
    def relative_bound(self) -> float:
        """The bound, divided by the loss of the best constant."""
        constant = self.best_constant
        return self.bound / constant if constant > 0 else float("nan")

    @property
    def certified(self) -> bool:
        """Whether the bound is verified and says something: it is below the best constant's loss.

        Where no constant is best, it must be below one: a nat of log-density per row.
        """
        constant = 1.0 if isnan(self.best_constant) else self.best_constant
        return self.verified and self.bound < constant

    @property
    def verdict(self) -> str:
        """The verdict in one line."""
        trust = "the clouds agree" if self.islands else "by quadrature"
        if self.measure == "mixture":
            trust = f"an explicit mixture, against the {self.lower_bound}"
        trust = trust if self.verified else f"not verified: {self.reason}"
        little = "; says little" if self.verified and not self.certified else ""
        return f"at most {self.bound:.3g} above the global optimum ({trust}{little})"

    def __repr__(self) -> str:
        values = (
            f"  primal {self.primal:.8g} +- {self.primal_error:.1g}, "
            f"dual {self.dual:.8g} +- {self.dual_error:.1g}"
        )
        if isnan(self.gap):
            return f"Certificate: {self.verdict}\n{values}, the Gibbs measure was not judged"
        source = "by quadrature"
        if self.islands:
            source = (
                f"{self.gap_debiased:.3g} without noise bias, from {self.islands} independent "
                f"islands of {self.particles} particles, {self.pulls} pulls"
            )
        return (
            f"Certificate: {self.verdict}\n"
            f"  gap {self.gap:.3g} +- {self.gap_error:.1g}, {source}\n"
            f"{values}, "
            f"log-partition {self.log_partition:.6g} +- {self.log_partition_error:.1g} "
            f"by {self.method}"
        )

    def _repr_html_(self) -> str:
        """The certificate as a small table, for notebooks."""
        rows = [("verdict", self.verdict)]
        if self.verified and not isnan(self.relative_bound):
            rows.append(("share", f"{self.relative_bound:.2%} of the best constant's loss"))
        rows.append(("primal", f"{self.primal:.8g} ± {self.primal_error:.1g}"))
        rows.append((self.lower_bound, f"{self.dual:.8g} ± {self.dual_error:.1g}"))
        if not isnan(self.gap):
            rows.append(("gap of q_g", f"{self.gap:.3g} ± {self.gap_error:.1g}"))
            clouds = f"{self.islands} independent islands of {self.particles} particles"
            source = f"{clouds}, {self.pulls} pulls" if self.islands else "quadrature"
            rows.append(("judged by", source))
        return card("Certificate", rows)
