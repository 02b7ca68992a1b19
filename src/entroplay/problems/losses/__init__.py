"""Convex losses of the moments."""
