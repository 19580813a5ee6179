"""Networks run without numbers: constructors and forward passes of the project, as Python would run
them, with tensors that have a shape alone, as on torch's device ``meta``. What each operation costs
is counted on the way.
"""
