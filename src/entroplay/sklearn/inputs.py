"""The inputs of an estimator: checked as scikit-learn does, and turned into numbers if need be.

Numbers without gaps are passed on as they are. Missing values, and data frames with columns of
categories, texts or dates, go through `Columns`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from sklearn.utils.validation import check_X_y, validate_data

from .columns import Columns

Raw = np.ndarray | dict[str, np.ndarray]
"""Inputs after the checks: a matrix with NaN for missing values, or the columns of a frame."""


def check_inputs(estimator: Any, X: Any, y: Any, **checks: Any) -> tuple[Raw, np.ndarray]:
    """Check the inputs and the targets of a fit; columns of categories stay as they are."""
    checks = {"dtype": np.float64, **checks}
    raw = _frame_columns(X)
    if raw is None or _all_numbers(raw):
        X, y = validate_data(estimator, X, y, ensure_all_finite="allow-nan", **checks)
        return X, y
    validate_data(estimator, X, y, skip_check_array=True)  # names and number of columns
    # The targets are checked beside a matrix that stands for the inputs.
    _, y = check_X_y(np.zeros((len(X), 1)), y, estimator=estimator, **checks)
    return raw, y


def learn_inputs(raw: Raw, weights: np.ndarray) -> tuple[np.ndarray, Columns | None]:
    """The matrix of inputs, and how it was made; None if nothing had to be done."""
    if isinstance(raw, np.ndarray):
        if not np.isnan(raw).any():
            return raw, None
        raw = {f"x{j}": column for j, column in enumerate(raw.T)}
    columns = Columns.learn(raw, weights)
    return _matrix(columns, raw), columns


def apply_inputs(estimator: Any, X: Any, columns: Columns | None, fill: np.ndarray) -> np.ndarray:
    """The matrix of inputs to predict at.

    Args:
        estimator: the fitted estimator, which knows the names and the number of columns.
        X: the inputs as they were given.
        columns: how the inputs of the fit were made; None if they were used as they were.
        fill: values (p,) for missing ones, if the fit saw none.
    """
    raw = None if columns is None else _frame_columns(X)
    if columns is None or (raw is None and getattr(getattr(X, "dtype", None), "kind", "") != "O"):
        X = validate_data(
            estimator, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False
        )
        if columns is None:
            return np.where(np.isnan(X), fill, X)
    else:
        validate_data(estimator, X, skip_check_array=True, reset=False)
    found = [raw_column(column) for column in X.T] if raw is None else list(raw.values())
    # Scikit-learn has compared names and order: columns are those of the fit by their places.
    names = [column.name for column in columns.columns]
    return _matrix(columns, dict(zip(names, found, strict=True)))


def _matrix(columns: Columns, raw: dict[str, np.ndarray]) -> np.ndarray:
    """The matrix of the columns, or one column of zeros where none varies."""
    matrix = columns.matrix(raw)
    return matrix if matrix.shape[1] else np.zeros((len(matrix), 1))


def _all_numbers(raw: dict[str, np.ndarray]) -> bool:
    return all(column.dtype.kind == "f" for column in raw.values())


def _frame_columns(X: Any) -> dict[str, np.ndarray] | None:
    """The columns of a data frame of pandas or polars; None for anything else."""
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return None
    if len(set(X.columns)) < len(X.columns):
        raise ValueError("Every column of X needs a unique name.")
    return {str(name): raw_column(X[name]) for name in X.columns}


def raw_column(values: Any) -> np.ndarray:
    """One column as float64, datetime64, or texts and None.

    >>> raw_column([1, None, True]), raw_column(["a", None, 2])
    (array([ 1., nan,  1.]), array(['a', None, '2'], dtype=object))
    """
    categorical = str(getattr(values, "dtype", "")) == "category"  # of pandas, perhaps of numbers
    array = np.asarray(values)
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]")
    if array.dtype.kind in "buif" and not categorical:
        return array.astype(np.float64)
    entries = [None if _is_missing(value) else value for value in array.tolist()]
    known = [value for value in entries if value is not None]
    if not categorical and all(isinstance(value, bool | int | float | Decimal) for value in known):
        return np.array([np.nan if value is None else float(value) for value in entries])
    if known and all(isinstance(value, date) for value in known):  # a datetime is a date, too
        moments = [None if value is None else _without_zone(value) for value in entries]
        return np.array(moments, "datetime64[us]")
    return np.array([None if value is None else str(value) for value in entries], object)


def _is_missing(value: object) -> bool:
    # The NA of pandas cannot be compared, and only NaN and NaT differ from themselves.
    return value is None or type(value).__name__ == "NAType" or value != value


def _without_zone(value: date) -> date:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
