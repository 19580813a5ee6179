"""The commands as functions: what to read, what to do, where it goes."""
