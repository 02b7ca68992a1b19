"""entroplay: optimisation over probability measures, with a number that says how far from the optimum you are."""

from importlib.metadata import PackageNotFoundError, version

from .certificate.certify import Certificate, certify
from .certificate.entropy import knn_entropy, objective
from .compress import compress
from .features import FeatureMap, FunctionFeatures, GaussianKernel
from .gibbs import Gibbs
from .losses import CrossEntropy, FunctionLoss, Huber, Logistic, Loss, NegLog, Squared
from .neurons import Neurons
from .paint.painter import paint
from .paint.painting import Painting
from .paint.solver import TrianglePainter
from .problem import FiniteSum
from .samplers import MALA, ULA, Sampler
from .solution import Solution, Status
from .solve import Report, solve
from .solvers import EFP, MFLD, PDA, PSDCA, NaiveEFP, NewtonEFP, Solver
from .storage import FileFormatError, load, save
from .temperatures import TemperaturePath, path
from .triangles import Triangles

from . import grid, plot, teacher  # isort: skip

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
