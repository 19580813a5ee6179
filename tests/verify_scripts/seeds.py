"""Sets every seed itself, and prints what it then draws."""

import random

import numpy as np
import torch

random.seed(1)
np.random.seed(2)
torch.manual_seed(3)
print("random", random.random())
print("numpy", np.random.rand())
print("torch", torch.rand(1).item())
print("generator", torch.rand(1, generator=torch.Generator().manual_seed(4)).item())
print("default_rng", np.random.default_rng(5).random())
print("RandomState", np.random.RandomState(6).rand())
print("Random", random.Random(7).random())
assert isinstance(torch.default_generator, torch.Generator)
assert isinstance(np.random.mtrand._rand, np.random.RandomState)
