"""Certified estimators with the interface of scikit-learn; no knowledge of measures is needed."""

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "entroplay.sklearn needs scikit-learn: pip install 'entroplay[sklearn]'."
    ) from None

from .classifier import MeanFieldClassifier
from .density import MeanFieldDensity
from .regressor import MeanFieldRegressor

__all__ = ["MeanFieldClassifier", "MeanFieldDensity", "MeanFieldRegressor"]
