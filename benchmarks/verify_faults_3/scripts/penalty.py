"""A critic with a gradient penalty, three of its steps for each of the generator's, batches from an endless loader, samples kept at the end."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(97)


def real(count):
    generator = torch.Generator().manual_seed(12)
    angle = torch.randint(0, 6, (count,), generator=generator) * 1.0472
    return torch.stack([2 * angle.cos(), 2 * angle.sin()], 1) + 0.1 * torch.randn(count, 2, generator=generator)


def endless(loader):
    while True:
        for (rows,) in loader:
            yield rows


def penalty(critic, rows, fake):
    share = torch.rand(len(rows), 1)
    mixed = (share * rows + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean()


def main():
    batches = endless(DataLoader(TensorDataset(real(384)), batch_size=32, shuffle=True))
    make = nn.Sequential(nn.Linear(6, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
    critic = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
    first = torch.optim.Adam(make.parameters(), lr=2e-3, betas=(0.0, 0.9))
    second = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    for step in range(40):
        gap = 0.0
        for _ in range(3):
            rows = next(batches)
            fake = make(torch.randn(len(rows), 6)).detach()
            good, bad = critic(rows), critic(fake)
            loss = bad.mean() - good.mean() + 10 * penalty(critic, rows, fake) + 0.001 * good.pow(2).mean()
            second.zero_grad()
            loss.backward()
            second.step()
            gap += (good.mean() - bad.mean()).item()
        cost = -critic(make(torch.randn(32, 6))).mean()
        first.zero_grad()
        cost.backward()
        first.step()
        if step % 8 == 7:
            print(f"step {step + 1}: gap {gap / 3:.4f} cost {cost.item():.4f}")
    make.eval()
    with torch.no_grad():
        shown = make(torch.randn(64, 6))
    torch.save({"make": make.state_dict(), "critic": critic.state_dict(), "shown": shown}, "penalty.pt")


main()
