"""Leaves are drawn, spoilt with noise and cleaned again."""
