"""What the code behind a loader reads and changes, and what worker processes would not share."""
