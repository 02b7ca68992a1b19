"""Feature maps: how data see a particle."""
