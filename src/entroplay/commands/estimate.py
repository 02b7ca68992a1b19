"""`entroplay fit`, `predict` and `density`: from a table to a certified model, and back."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.files import FileFormatError, load, save
from .paint import UsageError
from .tables import Inputs, Table, TableError, read_table, to_csv, write_csv

Say = Callable[..., None]
PICTURES = (".png", ".svg", ".pdf")
FEW_CLASSES = 20
"""A numeric target of whole numbers with no more values than this, and few for its number of rows, is taken for labels."""


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `entroplay fit`."""
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="a .csv or .parquet file with a header"
    )
    parser.add_argument("--target", required=True, metavar="COLUMN", help="the column to predict")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column to leave out; may be repeated",
    )
    parser.add_argument(
        "--task",
        choices=("regression", "classification"),
        help="default: by the type of the target",
    )
    parser.add_argument(
        "--loss",
        choices=("squared", "huber"),
        default="squared",
        help="of a regression (default: %(default)s)",
    )
    _add_number(
        parser, "--temperature", "strength of the entropy (default: found by an internal split)"
    )
    _add_number(parser, "--l2", "penalty (default: found likewise)")
    parser.add_argument(
        "--held-out",
        type=_share,
        default=0.2,
        metavar="SHARE",
        help="rows to score by (default: %(default)s)",
    )
    parser.add_argument("--no-baselines", action="store_true", help="do not fit others beside it")
    _add_files(parser, "the model (default: <data>-model.safetensors)", "<data>-fit.png")


def add_predict_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `entroplay predict`."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="what `entroplay fit` or `entroplay density` saved",
    )
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="a .csv or .parquet file with the columns of the training data",
    )
    parser.add_argument(
        "--out", type=Path, action="append", metavar="FILE",
        help="a .csv file for the predictions, or a picture (.png, .svg, .pdf); may be repeated. Default: csv on stdout",
    )  # fmt: skip


def add_density_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `entroplay density`."""
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="a .csv or .parquet file with a header"
    )
    parser.add_argument(
        "--columns", metavar="A,B", help="the columns to use (default: all that hold numbers)"
    )
    _add_number(
        parser,
        "--bandwidth",
        "of the kernel, one being as wide as the data (default: cross-validated)",
    )
    parser.add_argument(
        "--covariance",
        choices=("local", "full", "diag"),
        default="local",
        help="shape of the kernel",
    )
    _add_number(parser, "--temperature", "strength of the entropy (default: 0.1)")
    parser.add_argument(
        "--held-out",
        type=_share,
        default=0.2,
        metavar="SHARE",
        help="rows to score by (default: %(default)s)",
    )
    parser.add_argument("--no-baselines", action="store_true", help="do not fit others beside it")
    _add_files(parser, "the model (default: <data>-density.safetensors)", "<data>-density.png")


def _add_number(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(name, type=_positive, metavar="NUMBER", help=text)


def _add_files(parser: argparse.ArgumentParser, model: str, picture: str) -> None:
    parser.add_argument("--model", type=Path, metavar="FILE", help=model)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PICTURE",
        help=f"a picture (.png, .svg, .pdf; default: {picture})",
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text}") from None


def _positive(text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value


def run_fit(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Score on rows held out, beside baselines; then fit all rows, save, draw."""
    from ..sklearn import drawing

    table = _table(options.data)
    model_path, picture = _paths(options, "model", "fit")
    try:
        target = table.column(options.target)
        for name in options.ignore:
            table.column(name)
        inputs = Inputs.of(table, [options.target, *options.ignore])
        X = inputs.matrix(table)
        classification = (options.task or _task(target)) == "classification"
        y = _labels(target) if classification else _numbers(options.target, target)
    except TableError as error:
        raise UsageError(str(error)) from error
    train, test = _split(len(y), options, y if classification else None)
    say(
        f"{table.name}: {len(y)} rows, {X.shape[1]} inputs, {_describe(options.target, y, classification)}"
    )
    model = _estimator(options, classification)
    rows, held_out = [], None
    for name, estimator in {
        "entroplay": model,
        **({} if options.no_baselines else _baselines(classification)),
    }.items():
        began = time.perf_counter()
        fitted = _fitted(estimator, X[train], y[train])
        rows.append(
            {
                "model": name,
                "score": float(fitted.score(X[test], y[test])),
                "seconds": time.perf_counter() - began,
            }
        )
        held_out = fitted.predict(X[test]) if held_out is None else held_out
    measure = "accuracy" if classification else "R2"
    say(f"\n{'held-out ' + measure:<28}{'score':>8}{'seconds':>9}   ({len(test)} rows)")
    for row in rows:
        say(f"{row['model']:<28}{row['score']:>8.4f}{row['seconds']:>9.2f}")
    final = _fitted(_estimator(options, classification), X, y, aloud=say)
    final.columns_ = {"target": options.target, "inputs": inputs.to_list()}
    say("\n" + _certified(final))
    say(
        f"temperature {final.temperature_:.3g}, l2 {final.l2_:.3g}, {final.n_iter_} iterations, all {len(y)} rows"
    )
    save(final, model_path)
    drawing.draw_predictions(y[test], np.asarray(held_out), options.target, picture, classification)
    say(f"Wrote {model_path}, {picture}")
    return {
        "task": "classification" if classification else "regression", "rows": len(y), "inputs": X.shape[1], "measure": measure,
        "held_out": rows, **_facts(final), "temperature": final.temperature_, "l2": final.l2_, "seed": options.seed,
        "files": [str(model_path), str(picture)],
    }  # fmt: skip


