"""Pictures of what the estimators found: predictions beside the truth, and densities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..sklearn.bandwidth import log_density


def _canvas() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from ..verbs.plot import pyplot

    return pyplot()


def draw_predictions(
    y: np.ndarray, predicted: np.ndarray, target: str, path: Path, classification: bool
) -> None:
    """Predicted against true: points about a diagonal, or a table of counts."""
    plt = _canvas()
    figure, axes = plt.subplots(figsize=(5.6, 5), layout="constrained")
    if classification:
        labels = np.unique(np.concatenate([y, predicted]))
        counts = np.array([[np.sum((y == a) & (predicted == b)) for b in labels] for a in labels])
        axes.imshow(
            counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1
        )
        for i, j in np.ndindex(counts.shape):
            if counts[i, j]:
                dark = counts[i, j] > counts[i].sum() / 2
                axes.text(
                    j,
                    i,
                    str(counts[i, j]),
                    ha="center",
                    va="center",
                    color="white" if dark else "black",
                )
        axes.set_xticks(
            range(len(labels)), [str(v) for v in labels], rotation=45 if len(labels) > 5 else 0
        )
        axes.set_yticks(range(len(labels)), [str(v) for v in labels])
        axes.set(
            xlabel=f"predicted {target}",
            ylabel=f"true {target}",
            title=f"{np.mean(y == predicted):.1%} of {len(y)} right",
        )
    else:
        low, high = min(y.min(), predicted.min()), max(y.max(), predicted.max())
        axes.plot([low, high], [low, high], color="0.6", lw=1, label="perfect")
        axes.scatter(predicted, y, s=14, alpha=0.6, label=f"{len(y)} rows")
        r2 = 1 - np.sum((y - predicted) ** 2) / max(np.sum((y - y.mean()) ** 2), 1e-300)
        axes.set(xlabel=f"predicted {target}", ylabel=f"true {target}", title=f"R2 = {r2:.3f}")
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_density(model: Any, X: np.ndarray, names: list[str], path: Path, most: int = 4) -> None:
    """One column: a curve over a histogram. More: all pairs of the first few, contours over points, curves on the diagonal."""
    plt = _canvas()
    d = min(len(names), most)
    figure, axes = plt.subplots(
        d, d, figsize=(max(6, 3 * d), max(4.5, 2.7 * d)), layout="constrained", squeeze=False
    )
    low, high = X.min(axis=0), X.max(axis=0)
    margin = 0.1 * np.where(high > low, high - low, 1)
    grids = [np.linspace(low[j] - margin[j], high[j] + margin[j], 120) for j in range(d)]
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
            values = marginal(model, mesh.reshape(-1, 2), [j, i]).reshape(
                len(grids[i]), len(grids[j])
            )
            levels = values.max() + np.array([-6.0, -4.5, -3.0, -2.0, -1.0, -0.3])
            panel.contour(grids[j], grids[i], values, levels=levels, linewidths=0.9)
            panel.scatter(X[:, j], X[:, i], s=6, alpha=0.35, color="0.3")
        if i == d - 1:
            panel.set_xlabel(names[j])
        if j == 0:
            panel.set_ylabel("density" if i == 0 else names[i])
    figure.suptitle(
        f"Density of {len(X)} rows" + (f", first {d} columns" if d < len(names) else "")
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def marginal(model: Any, points: np.ndarray, columns: list[int]) -> np.ndarray:
    """The log-density of some columns alone: that of a mixture of normals is one again."""
    root = np.linalg.cholesky(model.covariance_[np.ix_(columns, columns)])
    centres, rows = (
        np.linalg.solve(root, values.T).T for values in (model.locations_[:, columns], points)
    )
    return log_density(centres, model.weights_, rows, 1.0) - np.linalg.slogdet(root)[1]


def draw_distribution(predicted: np.ndarray, target: str, path: Path, classification: bool) -> None:
    """How predictions are distributed, where there is no truth to hold them against."""
    plt = _canvas()
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    if classification:
        labels, counts = np.unique(predicted, return_counts=True)
        axes.bar([str(v) for v in labels], counts)
    else:
        axes.hist(predicted, bins="auto")
    axes.set(xlabel=f"predicted {target}", ylabel="rows")
    figure.savefig(path, dpi=120)
    plt.close(figure)
