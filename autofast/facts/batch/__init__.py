"""What a value is of the samples of a batch: their mean, their sum, one row each, a size, a
constant.

``kinds`` is the lattice, ``losses`` the walk from a loss back to the batch, ``calls`` what calls of
torch do on it, ``samples`` what is known of a value at once, ``losses_of_torch`` the tables.
"""
