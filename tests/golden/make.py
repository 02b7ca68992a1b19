"""Writes the golden files: small results of every kind, which an earlier version saved.

They were written once, by version 0.1.0 before its modules were rearranged. Do not write them
again to make a test pass: a file that no longer loads, or predicts something else, is what they
are there to find. New kinds of files may be added.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import entroplay as ep
from entroplay import sklearn as estimators

INPUTS = np.linspace(-2, 2, 12)
ROWS = np.array([[-1.7], [-0.3], [0.1], [1.2], [2.5]])
MOMENTS_FROM = {"particles": 24, "iterations": 6, "seed": 3}


def squared() -> ep.FiniteSum:
    loss = ep.Squared(np.sin(1.5 * INPUTS))
    return ep.FiniteSum(
        ep.Neurons(INPUTS[:, None], bias=True),
        loss,
        temperature=0.05,
        l2=0.04,
        weights=1 + INPUTS**2,
    )


def solvers() -> dict[str, ep.Solver]:
    return {
        "newton_efp": ep.NewtonEFP(ep.MALA(steps=3, jumps=1, leaps=1)),
        "efp": ep.EFP(0.1, ep.MALA(steps=3)),
        "naive_efp": ep.NaiveEFP(0.1, ep.ULA(step_size=0.1, steps=3)),
        "mfld": ep.MFLD(0.1),
        "pda": ep.PDA(ep.MALA(steps=3)),
        "psdca": ep.PSDCA(ep.MALA(steps=3), batch=5),
    }


def picture() -> np.ndarray:
    y, x = np.mgrid[0:20, 0:24] / 24
    return np.stack([x, y, (x - 0.4) ** 2 + (y - 0.4) ** 2 < 0.06], axis=2).astype(np.float64)


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1]


def fitted() -> dict[str, object]:
    X, y = table()
    small = {
        "temperature": 0.03,
        "l2": 0.03,
        "particles": 64,
        "max_iter": 12,
        "random_state": 0,
        "tol": 5.0,
    }
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    return {
        "regressor": estimators.MeanFieldRegressor(**small).fit(X, y),
        "classifier": estimators.MeanFieldClassifier(**small).fit(X, labels),
        "density": estimators.MeanFieldDensity(
            bandwidth=0.5, particles=256, random_state=0, tol=5.0
        ).fit(X),
    }


def stop_after(iterations: int):
    def callback(report: ep.Report) -> None:
        if report.iteration == iterations:
            raise KeyboardInterrupt

    return callback


def main(folder: Path) -> None:
    expected: dict[str, object] = {"version": ep.__version__}
    for name, solver in solvers().items():
        solution = ep.solve(squared(), solver, **MOMENTS_FROM)
        ep.save(solution, folder / f"{name}.safetensors")
        expected[name] = np.asarray(solution.predict(ROWS)).tolist()
    painting = ep.paint(picture(), 12, iterations=30, seed=1)
    painting.save(folder / "painting.safetensors")
    expected["painting"] = {
        "mse": painting.mse,
        "mean": np.asarray(painting.picture).mean(axis=(0, 1)).tolist(),
    }
    X = table()[0][:6] + 0.1
    for name, estimator in fitted().items():
        ep.save(estimator, folder / f"{name}.safetensors")
        predict = {
            "regressor": "predict",
            "classifier": "predict_proba",
            "density": "score_samples",
        }[name]
        expected[name] = np.asarray(getattr(estimator, predict)(X)).tolist()
    for name, file in (("efp", "checkpoint"), ("naive_efp", "checkpoint_naive_efp")):
        ep.solve(
            squared(),
            solvers()[name],
            **MOMENTS_FROM,
            checkpoint=folder / f"{file}.safetensors",
            callback=stop_after(4),
        )
    command(folder, expected)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def command(folder: Path, expected: dict[str, object]) -> None:
    """A model as `entroplay fit` writes it, with the names of the table's columns."""
    from entroplay.commands import main as entroplay

    X, y = table()
    with tempfile.TemporaryDirectory() as scratch:
        data, out = Path(scratch) / "data.csv", Path(scratch) / "predictions.csv"
        lines = [
            f"{a},{b},{'red' if a > 0 else 'blue'},{t}"
            for (a, b), t in zip(X.tolist(), y.tolist(), strict=True)
        ]
        data.write_text("length,width,colour,height\n" + "\n".join(lines) + "\n")
        model = folder / "table_model.safetensors"
        options = [
            "--temperature",
            "0.03",
            "--l2",
            "0.03",
            "--no-baselines",
            "--quiet",
            "--out",
            f"{scratch}/fit.png",
        ]
        assert (
            entroplay(["fit", str(data), "--target", "height", "--model", str(model), *options])
            == 0
        )
        assert entroplay(["predict", str(model), str(data), "--out", str(out), "--quiet"]) == 0
        expected["table_model"] = {"data": data.read_text(), "predictions": out.read_text()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
