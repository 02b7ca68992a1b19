"""The public names, layer by layer: `import entroplay as ep` offers each name here as `ep.NAME`.

Losses, feature maps, samplers and solvers are not listed. Every class of such a family that its
package re-exports is public, so a new one needs its file and one line in the package's `__init__`.
"""

# The order is that of the layers.
# isort: off

# Problems: what is solved.
from .problems.problem import FiniteSum as FiniteSum
from .problems import losses as _losses
from .problems import features as _features
from .problems.datasets import teacher as teacher

# Measures: what can be computed of one measure.
from .measures.gibbs import Gibbs as Gibbs
from .measures.entropy import knn_entropy as knn_entropy
from .measures.entropy import objective as objective
from .measures.mixture import Mixture as Mixture

# Methods: how a cloud of particles moves.
from .methods import samplers as _samplers
from .methods import solvers as _solvers

# Runs: what a run leaves, and how it is kept.
from .runs.solution import Solution as Solution
from .runs.solution import Status as Status
from .runs.files import FileFormatError as FileFormatError
from .runs.files import load as load
from .runs.files import save as save

# Verbs: what is done with a problem or a solution.
from .verbs.solve import Report as Report
from .verbs.solve import solve as solve
from .verbs.certificate import Certificate as Certificate
from .verbs.certify import certify as certify
from .verbs.leave_one_out import LeaveOneOut as LeaveOneOut
from .verbs.leave_one_out import OptimisticWarning as OptimisticWarning
from .verbs.leave_one_out import leave_one_out as leave_one_out
from .verbs.path import TemperaturePath as TemperaturePath
from .verbs.path import path as path
from .verbs.compress import compress as compress
from .verbs import grid as grid
from .verbs import plot as plot

# Applications. The estimators are imported separately, from entroplay.sklearn.
from .painting.paint import paint as paint
from .painting.painting import Painting as Painting
from .painting.triangle_painter import TrianglePainter as TrianglePainter

_FAMILIES = (
    (_losses, _losses.Loss),
    (_features, _features.FeatureMap),
    (_samplers, _samplers.Sampler),
    (_solvers, _solvers.Solver),
)
"""Packages, each with the base class of the family that it holds."""
