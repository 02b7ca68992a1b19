"""How far from the global optimum one can still be."""
