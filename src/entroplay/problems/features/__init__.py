"""Feature maps: how particles are evaluated at the data."""

from .base import FeatureMap as FeatureMap
from .function import FunctionFeatures as FunctionFeatures
from .gaussian import GaussianKernel as GaussianKernel
from .neurons import Neurons as Neurons
from .triangles import Triangles as Triangles
