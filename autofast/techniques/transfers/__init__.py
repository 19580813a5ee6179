"""Copies to the device: asynchronous, redundant, or not needed at all."""
