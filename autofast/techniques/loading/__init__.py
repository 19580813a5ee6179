"""Batches: workers, windows, transfers."""
