"""What the objects of torch, Python and others do when they are called."""
