"""Contrastive learning: two random views of every sample made in two workers, a projection head that is thrown away, warm-up by LambdaLR."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(23)


def seed_worker(worker):
    np.random.seed(torch.initial_seed() % 2**32)


class Views(Dataset):
    def __init__(self, count=128):
        generator = torch.Generator().manual_seed(0)
        kinds = torch.randint(0, 8, (count,), generator=generator)
        self.rows = torch.randn(8, 24, generator=generator)[kinds] + 0.5 * torch.randn(count, 24, generator=generator)

    def __len__(self):
        return len(self.rows)

    def view(self, row):
        row = row * float(np.random.uniform(0.7, 1.3)) + 0.2 * torch.randn(24)
        keep = torch.rand(24) > 0.2
        return row * keep

    def __getitem__(self, index):
        return self.view(self.rows[index]), self.view(self.rows[index])


def contrast(a, b, temperature=0.2):
    z = F.normalize(torch.cat([a, b]), dim=1)
    similar = z @ z.t() / temperature
    similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    target = torch.arange(len(z)).roll(len(a))
    return F.cross_entropy(similar, target)


def main():
    loader = DataLoader(Views(), batch_size=16, shuffle=True, drop_last=True, num_workers=2, worker_init_fn=seed_worker)
    encoder = nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24))
    head = nn.Sequential(nn.ReLU(), nn.Linear(24, 16))
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    for epoch in range(4):
        total = torch.zeros(())
        for a, b in loader:
            za, zb = head(encoder(a)), head(encoder(b))
            loss = contrast(za, zb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / len(loader):.4f} lr {scheduler.get_last_lr()[0]:.3f}")
    torch.save({"encoder": encoder.state_dict()}, "encoder.pt")


main()
