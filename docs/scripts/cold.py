"""A path from hot to cold: errors, degrees of freedom and bounds, as a picture and a table.

Friedman's first function with noise, 500 rows to learn from and 1,000 to test with. Errors are in
units of the targets' deviation; the noise alone is 0.2.
"""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import tables
from sklearn.datasets import make_friedman1

import entroplay as ep

mpl.use("Agg")
import matplotlib.pyplot as plt

ROWS, TEST, NOISE = 500, 1000, 1.0
TEMPERATURES = [4.0**-k for k in range(9)]


def main() -> None:
    X, y = make_friedman1(ROWS + TEST, noise=NOISE, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(X.shape[1])
    y = (y - y[:ROWS].mean()) / y[:ROWS].std()
    features = ep.Neurons(X[:ROWS], "relu", bias=True, output_weight=True, scale=10.0)
    problem = ep.FiniteSum(features, ep.Squared(y[:ROWS]), temperature=1.0, l2=0.5)
    began = time.perf_counter()
    path = ep.path(problem, TEMPERATURES, iterations=3, fixed_prior=True)
    seconds = time.perf_counter() - began
    train = np.array([_root(s.problem.empirical_loss(s.moments)) for s in path])
    left_out = np.array([_root(rows.loss) for rows in path.left_out])
    test = np.array(
        [_root(np.mean((np.asarray(s.predict(X[ROWS:])) - y[ROWS:]) ** 2) / 2) for s in path]
    )
    bounds = [ep.certify(solution) for solution in path]
    chosen = list(path).index(path.best())
    header = ["temperature", "particles", "d_eff", "training", "leave-one-out", "test"]
    header += ["bound / constant", "by"]
    rows = [
        [
            f"{t:.1e}" + (" (chosen)" if i == chosen else ""),
            str(path[i].particles.shape[0]),
            f"{path.d_eff[i]:.0f}",
            f"{train[i]:.3f}",
            f"{left_out[i]:.3f}" + (" optimistic" if path.left_out[i].too_optimistic else ""),
            f"{test[i]:.3f}",
            f"{bounds[i].relative_bound:.2g}",
            bounds[i].measure,
        ]
        for i, t in enumerate(path.temperatures)
    ]
    tables.write("cold", header, rows, f"The path took {seconds:.0f} s.")
    _draw(path, train, left_out, test, np.array([b.relative_bound for b in bounds]), chosen)


def _root(loss: object) -> float:
    """The root mean square error that belongs to half a mean square."""
    return float(np.sqrt(2 * float(loss)))  # type: ignore[arg-type]


def _draw(
    path: ep.TemperaturePath,
    train: np.ndarray,
    left_out: np.ndarray,
    test: np.ndarray,
    bounds: np.ndarray,
    chosen: int,
) -> None:
    figure, (errors, freedom, bound) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    t = path.temperatures
    honest = np.array([not rows.too_optimistic for rows in path.left_out])
    errors.loglog(t, train, "o-", label="training")
    errors.loglog(t, test, "s-", label="test")
    errors.loglog(t, np.where(honest, left_out, np.nan), "^-", color="C2", label="leave-one-out")
    errors.loglog(t, left_out, "^:", color="C2", alpha=0.5, label="too optimistic")
    errors.axvline(t[chosen], color="grey", lw=0.8)
    errors.set(title="root mean square error", xlabel="temperature")
    errors.legend(fontsize=8)
    freedom.loglog(t, path.d_eff, "o-", label="d_eff")
    freedom.loglog(t, [s.particles.shape[0] for s in path], "s-", label="particles")
    freedom.axhline(ROWS, color="grey", lw=0.8, ls="--", label="rows")
    freedom.set(title="degrees of freedom", xlabel="temperature")
    freedom.legend(fontsize=8)
    bound.loglog(t, bounds, "o-")
    bound.axhline(1, color="grey", lw=0.8, ls="--")
    bound.set(title="bound / loss of the best constant", xlabel="temperature")
    for axes in (errors, freedom, bound):
        axes.invert_xaxis()
    figure.savefig(Path(__file__).parents[1] / "images" / "cold.png", dpi=110)


if __name__ == "__main__":
    main()
