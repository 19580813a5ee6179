"""Which values are equal in all ranks, and which numbers need a collective."""
