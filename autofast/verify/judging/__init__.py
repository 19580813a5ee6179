"""Does the rewritten script train the same? ``parity`` asks all checks, one module for each kind of
evidence.
"""
