"""What a value is of the samples of a batch: their mean, their sum, one row each, a size, a constant."""
