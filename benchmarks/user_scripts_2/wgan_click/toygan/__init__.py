__all__ = ['data', 'nets', 'optim', 'loop']
