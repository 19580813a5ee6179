import torch


def jitter(x, sigma=0.05):
    return x + sigma * torch.randn_like(x)


def scale(x):
    return x * (1 + 0.2 * torch.randn(x.size(0), 1).to(x.device))


def baseline_wander(x):
    t = torch.linspace(0, 1, x.size(-1)).to(x.device)
    f = 1 + 2 * torch.rand(1).item()
    phase = 6.2831 * torch.rand(1).item()
    return x + 0.15 * torch.sin(6.2831 * f * t + phase)


def time_mask(x, width=24):
    s = int(torch.randint(0, x.size(-1) - width, (1,)))
    x = x.clone()
    x[:, s:s + width] = 0
    return x


class TwoCrops:
    """two random crops/augmentations of every record in the batch"""

    def __init__(self, crop=160, p=0.7):
        self.crop = crop
        self.p = p
        self.ops = [jitter, scale, baseline_wander, time_mask]

    def one(self, x):
        s = int(torch.randint(0, x.size(-1) - self.crop + 1, (1,)))
        x = x[:, s:s + self.crop]
        for op in self.ops:
            if torch.rand(1).item() < self.p:
                x = op(x)
        return x

    def __call__(self, batch):
        v1 = torch.stack([self.one(x) for x in batch])
        v2 = torch.stack([self.one(x) for x in batch])
        return v1, v2
