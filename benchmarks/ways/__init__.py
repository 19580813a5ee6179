"""What rules rest on, and the ways in which a script can go against it."""
