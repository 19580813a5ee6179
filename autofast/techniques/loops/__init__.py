"""Loops of the host over the rows of tensors, written as operations on the whole tensors."""
