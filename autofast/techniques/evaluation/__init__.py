"""Evaluations without gradients."""
