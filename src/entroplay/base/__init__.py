"""Foundations that know nothing of measures: argument checks, compilation, records, kernels."""
