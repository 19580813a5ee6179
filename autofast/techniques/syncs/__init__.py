"""Reads of tensors by the host, put off, moved or joined."""
