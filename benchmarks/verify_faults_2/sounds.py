"""Short sounds: shifts, noise and masking for every item in a worker, a weighted sampler, focal loss, accuracy of every class."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

random.seed(43)
torch.manual_seed(43)


class Sounds(Dataset):
    def __init__(self, count, seed, train):
        generator = torch.Generator().manual_seed(seed)
        self.train = train
        self.labels = (torch.rand(count, generator=generator) ** 2 * 4).long()
        time = torch.arange(48.0)
        pace = 0.25 + 0.3 * self.labels[:, None] + 0.05 * torch.randn(count, 1, generator=generator)
        self.waves = torch.sin(pace * time) + 0.5 * torch.randn(count, 48, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        wave = self.waves[index]
        if self.train:
            wave = wave.roll(int(torch.randint(0, 12, ())))
            wave = wave + 0.2 * torch.randn(48)
            start = int(torch.randint(0, 40, ()))
            wave = wave.clone()
            wave[start : start + 8] = 0
        return wave[None], self.labels[index]


def focal(logits, y, gamma=2.0):
    lost = F.cross_entropy(logits, y, reduction="none")
    return ((1 - torch.exp(-lost)) ** gamma * lost).mean()


def main():
    data = Sounds(192, 0, True)
    share = 1.0 / torch.bincount(data.labels, minlength=4)[data.labels].float()
    sampler = WeightedRandomSampler(share.tolist(), len(data))
    train = DataLoader(data, batch_size=16, sampler=sampler, num_workers=1)
    test = DataLoader(Sounds(80, 1, False), batch_size=20)
    model = nn.Sequential(nn.Conv1d(1, 12, 7, padding=3), nn.BatchNorm1d(12), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Dropout(0.2), nn.Linear(96, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.3)
    for epoch in range(5):
        model.train()
        total, count = 0.0, 0
        for x, y in train:
            loss = focal(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(x), count + len(x)
        scheduler.step()
        model.eval()
        right, every = torch.zeros(4), torch.zeros(4)
        with torch.no_grad():
            for x, y in test:
                hit = model(x).argmax(1) == y
                right += torch.bincount(y[hit], minlength=4)
                every += torch.bincount(y, minlength=4)
        print(f"epoch {epoch}: loss {total / count:.4f} accuracy {(right / every.clamp(min=1)).mean():.4f}")
    torch.save({"model": model.state_dict(), "right": right}, "sounds.pt")


main()
