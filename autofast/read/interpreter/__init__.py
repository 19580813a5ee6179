"""Follows a script from its first line, with abstract values instead of real ones."""
