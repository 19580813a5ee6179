# Multiple instance learning: is there a sick cell in the sample? Gated attention over the cells of each bag, few sick bags,
# a balanced sampler, Lookahead around Adam.
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

FEATURES, HIDDEN, BATCH, EPOCHS = 16, 32, 8, 9
LR, KEEP, ENTROPY = 4e-3, 0.8, 0.05


class Bags(Dataset):
    """Bags of 5 to 40 cells; a fifth of them is sick, with one to four cells that give it away."""

    def __init__(self, count, seed, train=False):
        g = torch.Generator().manual_seed(seed)
        world = torch.Generator().manual_seed(5)
        kinds = 1.3 * torch.randn(6, FEATURES, generator=world)
        sick = 1.1 * torch.randn(FEATURES, generator=world)
        self.train, self.bags, self.labels = train, [], (torch.rand(count, generator=g) < 0.2).float()
        for label in self.labels:
            n = int(torch.randint(5, 41, (1,), generator=g))
            cells = kinds[torch.randint(0, 6, (n,), generator=g)] + torch.randn(n, FEATURES, generator=g)
            if label:
                k = int(torch.randint(1, 5, (1,), generator=g))
                cells[:k] += sick
            self.bags.append(cells[torch.randperm(n, generator=g)])

    def __len__(self):
        return len(self.bags)

    def __getitem__(self, i):
        cells = self.bags[i]
        if self.train:
            kept = torch.rand(len(cells)) < KEEP
            kept[0] = True
            cells = cells[kept] + 0.2 * torch.randn(int(kept.sum()), FEATURES)
        return cells, self.labels[i]


def collate(items):
    bags, labels = zip(*items)
    return list(bags), torch.stack(labels)


class AttentionMIL(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.LayerNorm(HIDDEN), nn.ReLU(), nn.Dropout(0.1))
        self.tanh, self.gate, self.score = nn.Linear(HIDDEN, 16), nn.Linear(HIDDEN, 16), nn.Linear(16, 1)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, bags):
        """Logits of the bags, and how evenly each looks at its cells (0 to 1)."""
        logits, evenness = [], []
        for cells in bags:
            h = self.embed(cells)
            scores = self.score(torch.tanh(self.tanh(h)) * torch.sigmoid(self.gate(h))).squeeze(1)
            weights = scores.softmax(0)
            logits.append(self.head(weights @ h))
            entropy = -(weights * (weights + 1e-8).log()).sum()
            evenness.append(entropy / math.log(max(len(cells), 2)))
        return torch.cat(logits), torch.stack(evenness)


class Lookahead:
    """Every k steps the weights go half the way back to where they were."""

    def __init__(self, optimizer, k=6, alpha=0.5):
        self.optimizer, self.k, self.alpha, self.count = optimizer, k, alpha, 0
        self.params = [p for group in optimizer.param_groups for p in group["params"]]
        self.slow = [p.detach().clone() for p in self.params]

    def zero_grad(self):
        self.optimizer.zero_grad()

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        self.count += 1
        if self.count % self.k == 0:
            for slow, p in zip(self.slow, self.params):
                slow.add_(p - slow, alpha=self.alpha)
                p.copy_(slow)


def auc(scores, labels):
    """Share of pairs of a sick and a sound bag that are in the right order."""
    sick, sound = scores[labels == 1], scores[labels == 0]
    if not len(sick) or not len(sound):
        return 0.5
    wins = (sick[:, None] > sound[None, :]).float() + 0.5 * (sick[:, None] == sound[None, :]).float()
    return wins.mean().item()


def evaluate(model, loader):
    model.eval()
    scores, labels, losses = [], [], []
    with torch.no_grad():
        for bags, truth in loader:
            logits, _ = model(bags)
            losses.append(F.binary_cross_entropy_with_logits(logits, truth, reduction="none"))
            scores.append(logits)
            labels.append(truth)
    return torch.cat(losses).mean().item(), auc(torch.cat(scores), torch.cat(labels))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(13)
    train, val = Bags(320, 1, train=True), Bags(160, 2)
    frequency = torch.stack([(train.labels == 0).float().mean(), (train.labels == 1).float().mean()])
    sampler = WeightedRandomSampler((1 / frequency)[train.labels.long()], len(train))
    train_loader = DataLoader(train, BATCH, sampler=sampler, collate_fn=collate)
    val_loader = DataLoader(val, BATCH, collate_fn=collate)
    model = AttentionMIL()
    optimizer = Lookahead(torch.optim.Adam(model.parameters(), lr=LR, weight_decay=1e-4))
    best = 0.0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for group in optimizer.optimizer.param_groups:
            group["lr"] = LR * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / EPOCHS))
        running_loss, running_right, seen = 0.0, 0.0, 0
        for bags, labels in train_loader:
            optimizer.zero_grad()
            logits, evenness = model(bags)
            loss = F.binary_cross_entropy_with_logits(logits, labels) + ENTROPY * evenness.mean()
            loss.backward()
            optimizer.step()
            running_loss += loss.item() * len(labels)
            running_right += ((logits > 0).float() == labels).sum().item()
            seen += len(labels)
        val_loss, val_auc = evaluate(model, val_loader)
        print(f"{epoch}: loss {running_loss / seen:.5f} accuracy {running_right / seen:.4f} val loss {val_loss:.5f} AUC {val_auc:.4f}")
        if val_auc > best:
            best = val_auc
            torch.save(model.state_dict(), "bags_best.pt")
    model.load_state_dict(torch.load("bags_best.pt"))
    print("test loss %.5f AUC %.4f" % evaluate(model, DataLoader(Bags(300, 3), BATCH, collate_fn=collate)))


if __name__ == "__main__":
    main()
