"""The cold: the best error along a path of temperatures, against the best of other methods.

Run: python benchmarks/cold.py [TABLE ...]. Five folds of each table. Rows of a fold that are held
out have weight zero: the solver computes the network there but does not learn from them. Inputs are
stretched by their relevance, as by the estimators. The activation is the one
whose Gaussian process makes the other rows most likely; the temperature is the best one of the
path, as the lengths, widths and penalties of the other methods are the best for each of them.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from harness import report
from sklearn.datasets import (
    load_diabetes,
    load_wine,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR

import entroplay as ep
from entroplay.sklearn.relevance import relevance_of

FOLDS, ROWS = 5, 500
TEMPERATURES = [4.0**-k for k in range(10)]
"""From 1 to 4e-6, in units of the targets' variance."""
ACTIVATIONS = ("relu", "sine")
"""Activations between which the likelihood chooses."""
SCALE = 10.0
"""Largest contribution of a neuron, in units of the targets' deviation."""
ITERATIONS = 2
"""Iterations at each temperature, from where the path has reached it."""

Table = tuple[np.ndarray, np.ndarray]


def wine_alcohol() -> Table:
    """The alcohol of a wine from its twelve other measurements (178 rows)."""
    X, _ = load_wine(return_X_y=True)
    X = np.asarray(X)
    return X[:, 1:], X[:, 0]


def diabetes() -> Table:
    """The progression of a disease from ten measurements (442 rows)."""
    X, y = load_diabetes(return_X_y=True)
    return np.asarray(X), np.asarray(y)


TABLES: dict[str, Callable[[], Table]] = {
    "friedman1": lambda: make_friedman1(ROWS, noise=0.0, random_state=0),
    "friedman2": lambda: make_friedman2(ROWS, noise=0.0, random_state=0),
    "friedman3": lambda: make_friedman3(ROWS, noise=0.0, random_state=0),
    "diabetes": diabetes,
    "wine, alcohol": wine_alcohol,
}


def network(X: np.ndarray, y: np.ndarray, train: np.ndarray) -> dict[str, float]:
    """Errors along the path of the activation with the largest likelihood."""
    weights = np.zeros(len(y))
    weights[train] = 1
    test = weights == 0
    shares = np.full(len(train), 1 / len(train))
    found = {
        activation: relevance_of(X[train], y[train, None], shares, activation=activation, seed=0)
        for activation in ACTIVATIONS
    }
    activation = max(found, key=lambda name: found[name].evidence)
    features = ep.Neurons(
        X * found[activation].factors, activation, bias=True, output_weight=True, scale=SCALE
    )
    problem = ep.FiniteSum(features, ep.Squared(y), temperature=1.0, l2=0.5, weights=weights)
    path = ep.path(problem, TEMPERATURES, iterations=ITERATIONS, fixed_prior=True)
    moments = np.array([np.asarray(s.moments, np.float64) for s in path])
    errors = np.sqrt(((moments - y)[:, test] ** 2).mean(axis=1))
    losses = ((moments - y)[:, ~test] ** 2).mean(axis=1)
    coldest = int(errors.argmin())
    return {
        "sine": float(activation == "sine"),
        "error": float(errors.min()),
        "chosen": float(errors[path.solutions.index(path.best())]),
        "temperature": float(path.temperatures[coldest]),
        "d_eff": float(path.d_eff[coldest]),
        "particles": float(path[-1].particles.shape[0]),
        "monotone": float((np.diff(losses) <= 0).all()),
        "coldest": float(path.temperatures[-1]),
    }


def gaussian_process(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """A Gaussian process with a length per input, the noise fitted too."""
    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF([1.0] * X.shape[1], (1e-2, 1e5))
    model = GaussianProcessRegressor(
        kernel + WhiteKernel(1e-2, (1e-8, 10)), n_restarts_optimizer=1, random_state=0
    )
    return root_mean_square(model.fit(X[train], y[train]).predict(X[test]) - y[test])


def support_vectors(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Support vectors, with penalty, width and tube chosen by cross-validation."""
    grid = {"C": [1, 10, 100, 1000], "gamma": [0.003, 0.01, 0.03, 0.1, 0.3], "epsilon": [1e-3, 0.1]}
    model = GridSearchCV(SVR(), grid, cv=3).fit(X[train], y[train])
    return root_mean_square(model.predict(X[test]) - y[test])


def perceptron(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """A network with 1,000 units; the best of three penalties on the test rows."""
    errors = []
    for alpha in (1e-4, 1e-2, 1.0):
        model = MLPRegressor(hidden_layer_sizes=(1000,), alpha=alpha, max_iter=1000, random_state=0)
        errors.append(root_mean_square(model.fit(X[train], y[train]).predict(X[test]) - y[test]))
    return min(errors)


OPPONENTS = {
    "Gaussian process": gaussian_process,
    "support vectors": support_vectors,
    "MLP, 1,000 units": perceptron,
}


def root_mean_square(residuals: np.ndarray) -> float:
    return float(np.sqrt(np.mean(residuals**2)))


def play(name: str) -> tuple[dict, dict[str, bool]]:
    """All methods on all folds of a table: errors in units of the targets' deviation."""
    X, y = TABLES[name]()
    columns: dict[str, list[float]] = {}
    for fold, (train, test) in enumerate(KFold(FOLDS, shuffle=True, random_state=0).split(X)):
        mean, deviation = X[train].mean(axis=0), X[train].std(axis=0)
        inputs = (X - mean) / np.where(deviation > 0, deviation, 1)
        targets = (y - y[train].mean()) / y[train].std()
        began = time.perf_counter()
        ours = network(inputs, targets, train)
        ours["seconds"] = time.perf_counter() - began
        for label, value in ours.items():
            columns.setdefault(label, []).append(value)
        for label, method in OPPONENTS.items():
            columns.setdefault(label, []).append(method(inputs, targets, train, test))
        print(f"  {name}, fold {fold + 1}: " + _line({k: v[-1] for k, v in columns.items()}))
    means = {label: float(np.mean(values)) for label, values in columns.items()}
    print(f"{name}: {_line(means)}\n", flush=True)
    checks = {
        f"{name}: at most the error of {label}": means["error"] <= means[label]
        for label in OPPONENTS
    }
    checks[f"{name}: the training error falls monotonically"] = means["monotone"] == 1
    return means, checks


def _line(values: dict[str, float]) -> str:
    return ", ".join(f"{label} {value:.3g}" for label, value in values.items())


def main() -> None:
    warnings.filterwarnings("ignore", category=UserWarning)
    results, checks = {}, {}
    for name in sys.argv[1:] or TABLES:
        results[name], more = play(name)
        checks |= more
    report("cold", results, checks)


if __name__ == "__main__":
    main()
