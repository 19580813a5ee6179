"""A small GAN on points in the plane: two optimizers, noise in memory, a moving average of the generator for the samples that are kept."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(31)


def ring(count):
    generator = torch.Generator().manual_seed(0)
    angle = 2 * torch.pi * torch.rand(count, generator=generator)
    points = torch.stack([angle.cos(), 2 * angle.sin()], 1)
    return TensorDataset(points + 0.1 * torch.randn(count, 2, generator=generator))


def main():
    loader = DataLoader(ring(192), batch_size=16, shuffle=True, drop_last=True)
    make = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1))
    average = copy.deepcopy(make)
    first = torch.optim.Adam(make.parameters(), lr=2e-3, betas=(0.5, 0.999))
    second = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
    for epoch in range(4):
        real_loss = fake_loss = 0.0
        for (real,) in loader:
            fake = make(torch.randn(len(real), 4))
            wrong = judge(fake.detach())
            right = judge(real)
            loss = F.binary_cross_entropy_with_logits(right, 0.9 * torch.ones_like(right)) + F.binary_cross_entropy_with_logits(wrong, torch.zeros_like(wrong))
            second.zero_grad()
            loss.backward()
            second.step()
            wish = judge(fake)
            cost = F.binary_cross_entropy_with_logits(wish, torch.ones_like(wish))
            first.zero_grad()
            cost.backward()
            first.step()
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), make.parameters()):
                    mine.lerp_(theirs, 0.05)
            real_loss += loss.item()
            fake_loss += cost.item()
        print(f"epoch {epoch} judge {real_loss / len(loader):.4f} make {fake_loss / len(loader):.4f}")
    torch.save({"average": average.state_dict(), "make": make.state_dict()}, "gan.pt")


main()
