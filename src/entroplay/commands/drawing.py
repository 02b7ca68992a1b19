"""Pictures of what the estimators found: predictions beside the truth, and densities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..sklearn.bandwidth import log_density
from ..verbs.plot import pyplot
from .table_model import TableModel
from .tables import Table, labels_of, present

MOST_COLUMNS = 4
"""Maximum number of columns of a density that are drawn against each other."""
MARGIN = 0.1
"""Fraction of the data's range by which the picture of a density extends beyond it."""
GRID = 120
"""Number of points along each axis at which a density is drawn."""
LEVELS = (-6.0, -4.5, -3.0, -2.0, -1.0, -0.3)
"""Contours of a density, as logarithms relative to its maximum."""
DPI = 120


def draw_predicted(
    model: TableModel, table: Table, columns: dict[str, np.ndarray], path: Path
) -> None:
    """Draw predictions against the truth if the table has it, and their distribution otherwise."""
    if model.target is None:
        draw_density(model.estimator, table.matrix(model.inputs), model.inputs.names, path)
        return
    predicted, classification = columns[model.target], model.classification
    known = present(table.columns.get(model.target, np.full(len(table), np.nan)))
    if known.any():
        rows = table.rows(known)
        truth = (
            labels_of(rows.column(model.target)) if classification else rows.numbers(model.target)
        )
        draw_predictions(truth, predicted[known], model.target, path, classification)
    else:
        draw_distribution(predicted, model.target, path, classification)


def draw_predictions(
    y: np.ndarray, predicted: np.ndarray, target: str, path: Path, classification: bool
) -> None:
    """Draw predictions against the truth: points about a diagonal, or a table of counts."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.6, 5), layout="constrained")
    if classification:
        _confusion(axes, y, predicted)
        title = f"{np.mean(y == predicted):.1%} of {len(y)} right"
    else:
        low, high = min(y.min(), predicted.min()), max(y.max(), predicted.max())
        axes.plot([low, high], [low, high], color="0.6", lw=1, label="perfect")
        axes.scatter(predicted, y, s=14, alpha=0.6, label=f"{len(y)} rows")
        axes.legend(fontsize="small")
        r2 = 1 - np.sum((y - predicted) ** 2) / max(np.sum((y - y.mean()) ** 2), 1e-300)
        title = f"R2 = {r2:.3f}"
    axes.set(xlabel=f"predicted {target}", ylabel=f"true {target}", title=title)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def _confusion(axes: Any, y: np.ndarray, predicted: np.ndarray) -> None:
    """Draw how often each label was predicted for each true one, shaded by row."""
    labels = np.unique(np.concatenate([y, predicted]))
    counts = np.array([[np.sum((y == a) & (predicted == b)) for b in labels] for a in labels])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.ndindex(counts.shape):
        if counts[i, j]:
            colour = "white" if counts[i, j] > counts[i].sum() / 2 else "black"
            axes.text(j, i, str(counts[i, j]), ha="center", va="center", color=colour)
    names = [str(label) for label in labels]
    axes.set_xticks(range(len(labels)), names, rotation=45 if len(labels) > 5 else 0)
    axes.set_yticks(range(len(labels)), names)


def draw_density(model: Any, X: np.ndarray, names: list[str], path: Path) -> None:
    """Draw a density: a curve over a histogram for each column, contours over points for each pair.

    Only the first `MOST_COLUMNS` columns are drawn.
    """
    plt = pyplot()
    d = min(len(names), MOST_COLUMNS)
    figure, axes = plt.subplots(
        d, d, figsize=(max(6, 3 * d), max(4.5, 2.7 * d)), layout="constrained", squeeze=False
    )
    low, high = X.min(axis=0), X.max(axis=0)
    margin = MARGIN * np.where(high > low, high - low, 1)
    grids = [np.linspace(low[j] - margin[j], high[j] + margin[j], GRID) for j in range(d)]
    # Columns on the diagonal, pairs below it, nothing above.
    for i, j in np.ndindex(d, d):
        panel = axes[i, j]
        if j > i:
            panel.axis("off")
            continue
        if i == j:
            panel.hist(X[:, i], bins="auto", density=True, alpha=0.35)
            panel.plot(grids[i], np.exp(marginal(model, grids[i][:, None], [i])), lw=1.6)
            panel.set_yticks([])
        else:
            mesh = np.stack(np.meshgrid(grids[j], grids[i]), axis=-1)
            values = marginal(model, mesh.reshape(-1, 2), [j, i]).reshape(GRID, GRID)
            levels = values.max() + np.array(LEVELS)
            panel.contour(grids[j], grids[i], values, levels=levels, linewidths=0.9)
            panel.scatter(X[:, j], X[:, i], s=6, alpha=0.35, color="0.3")
        if i == d - 1:
            panel.set_xlabel(names[j])
        if j == 0:
            panel.set_ylabel("density" if i == 0 else names[i])
    figure.suptitle(
        f"Density of {len(X)} rows" + (f", first {d} columns" if d < len(names) else "")
    )
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def marginal(model: Any, points: np.ndarray, columns: list[int]) -> np.ndarray:
    """The log-density of some columns alone, which is that of a mixture of normals again."""
    root = np.linalg.cholesky(model.covariance_[np.ix_(columns, columns)])
    # In the coordinates x -> root^-1 x every component is a standard normal; the change of
    # variables adds -log det root.
    centres, rows = (
        np.linalg.solve(root, values.T).T for values in (model.locations_[:, columns], points)
    )
    return log_density(centres, model.weights_, rows, 1.0) - np.linalg.slogdet(root)[1]


def draw_distribution(predicted: np.ndarray, target: str, path: Path, classification: bool) -> None:
    """Draw how predictions are distributed, for a table that does not hold the truth."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    if classification:
        labels, counts = np.unique(predicted, return_counts=True)
        axes.bar([str(v) for v in labels], counts)
    else:
        axes.hist(predicted, bins="auto")
    axes.set(xlabel=f"predicted {target}", ylabel="rows")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
