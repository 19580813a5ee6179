"""From what happened to what it means: loaders, models, steps, evaluations."""
