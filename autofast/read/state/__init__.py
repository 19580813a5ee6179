"""What one run through a script holds, and what it offers to the library and to the parts of the
interpreter.
"""
