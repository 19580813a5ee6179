"""What 16-bit arithmetic would do to a piece of code."""
