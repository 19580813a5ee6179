"""Images in the order of memory that convolutions prefer."""
