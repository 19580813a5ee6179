"""Graphs of different sizes: message passing by index_add, functional dropout, a target that is normalised, early stopping on the validation error."""

import json

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(71)
KINDS, WIDTH, PATIENCE = 5, 24, 3


class Graphs(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(count):
            size = int(torch.randint(4, 11, (1,), generator=generator))
            kinds = torch.randint(0, KINDS, (size,), generator=generator)
            table = torch.rand(size, size, generator=generator).triu(1) < 0.4
            source, target = table.nonzero(as_tuple=True)
            edges = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
            value = (
                (kinds[source] == kinds[target]).sum()
                + 0.3 * (kinds == 0).sum()
                + 0.1 * len(source)
            )
            self.items.append((kinds, edges, value.float()))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    kinds, edges, where, start = [], [], [], 0
    for number, (kind, edge, _) in enumerate(items):
        kinds.append(kind)
        edges.append(edge + start)
        where.append(torch.full_like(kind, number))
        start += len(kind)
    return (
        torch.cat(kinds),
        torch.cat(edges, 1),
        torch.cat(where),
        torch.stack([item[2] for item in items]),
    )


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Linear(WIDTH, WIDTH)
        self.update = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, h, edges):
        source, target = edges
        sent = F.relu(self.message(h))[source]
        got = torch.zeros_like(h).index_add_(0, target, sent)
        h = self.norm(h + self.update(torch.cat([h, got], 1)))
        return F.dropout(h, 0.1, training=self.training)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(KINDS, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))

    def forward(self, kinds, edges, where, count):
        h = self.embed(kinds)
        for layer in self.layers:
            h = layer(h, edges)
        whole = h.new_zeros(count, WIDTH).index_add_(0, where, h)
        return self.head(whole / 8).squeeze(1)


@torch.no_grad()
def error(model, loader, mean, std):
    model.eval()
    total, count = 0.0, 0
    for kinds, edges, where, value in loader:
        out = model(kinds, edges, where, len(value)) * std + mean
        total += (out - value).abs().sum().item()
        count += len(value)
    return total / count


def main():
    train, valid, test = Graphs(160, 1), Graphs(60, 2), Graphs(60, 3)
    values = torch.stack([item[2] for item in train.items])
    mean, std = values.mean(), values.std()
    loader = DataLoader(train, batch_size=16, shuffle=True, collate_fn=collate)
    check = DataLoader(valid, batch_size=20, collate_fn=collate)
    last = DataLoader(test, batch_size=20, collate_fn=collate)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.02)
    best, kept, waited, history = float("inf"), None, 0, []
    for epoch in range(14):
        model.train()
        total = 0.0
        for kinds, edges, where, value in loader:
            out = model(kinds, edges, where, len(value))
            loss = F.smooth_l1_loss(out, (value - mean) / std)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(value)
        found = error(model, check, mean, std)
        history.append({"epoch": epoch, "train": total / len(train), "valid": found})
        print(f"epoch {epoch}: train {total / len(train):.4f} valid {found:.4f}")
        if found < best:
            best, waited = found, 0
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        else:
            waited += 1
            if waited >= PATIENCE:
                break
    model.load_state_dict(kept)
    torch.save({"model": kept, "mean": mean, "std": std, "best": best}, "molecules.pt")
    print(f"best {best:.4f} test {error(model, last, mean, std):.4f}")
    with open("history.json", "w") as file:
        json.dump(history, file)


main()
