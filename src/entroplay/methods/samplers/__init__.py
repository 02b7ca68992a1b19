"""Chains that move a cloud towards a Gibbs measure."""
