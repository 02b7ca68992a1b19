"""A run and what it leaves: the loop, observers, stopping rules, history, files."""
