"""A small GAN: biases before instance norm have gradients that are zero but for rounding, and Adam
makes full steps of them.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)


def block(inner, outer, **more):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1, **more),
        nn.InstanceNorm2d(outer, affine=True),
        nn.ReLU(),
    )


def main():
    images = torch.tanh(torch.randn(96, 3, 8, 8).cumsum(2) / 3)
    loader = DataLoader(TensorDataset(images), batch_size=8, shuffle=True)
    generator = nn.Sequential(
        block(3, 16), block(16, 16), nn.Conv2d(16, 3, 3, padding=1), nn.Tanh()
    )
    critic = nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1),
        nn.LeakyReLU(0.01),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(0.01),
        nn.Conv2d(32, 1, 2),
    )
    one = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    two = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    for epoch in range(3):
        for (real,) in loader:
            fake = generator(torch.randn_like(real))
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
            two.zero_grad()
            loss.backward()
            two.step()
            deceived = F.softplus(-critic(fake)).mean()
            one.zero_grad()
            deceived.backward()
            one.step()
        print(f"epoch {epoch}: critic {loss.item():.3f}, generator {deceived.item():.3f}")


main()
