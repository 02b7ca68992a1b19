"""What can be computed of one measure: averages, gaps, entropies, integrals."""
