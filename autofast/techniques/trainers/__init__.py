"""Options of frameworks that have the training loop."""
