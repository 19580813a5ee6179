"""A small net on pictures: shifted, noised and erased one by one; mixed in the loop; average of the weights; stops early."""
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS, SIZE = 4, 10


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.4, 0.3, 0.2, 0.1]), n, replacement=True, generator=g)
    base = torch.randn(KINDS, 2, SIZE, SIZE, generator=torch.Generator().manual_seed(5))
    x = (127 + 40 * (0.7 * base[y] + torch.randn(n, 2, SIZE, SIZE, generator=g))).clamp(0, 255).byte()
    return x, y


class Stall(Dataset):
    def __init__(self, n, seed, train):
        self.x, self.y = make(n, seed)
        self.train = train

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i].float() / 255
        if self.train:
            dy, dx = torch.randint(-2, 3, (2,)).tolist()
            x = torch.roll(x, (dy, dx), (1, 2))
            x = x + 0.1 * torch.randn_like(x)
            if torch.rand(()) < 0.3:
                h = int(torch.randint(2, 6, ()))
                w = int(torch.randint(2, 6, ()))
                r, c = int(torch.randint(0, SIZE - h + 1, ())), int(torch.randint(0, SIZE - w + 1, ()))
                x[:, r : r + h, c : c + w] = 0.0
        return (x - 0.5) / 0.2, self.y[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.na = nn.Conv2d(2, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.b, self.nb = nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16)
        self.out = nn.Linear(16, KINDS)

    def forward(self, x):
        h = F.relu(self.na(self.a(x)))
        h = F.relu(self.nb(self.b(h)))
        if self.training:
            keep = (torch.rand(len(h), 1, 1, 1) < 0.9).float()
            h = h * keep / 0.9
        return self.out(h.mean((2, 3)))


@torch.no_grad()
def judge(model, loader):
    model.eval()
    loss = right = n = 0
    for x, y in loader:
        out = model(x)
        loss += F.cross_entropy(out, y, reduction="sum").item()
        right += (out.argmax(1) == y).sum().item()
        n += len(y)
    return loss / n, right / n


def main():
    torch.manual_seed(2)
    train, held = Stall(300, 0, True), Stall(100, 1, False)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    checks = DataLoader(held, batch_size=50)
    model = Net()
    slow = copy.deepcopy(model)
    weights = torch.tensor([0.6, 0.8, 1.2, 2.0])
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.SGD([{"params": decay, "weight_decay": 1e-2}, {"params": plain, "weight_decay": 0.0}], lr=0.05, momentum=0.9)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [3, 5], 0.3)
    beta = torch.distributions.Beta(0.4, 0.4)
    best, bad, step = 1e9, 0, 0
    for epoch in range(7):
        model.train()
        total = seen = 0.0
        for x, y in loader:
            lam = float(beta.sample())
            lam = max(lam, 1 - lam)
            perm = torch.randperm(len(x))
            out = model(lam * x + (1 - lam) * x[perm])
            loss = lam * F.cross_entropy(out, y, weight=weights, label_smoothing=0.1) + (1 - lam) * F.cross_entropy(out, y[perm], weight=weights, label_smoothing=0.1)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            d = min(0.95, (1 + step) / (10 + step))
            with torch.no_grad():
                for p, q in zip(slow.parameters(), model.parameters()):
                    p.lerp_(q, 1 - d)
                for p, q in zip(slow.buffers(), model.buffers()):
                    p.copy_(q)
            total += loss.item() * len(x)
            seen += len(x)
        sched.step()
        val, acc = judge(slow, checks)
        print(f"epoch {epoch} train {total / seen:.4f} val {val:.4f} acc {acc:.4f}")
        if val < best:
            best, bad = val, 0
            torch.save({"model": slow.state_dict(), "epoch": epoch, "val": val}, "best.pt")
        else:
            bad += 1
            if bad >= 3:
                break


if __name__ == "__main__":
    main()
