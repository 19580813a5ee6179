"""16-bit arithmetic for a whole script: autocast, GradScaler."""
