"""Data sets: the paper's teacher network and two small real ones."""
