"""The planners of the big rewrites, one folder each; none imports another."""
