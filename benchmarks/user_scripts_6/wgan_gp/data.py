import torch
from torch.utils.data import Dataset


class BlobDigits(Dataset):
    """16x16 grey images: one or two smooth strokes. Kept as one uint8 tensor in RAM."""

    def __init__(self, n=1024, size=16, seed=0):
        g = torch.Generator().manual_seed(seed)
        ax = torch.arange(size).float()
        yy, xx = torch.meshgrid(ax, ax, indexing='ij')
        imgs = torch.zeros(n, size, size)
        for k in range(2):
            cy = torch.rand(n, 1, 1, generator=g) * 8 + 4
            cx = torch.rand(n, 1, 1, generator=g) * 8 + 4
            th = torch.rand(n, 1, 1, generator=g) * 3.14159
            u = (yy - cy) * torch.cos(th) + (xx - cx) * torch.sin(th)
            v = -(yy - cy) * torch.sin(th) + (xx - cx) * torch.cos(th)
            imgs = torch.maximum(imgs, torch.exp(-u ** 2 / 18. - v ** 2 / 1.5))
        self.imgs = (imgs * 255).to(torch.uint8)

    def __len__(self):
        return self.imgs.size(0)

    def __getitem__(self, i):
        x = self.imgs[i].unsqueeze(0).float()
        return x / 127.5 - 1.