def run_predict(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Predictions (or log-densities) for the rows of a table."""
    table = _table(options.data)
    outputs = options.out or []
    for path in outputs:
        if path.suffix.lower() not in (*PICTURES, ".csv"):
            raise UsageError(f"--out must end in .csv or {', '.join(PICTURES)}, got {path}.")
        _check_folder(path)
    _need_sklearn()
    try:
        model = load(options.model)
        if not hasattr(model, "columns_"):
            raise UsageError(
                f"{options.model} was not saved by `entroplay fit` or `entroplay density`: its columns have no names."
            )
        X = Inputs.from_list(model.columns_["inputs"]).matrix(table)
    except (TableError, FileFormatError, OSError) as error:
        raise UsageError(str(error)) from error
    target = model.columns_["target"]
    if target is None:
        columns = {"log_density": model.score_samples(X)}
    elif hasattr(model, "classes_"):
        shares = model.predict_proba(X)
        columns = {target: model.predict(X)} | {
            f"P({label})": shares[:, k] for k, label in enumerate(model.classes_)
        }
    else:
        columns = {target: model.predict(X)}
    if not outputs and not options.json:
        print(to_csv(columns), end="", flush=True)
    for path in outputs:
        if path.suffix.lower() == ".csv":
            write_csv(path, columns)
        else:
            _draw_predicted(model, table, X, columns, target, path)
        say(f"Wrote {path}")
    return {
        "rows": len(table),
        "columns": list(columns),
        **_facts(model),
        "files": [str(p) for p in outputs],
    } | (
        {}
        if outputs
        else {"predictions": {name: values.tolist() for name, values in columns.items()}}
    )


def run_density(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Score on rows held out, beside baselines; then fit all rows, save, draw."""
    from ..sklearn import MeanFieldDensity, drawing

    table = _table(options.data)
    model_path, picture = _paths(options, "density", "density")
    try:
        if options.columns is None:
            names = [name for name, values in table.columns.items() if values.dtype != object]
        else:
            names = [name.strip() for name in options.columns.split(",")]
        inputs = Inputs.of(
            Table(table.name, {name: _numbers(name, table.column(name)) for name in names})
        )
        X = inputs.matrix(table)
    except (TableError, StopIteration) as error:
        raise UsageError(str(error)) from error
    train, test = _split(len(X), options, None)
    say(f"{table.name}: {len(X)} rows of {', '.join(names)}")

    def estimator() -> MeanFieldDensity:
        given = {} if options.temperature is None else {"temperature": options.temperature}
        return MeanFieldDensity(
            options.bandwidth or "auto",
            covariance=options.covariance,
            random_state=options.seed,
            **given,
        )

    rows = []
    for name, candidate in {
        "entroplay": estimator(),
        **({} if options.no_baselines else _density_baselines(X[train])),
    }.items():
        began = time.perf_counter()
        fitted = _fitted(candidate, X[train])
        score = float(np.mean(fitted.score_samples(X[test])))
        rows.append({"model": name, "score": score, "seconds": time.perf_counter() - began})
    say(f"\n{'held-out log-likelihood':<28}{'mean':>9}{'seconds':>9}   ({len(test)} rows)")
    for row in rows:
        say(f"{row['model']:<28}{row['score']:>9.4f}{row['seconds']:>9.2f}")
    final = _fitted(estimator(), X, aloud=say)
    final.columns_ = {"target": None, "inputs": inputs.to_list()}
    say("\n" + _certified(final))
    say(f"bandwidth {final.bandwidth_:.3g}, {len(final.weights_)} normals, all {len(X)} rows")
    save(final, model_path)
    drawing.draw_density(final, X, names, picture)
    say(f"Wrote {model_path}, {picture}")
    return {
        "rows": len(X), "columns": names, "measure": "mean log-likelihood", "held_out": rows, **_facts(final),
        "bandwidth": final.bandwidth_, "seed": options.seed, "files": [str(model_path), str(picture)],
    }  # fmt: skip


def _need_sklearn() -> None:
    import entroplay.sklearn  # noqa: F401


def _table(path: Path) -> Table:
    try:
        return read_table(path)
    except TableError as error:
        raise UsageError(str(error)) from error


def _paths(options: argparse.Namespace, model: str, picture: str) -> tuple[Path, Path]:
    """Where model and picture go, checked before any work is done."""
    model_path = options.model or Path(f"{options.data.stem}-{model}.safetensors")
    picture_path = options.out or Path(f"{options.data.stem}-{picture}.png")
    if picture_path.suffix.lower() not in PICTURES:
        raise UsageError(f"--out must end in {', '.join(PICTURES)}, got {picture_path}.")
    for path in (model_path, picture_path):
        _check_folder(path)
    return model_path, picture_path


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent} to write to: make it first.")


