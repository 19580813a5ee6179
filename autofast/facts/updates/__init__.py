"""When gradients are made, clipped, applied and cleared, and how often."""
