"""Embeddings by triplets: batches of some classes with some items each, NumPy augmentation in two workers, hardest pairs, recall at one."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

torch.manual_seed(77)


class Marks(Dataset):
    def __init__(self, count, seed, train):
        generator = np.random.default_rng(seed)
        self.labels = np.arange(count) % 8
        centres = np.random.default_rng(6).normal(size=(8, 20))
        self.rows = (centres[self.labels] + 1.3 * generator.normal(size=(count, 20))).astype("float32")
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        row = self.rows[index]
        if self.train:
            row = row * np.float32(np.random.uniform(0.6, 1.4))
            row = row + np.random.normal(0, 0.3, 20).astype("float32")
        return torch.from_numpy(row), int(self.labels[index])


class Groups(Sampler):
    def __init__(self, labels, kinds=4, each=4, count=10):
        self.labels, self.kinds, self.each, self.count = torch.as_tensor(labels), kinds, each, count

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            batch = []
            for kind in torch.randperm(8)[: self.kinds]:
                members = (self.labels == kind).nonzero().flatten()
                batch += members[torch.randperm(len(members))[: self.each]].tolist()
            yield batch


def seeded(worker):
    np.random.seed(torch.initial_seed() % 2**32)


def hardest(z, label, margin=0.3):
    apart = (2 - 2 * z @ z.t()).clamp(min=1e-8).sqrt()
    same = label[:, None] == label[None]
    own = torch.eye(len(z), dtype=torch.bool)
    near = apart.masked_fill(~same | own, -1.0).max(1).values
    far = apart.masked_fill(same, 9.0).min(1).values
    return F.relu(near - far + margin).mean()


def recall(model, loader):
    model.eval()
    with torch.no_grad():
        parts = [(F.normalize(model(row), dim=1), label) for row, label in loader]
    z, label = torch.cat([z for z, _ in parts]), torch.cat([label for _, label in parts])
    near = (z @ z.t()).fill_diagonal_(-2.0).argmax(1)
    return (label[near] == label).float().mean().item()


def main():
    data = Marks(160, 0, True)
    train = DataLoader(data, batch_sampler=Groups(data.labels), num_workers=2, worker_init_fn=seeded)
    test = DataLoader(Marks(80, 1, False), batch_size=16)
    model = nn.Sequential(nn.Linear(20, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    best = -1.0
    for epoch in range(5):
        model.train()
        total = 0.0
        for row, label in train:
            loss = hardest(F.normalize(model(row), dim=1), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        found = recall(model, test)
        print(f"epoch {epoch}: loss {total / len(train):.4f} recall {found:.4f}")
        if found > best:
            best = found
            torch.save(model.state_dict(), "embed.pt")


main()
