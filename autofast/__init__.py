"""autofast rewrites PyTorch training scripts into faster ones, every hunk with its reason."""

__version__ = "0.1.0"
DISTRIBUTION = "autofast-torch"  # what pip calls it: the name autofast belongs to another library
