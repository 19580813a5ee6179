"""Classify sequences of unlike length, and count which class is taken for which."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __init__(self, count):
        self.items = [torch.randn(3 + i % 6, 8) + i % 3 for i in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i], i % 3


def collate(batch):
    lengths = torch.tensor([len(rows) for rows, _ in batch])
    rows = nn.utils.rnn.pad_sequence([rows for rows, _ in batch], batch_first=True)
    return rows, lengths, torch.tensor([label for _, label in batch])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x, lengths):
        h = torch.relu(self.hidden(x))
        mask = torch.zeros(x.size(0), x.size(1), device=x.device)
        for i, n in enumerate(lengths):
            mask[i, :n] = 1
        return self.out((h * mask.unsqueeze(2)).sum(1) / lengths.unsqueeze(1))


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(Sequences(48), batch_size=8, collate_fn=collate)
net = Net().to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(2):
    table, total = torch.zeros(3, 3), 0
    for x, lengths, y in loader:
        x, lengths, y = x.to(device), lengths.to(device), y.to(device)
        logits = net(x, lengths)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pred = logits.argmax(1)
        for t, p in zip(y, pred, strict=True):
            table[t, p] += 1
            total += int(t == p)
        print(f"loss {loss.item():.4f}")
    print(f"epoch {epoch}: {total} right", table.tolist())
