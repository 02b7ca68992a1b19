"""Pictures painted with triangles: `entroplay.painting` and what belongs to it."""
