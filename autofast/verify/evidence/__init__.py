"""What runs recorded, sorted, and what two of them have in common before any number is judged."""
