"""Pictures painted with transparent triangles: `entroplay.paint` and what belongs to it."""

from .painting import Painting as Painting
from .triangle_painter import TrianglePainter as TrianglePainter
from .watching import Progress as Progress
