"""One question about training each, asked by several rules."""
