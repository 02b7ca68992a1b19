"""Estimators for people who know scikit-learn and nothing of measures, each with a certificate."""

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "entroplay.sklearn needs scikit-learn: pip install 'entroplay[sklearn]'."
    ) from None

from .density import MeanFieldDensity
from .network import MeanFieldClassifier, MeanFieldRegressor

__all__ = ["MeanFieldClassifier", "MeanFieldDensity", "MeanFieldRegressor"]
