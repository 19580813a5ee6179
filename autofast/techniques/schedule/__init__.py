"""Learning rates that change after every update."""
