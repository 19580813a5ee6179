"""What older versions of torch needed."""
