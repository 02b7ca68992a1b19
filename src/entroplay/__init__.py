"""entroplay: optimisation over probability measures, with a number that says how far from the optimum you are."""

from importlib.metadata import PackageNotFoundError, version

from .measures.entropy import knn_entropy, objective
from .measures.gibbs import Gibbs
from .methods.samplers.base import MALA, ULA, Sampler
from .methods.solvers import EFP, MFLD, PDA, PSDCA, NaiveEFP, NewtonEFP, Solver
from .painting.paint import paint
from .painting.painting import Painting
from .painting.triangle_painter import TrianglePainter
from .problems.features.base import FeatureMap, FunctionFeatures, GaussianKernel
from .problems.features.neurons import Neurons
from .problems.features.triangles import Triangles
from .problems.losses.base import CrossEntropy, FunctionLoss, Huber, Logistic, Loss, NegLog, Squared
from .problems.problem import FiniteSum
from .runs.files import FileFormatError, load, save
from .runs.solution import Solution, Status
from .verbs.certify import Certificate, certify
from .verbs.compress import compress
from .verbs.path import TemperaturePath, path
from .verbs.solve import Report, solve

from .verbs import grid  # isort: skip
from .verbs import plot  # isort: skip
from .problems.datasets import teacher  # isort: skip

try:
    __version__ = version("entroplay")
except PackageNotFoundError:  # the source tree, not installed
    __version__ = "0.0.0"

__all__ = [
    "EFP", "MALA", "MFLD", "PDA", "PSDCA", "ULA", "Certificate", "CrossEntropy", "FeatureMap", "FileFormatError", "FiniteSum",
    "FunctionFeatures", "FunctionLoss", "GaussianKernel", "Gibbs", "Huber", "Logistic", "Loss", "NaiveEFP", "NegLog", "Neurons",
    "NewtonEFP", "Painting", "Report", "Sampler", "Solution", "Solver", "Squared", "Status", "TemperaturePath",
    "TrianglePainter", "Triangles", "certify", "compress", "grid", "knn_entropy", "load", "objective", "paint", "path", "plot",
    "save", "solve", "teacher",
]  # fmt: skip
