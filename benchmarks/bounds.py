"""Bounds at the estimators' own settings: how far from the global optimum a default fit can be.

Run: python benchmarks/bounds.py [TABLE ...]. The bound is in units of the best constant's loss.
Seconds of the certificates inside the fit are counted apart from those of the fit. Every fit but
the longest is repeated, and the second one, which compiles nothing, is timed.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

from harness import report
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_wine,
    make_friedman1,
    make_friedman3,
)

import entroplay as ep
from entroplay.sklearn import MeanFieldClassifier, MeanFieldRegressor
from entroplay.sklearn.fit import Trainer

certificate_of = Trainer._certificate
ROWS = 600
LONGEST = "digits"
LIMITS = {"digits": 0.5}
"""Largest bound, relative to the best constant's loss, where it is not LIMIT: a neuron for digits
has 75 parameters."""
LIMIT = 0.1

TABLES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "friedman1": (MeanFieldRegressor, lambda: make_friedman1(ROWS, noise=1.0, random_state=0)),
    "friedman3": (MeanFieldRegressor, lambda: make_friedman3(ROWS, noise=0.1, random_state=0)),
    "diabetes": (MeanFieldRegressor, lambda: load_diabetes(return_X_y=True)),
    "breast_cancer": (MeanFieldClassifier, lambda: load_breast_cancer(return_X_y=True)),
    "wine": (MeanFieldClassifier, lambda: load_wine(return_X_y=True)),
    "digits": (MeanFieldClassifier, lambda: load_digits(return_X_y=True)),
}


class Stopwatch:
    """The certificate as a fit makes it, by a mixture and by clouds, timed."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def certify(self, *arguments: Any) -> ep.Certificate:
        """The certificate; its seconds are added up."""
        start = time.perf_counter()
        certificate = certificate_of(*arguments)
        self.seconds += time.perf_counter() - start
        return certificate


def fitted(name: str) -> dict[str, Any]:
    """A default fit: its bound, the measure that it is about, and the seconds."""
    estimator, load = TABLES[name]
    X, y = load()
    watch = Stopwatch()
    start = time.perf_counter()

    def timed(*arguments: Any) -> ep.Certificate:
        return watch.certify(*arguments)

    with mock.patch.object(Trainer, "_certificate", timed):
        model = estimator(random_state=0).fit(X, y)
    total = time.perf_counter() - start
    certificate = model.certificate_
    return {
        "temperature": model.temperature_,
        "relative bound": certificate.relative_bound,
        "bound": certificate.bound,
        "best constant": certificate.best_constant,
        "measure": certificate.measure,
        "lower bound": certificate.lower_bound,
        "verified": certificate.verified,
        "fit seconds": total - watch.seconds,
        "certificate seconds": watch.seconds,
    }


def main() -> None:
    """Fit all tables, or those that are named."""
    # Estimators warn where a bound is above their tol; here the bounds are the result.
    warnings.simplefilter("ignore")
    results, checks = {}, {}
    for name in sys.argv[1:] or TABLES:
        if name != LONGEST:
            fitted(name)
        row = results[name] = fitted(name)
        limit = LIMITS.get(name, LIMIT)
        print(
            f"{name}: {row['relative bound']:.3g} of a constant's loss, {row['measure']} against "
            f"the {row['lower bound']}; fit {row['fit seconds']:.1f} s, certificate "
            f"{row['certificate seconds']:.1f} s",
            flush=True,
        )
        tight = row["verified"] and row["relative bound"] < limit
        checks[f"{name}: bound below {limit:g} of the best constant's loss"] = tight
        quick = row["certificate seconds"] <= row["fit seconds"]
        checks[f"{name}: the certificate takes at most the seconds of the fit"] = quick
    report("bounds", results, checks)


if __name__ == "__main__":
    main()
