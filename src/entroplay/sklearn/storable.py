"""Estimators taken apart for `entroplay.save`, and put together again by `entroplay.load`."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..runs.model import Model
from ..runs.solution import Solution
from ..verbs.certify import Certificate


class Storable:
    """What an estimator needs to be kept in a file: the names of its learned attributes, with the record behind each if there is
    one, and a method that derives the others from the solution.
    """

    _learned: ClassVar[dict[str, type | None]] = {}
    solution_: Solution
    certificate_: Certificate | None

    def _derive(self) -> None:
        """Set what follows from `solution_` and `certificate_`."""
        raise NotImplementedError

    def to_model(self) -> Model:
        """The estimator as records. A random_state that is no number, and classes of one's own, cannot be kept."""
        check_is_fitted(self)
        parameters = {
            name: _pack_parameter(name, value)
            for name, value in self.get_params(deep=False).items()
        }  # type: ignore[attr-defined]
        state = {name: _pack(getattr(self, name)) for name in self._learned if hasattr(self, name)}
        return Model(type(self).__name__, parameters, state, self.solution_, self.certificate_)

    @classmethod
    def from_model(cls, model: Model) -> Any:
        """The estimator that was taken apart."""
        parameters = {
            name: _unpack_parameter(name, value) for name, value in model.parameters.items()
        }
        estimator = cls(**parameters)
        unknown = model.state.keys() - cls._learned.keys()
        if unknown:
            raise TypeError(
                f"{cls.__name__} has no attributes {sorted(unknown)} in this version of entroplay"
            )
        for name, value in model.state.items():
            record = cls._learned[name]
            setattr(estimator, name, _unpack(value) if record is None else record(**value))
        estimator.solution_, estimator.certificate_ = model.solution, model.certificate
        estimator._derive()
        return estimator


def _pack_parameter(name: str, value: Any) -> Any:
    if isinstance(value, dict):  # class_weight: its keys need not be texts
        return {"pairs": [[_plain(k), _plain(v)] for k, v in value.items()]}
    if name == "random_state" and not (value is None or isinstance(value, int | np.integer)):
        raise ValueError(
            f"random_state is a {type(value).__name__}, which no file can hold: use a number or None."
        )
    return _plain(value)


def _unpack_parameter(name: str, value: Any) -> Any:
    return dict(map(tuple, value["pairs"])) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _pack(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUSb":  # labels and names
        return {"labels": value.tolist()}
    if isinstance(value, list):
        return [
            tuple(map(_plain, item)) if isinstance(item, tuple) else _plain(item) for item in value
        ]
    return _plain(value)


def _unpack(value: Any) -> Any:
    if isinstance(value, dict) and "labels" in value:
        labels = value["labels"]
        return np.array(labels, object if any(isinstance(label, str) for label in labels) else None)
    return value


def estimator_of(model: Model) -> Any:
    """The estimator that a file describes."""
    from .density import MeanFieldDensity
    from .network import MeanFieldClassifier, MeanFieldRegressor

    classes = {
        cls.__name__: cls for cls in (MeanFieldRegressor, MeanFieldClassifier, MeanFieldDensity)
    }
    if model.name not in classes:
        raise TypeError(f"there is no estimator {model.name}")
    return classes[model.name].from_model(model)
