"""How a cloud of particles and a dual vector move: samplers and solvers."""
