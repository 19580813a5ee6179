"""One update of the gradients of several batches."""
