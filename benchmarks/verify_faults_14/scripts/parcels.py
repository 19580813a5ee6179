"""Tags the words of short notes: two groups of parameters, an average of the weights, clipping, uneven lengths."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS, TAGS, LENGTH, IGNORED = 60, 6, 14, -100


def notes(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(1, WORDS, (count, LENGTH), generator=g)
    long = torch.randint(4, LENGTH + 1, (count,), generator=g)
    y = (x + x.roll(1, 1) * 3) % TAGS
    noise = torch.rand(count, LENGTH, generator=g) < 0.1
    y = torch.where(noise, torch.randint(0, TAGS, y.shape, generator=g), y)
    late = torch.arange(LENGTH)[None] >= long[:, None]
    return x.masked_fill(late, 0), y.masked_fill(late, IGNORED)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 24, padding_idx=0)
        self.body = nn.Conv1d(24, 32, 3, padding=1)
        self.head = nn.Linear(32, TAGS)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        h = F.gelu(self.body(self.words(x).transpose(1, 2))).transpose(1, 2)
        return self.head(self.drop(h))


def judge(net, data):
    net.eval()
    total = seen = right = 0
    with torch.no_grad():
        for x, y in data:
            out = net(x)
            total += F.cross_entropy(out.flatten(0, 1), y.flatten(), ignore_index=IGNORED, reduction="sum").item()
            known = y != IGNORED
            seen += known.sum().item()
            right += (out.argmax(2)[known] == y[known]).sum().item()
    net.train()
    return total / seen, right / seen


def main():
    torch.manual_seed(5)
    draws = torch.Generator().manual_seed(6)
    train = DataLoader(TensorDataset(*notes(480, 1)), 40, shuffle=True, generator=draws)
    held = DataLoader(TensorDataset(*notes(160, 2)), 80)
    net = Tagger()
    slow = copy.deepcopy(net).eval()
    groups = [
        {"params": net.words.parameters(), "lr": 0.01, "weight_decay": 0.0},
        {"params": [*net.body.parameters(), *net.head.parameters()], "lr": 0.003, "weight_decay": 0.05},
    ]
    optimizer = torch.optim.AdamW(groups)
    warm, total = 10, 8 * len(train)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / warm) * 0.5 * (1 + math.cos(math.pi * k / total)))
    best = 9.0
    for epoch in range(8):
        shown = []
        for x, y in train:
            loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=IGNORED, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for s, p in zip(slow.parameters(), net.parameters()):
                    s.lerp_(p, 0.05)
            shown.append(loss.item())
        lost, right = judge(slow, held)
        if lost < best:
            best = lost
            torch.save({"net": slow.state_dict(), "epoch": epoch}, "best.pt")
        print(f"epoch {epoch} loss {sum(shown) / len(shown):.4f} held {lost:.4f} right {right:.4f}")
    torch.save({"last": net.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")


if __name__ == "__main__":
    main()
