"""Starts the package beside it."""

from garden.grow import grow

if __name__ == "__main__":
    grow()
