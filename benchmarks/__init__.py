"""Measurements, each one documented command."""
