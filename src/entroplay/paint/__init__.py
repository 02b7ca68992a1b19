"""Pictures painted with triangles: `entroplay.paint` and what belongs to it."""
