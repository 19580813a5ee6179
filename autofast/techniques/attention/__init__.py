"""Attention that is written out, and the one call that computes it."""
