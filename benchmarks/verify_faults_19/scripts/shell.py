"""Metric learning on outlines of shells: batches of P kinds by K, hardest triplets, and a memory bank of earlier embeddings to find harder negatives in; recall and mean average precision on kinds never seen."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

POINTS, WIDTH, DIM = 32, 64, 16
SEEN, UNSEEN = 30, 15
P, K, STEPS, LR = 8, 4, 500, 1e-3
MARGIN, BANK, WARM = 0.2, 256, 150


def make_shells(kinds, seed):
    """Every kind has its own few waves; its shells (8 to 20 of them) shift, swell and roughen them."""
    g = torch.Generator().manual_seed(seed)
    angle = torch.linspace(0, 2 * torch.pi, POINTS)
    outlines, labels = [], []
    for kind in range(kinds):
        size, phase = torch.randn(6, generator=g), 6.28 * torch.rand(6, generator=g)
        n = int(torch.randint(8, 21, (1,), generator=g))
        for _ in range(n):
            a = size + 0.2 * torch.randn(6, generator=g)
            b = phase + 0.2 * torch.randn(6, generator=g)
            wave = sum(a[k] * torch.sin((k + 1) * angle + b[k]) for k in range(6))
            outlines.append(wave * (0.8 + 0.4 * torch.rand(1, generator=g)) + 0.15 * torch.randn(POINTS, generator=g))
            labels.append(kind)
    return torch.stack(outlines), torch.tensor(labels)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(POINTS, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(WIDTH, DIM),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class Bank:
    """A ring of embeddings and labels; label -1 where nothing has been put yet."""

    def __init__(self):
        self.rows, self.labels, self.at = torch.zeros(BANK, DIM), torch.full((BANK,), -1), 0

    def put(self, rows, labels):
        where = (self.at + torch.arange(len(rows))) % BANK
        self.rows[where], self.labels[where] = rows.detach(), labels
        self.at = (self.at + len(rows)) % BANK


def distances(a, b):
    return (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(2).clamp(min=1e-8).sqrt()


def hardest(emb, labels, others, other_labels):
    """Per row: the farthest of its own kind in the batch, the nearest of another kind in the batch or the bank."""
    d = distances(emb, emb)
    same = labels.unsqueeze(1) == labels.unsqueeze(0)
    far = d.masked_fill(~same, -1.0).amax(1)
    near = d.masked_fill(same, 9.0).amin(1)
    if others is not None:
        d = distances(emb, others)
        barred = (labels.unsqueeze(1) == other_labels.unsqueeze(0)) | (other_labels < 0).unsqueeze(0)
        near = torch.minimum(near, d.masked_fill(barred, 9.0).amin(1))
    return far, near


def draw_batch(labels):
    rows = []
    for kind in torch.randperm(SEEN)[:P].tolist():
        own = (labels == kind).nonzero().squeeze(1)
        rows.append(own[torch.randperm(len(own))[:K]])
    return torch.cat(rows)


@torch.no_grad()
def evaluate(model, x, labels):
    """Recall at one, and mean average precision at R, R being the number of other shells of the same kind."""
    model.eval()
    emb = torch.cat([model(part) for part in x.split(64)])
    d = distances(emb, emb)
    d.fill_diagonal_(9.0)
    recall, precision = 0.0, 0.0
    for i in range(len(x)):
        order = d[i].argsort()
        good = (labels[order] == labels[i]).float()
        r = int((labels == labels[i]).sum()) - 1
        recall += good[0].item()
        rank = torch.arange(1, r + 1)
        precision += ((good[:r].cumsum(0) / rank) * good[:r]).sum().item() / r
    return recall / len(x), precision / len(x)


def main():
    torch.manual_seed(12)
    (x, labels), (new, new_labels) = make_shells(SEEN, 1), make_shells(UNSEEN, 2)
    centre, width = x.mean(0), x.std()
    x, new = (x - centre) / width, (new - centre) / width
    model, bank = Embedder(), Bank()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [250, 400], gamma=0.3)
    best, kept, total, active = -1.0, None, 0.0, 0.0
    for step in range(STEPS):
        model.train()
        idx = draw_batch(labels)
        outline = x[idx] + 0.1 * torch.randn(len(idx), POINTS)
        emb = model(outline)
        far, near = hardest(emb, labels[idx], *((bank.rows, bank.labels) if step >= WARM else (None, None)))
        losses = F.relu(far - near + MARGIN)
        alive = (losses > 0).sum().clamp(min=1)
        loss = losses.sum() / alive
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        bank.put(emb, labels[idx])
        total += loss.item()
        active += alive.item() / len(idx)
        if (step + 1) % 100 == 0:
            recall, precision = evaluate(model, new, new_labels)
            if precision > best:
                best, kept = precision, copy.deepcopy(model.state_dict())
            print(f"step {step + 1} loss {total / 100:.5f} active {active / 100:.4f} recall {recall:.4f} map {precision:.5f}")
            total, active = 0.0, 0.0
    torch.save({"model": kept, "centre": centre, "width": width, "bank": (bank.rows, bank.labels)}, "shell.pt")
    model.load_state_dict(kept)
    recall, precision = evaluate(model, new, new_labels)
    print(f"final recall {recall:.4f} map {precision:.5f} on seen kinds {evaluate(model, x, labels)[1]:.5f}")


if __name__ == "__main__":
    main()
