import math

import torch
from torch.utils.data import DataLoader, IterableDataset


class Blobs(IterableDataset):
    """endless pictures of two coloured blobs; the state of its generator belongs to the checkpoint"""

    def __init__(self, size, seed):
        self.size = size
        self.g = torch.Generator().manual_seed(seed)
        self.served = 0

    def __iter__(self):
        ax = torch.arange(self.size).float()
        while True:
            im = torch.zeros(3, self.size, self.size)
            for k in range(2):
                c = torch.rand(2, generator=self.g) * (self.size - 6) + 3
                s = 1.5 + torch.rand(1, generator=self.g)
                col = torch.rand(3, generator=self.g)
                d = (ax[None] - c[0]) ** 2 + (ax[:, None] - c[1]) ** 2
                im = torch.maximum(im, col[:, None, None] * torch.exp(-d / (2 * s * s)))
            self.served += 1
            yield im * 2 - 1


class Infinite(DataLoader):
    """DataLoader with .take(): same iterator for the whole run"""

    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self._it = None

    def take(self):
        if self._it is None:
            self._it = iter(self)
        return next(self._it)


def augment(x, p, g):
    """flips and shifts with probability p for each sample (same ops for real and fake, differentiable)"""
    B = x.size(0)
    flip = (torch.rand(B, generator=g) < p).to(x.device)
    x = torch.where(flip[:, None, None, None], x.flip(3), x)
    shift = torch.randint(-2, 3, (B,), generator=g)
    use = torch.rand(B, generator=g) < p
    return torch.stack([im.roll(int(s), 2) if u else im for im, s, u in zip(x, shift, use)])


def frechet(a, b):
    """Frechet distance of colour statistics, float64 on the host"""
    def stat(x):
        f = torch.cat([x.mean((2, 3)), x.flatten(2).std(2)], 1).double()
        return f.mean(0), torch.cov(f.T) + 1e-9 * torch.eye(6, dtype=torch.float64)
    (m1, c1), (m2, c2) = stat(a), stat(b)
    ev = torch.linalg.eigvals(c1 @ c2).real.clamp(min=0)
    return ((m1 - m2).pow(2).sum() + c1.trace() + c2.trace() - 2 * ev.sqrt().sum()).item()


def noise(n, dim, g, device):
    return (torch.randn(n, dim, generator=g) / math.sqrt(dim)).to(device)
