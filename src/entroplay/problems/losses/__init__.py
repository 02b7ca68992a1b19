"""Convex losses of the moments."""

from .base import Loss as Loss
from .base import row_dot as row_dot
from .cross_entropy import CrossEntropy as CrossEntropy
from .function import FunctionLoss as FunctionLoss
from .huber import Huber as Huber
from .logistic import Logistic as Logistic
from .neg_log import NegLog as NegLog
from .squared import Squared as Squared
