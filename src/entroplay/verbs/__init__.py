"""What is done with a problem or a solution: one public verb per file."""
