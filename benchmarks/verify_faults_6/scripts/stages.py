"""A frozen body first, then all of it with a second optimizer: noise for every item in two workers, a rate that falls with the epochs."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(41)


class Rows(Dataset):
    def __init__(self, count, seed, noise):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 10, generator=generator)
        self.y = (self.x[:, 0] * self.x[:, 1] + self.x[:, 2])[:, None]
        self.noise = noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if self.noise:
            x = x + self.noise * torch.randn(10)
        return x, self.y[index]


def run(model, parts, train, epochs, rate):
    optimizer = torch.optim.AdamW(parts, lr=rate, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    for epoch in range(epochs):
        model.train()
        total, count = 0.0, 0
        for x, y in train:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(x), count + len(x)
        scheduler.step()
        print(f"epoch {epoch} loss {total / count:.4f}")


def main():
    train = DataLoader(Rows(200, 0, 0.05), batch_size=16, shuffle=True, num_workers=2)
    valid = DataLoader(Rows(80, 1, 0.0), batch_size=32)
    body = nn.Sequential(nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(body, nn.Linear(48, 1))
    for p in body.parameters():
        p.requires_grad_(False)
    run(model, model[1].parameters(), train, 2, 2e-2)
    for p in body.parameters():
        p.requires_grad_(True)
    run(model, model.parameters(), train, 4, 1e-2)
    model.eval()
    with torch.no_grad():
        print("valid", round(sum(F.mse_loss(model(x), y, reduction="sum").item() for x, y in valid) / 80, 4))
    torch.save(model.state_dict(), "stages.pt")


main()