def _task(target: np.ndarray) -> str:
    """Texts are labels, and so are a few whole numbers; all else is regression."""
    if target.dtype == object:
        return "classification"
    values = np.unique(target)
    few = len(values) <= min(FEW_CLASSES, max(2, len(target) // 10))
    return "classification" if few and (values == np.round(values)).all() else "regression"


def _labels(target: np.ndarray) -> np.ndarray:
    if target.dtype == object:
        return target.astype(str).astype(object)
    return (
        target.astype(int)
        if (target == np.round(target)).all()
        else np.array([f"{v:g}" for v in target], dtype=object)
    )


def _numbers(name: str, column: np.ndarray) -> np.ndarray:
    if column.dtype == object:
        raise TableError(f"Column {name!r} must hold numbers, got {column[0]!r} among others.")
    return column


def _describe(name: str, y: np.ndarray, classification: bool) -> str:
    if classification:
        return f"classification of {name!r} into {len(np.unique(y))} classes"
    return f"regression of {name!r} (from {y.min():g} to {y.max():g})"


def _split(
    n: int, options: argparse.Namespace, labels: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.model_selection import train_test_split

    if n < 10:
        raise UsageError(
            f"{options.data} has {n} rows; a fit with rows held out needs 10 at the least."
        )
    common = labels is not None and np.unique(labels, return_counts=True)[1].min() >= 2
    train, test = train_test_split(
        np.arange(n),
        test_size=options.held_out,
        random_state=options.seed,
        stratify=labels if common else None,
    )
    return np.asarray(train), np.asarray(test)


def _estimator(options: argparse.Namespace, classification: bool) -> Any:
    from ..sklearn import MeanFieldClassifier, MeanFieldRegressor

    common = {
        "temperature": options.temperature or "auto",
        "l2": options.l2 or "auto",
        "random_state": options.seed,
    }
    return (
        MeanFieldClassifier(**common)
        if classification
        else MeanFieldRegressor(options.loss, **common)
    )


def _baselines(classification: bool) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if classification:
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        return {
            "logistic regression": linear,
            "gradient boosting": HistGradientBoostingClassifier(random_state=0),
        }
    linear = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    return {"ridge": linear, "gradient boosting": HistGradientBoostingRegressor(random_state=0)}


def _density_baselines(X: np.ndarray) -> dict[str, Any]:
    from sklearn.mixture import GaussianMixture

    most = min(6, len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixtures = [GaussianMixture(k, random_state=0).fit(X) for k in range(1, most + 1)]
    best = min(mixtures, key=lambda mixture: mixture.bic(X))
    return {"one normal": GaussianMixture(1), f"{best.n_components} normals (by BIC)": best}


def _fitted(estimator: Any, *data: np.ndarray, aloud: Say | None = None) -> Any:
    """Fit; warnings are said once, about the model that is kept."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(*data)
    for warning in caught if aloud is not None else []:
        aloud(f"note: {warning.message}")  # type: ignore[misc]
    return estimator


def _certified(model: Any) -> str:
    certificate = model.certificate_
    if certificate is None or not certificate.mixed:
        return "The distance to the global optimum could not be verified" + (
            f": {certificate.reason}." if certificate else "."
        )
    return f"Certified: at most {certificate.bound:.3g} above the global optimum."


def _facts(model: Any) -> dict[str, Any]:
    certificate = model.certificate_
    verified = certificate is not None and certificate.mixed
    return {"bound": certificate.bound if certificate else None, "verified": verified}


def _draw_predicted(
    model: Any,
    table: Table,
    X: np.ndarray,
    columns: dict[str, np.ndarray],
    target: str | None,
    path: Path,
) -> None:
    """Against the truth where the table has it, else how the predictions are distributed."""
    from ..sklearn import drawing

    if target is None:
        return drawing.draw_density(model, X, [name for name, _ in model.columns_["inputs"]], path)
    classification = hasattr(model, "classes_")
    predicted = columns[target]
    if target in table.columns:
        truth = table.columns[target]
        return drawing.draw_predictions(
            _labels(truth) if classification else truth, predicted, target, path, classification
        )
    return drawing.draw_distribution(predicted, target, path, classification)
