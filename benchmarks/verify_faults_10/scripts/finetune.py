"""First many sounds, then few birds: a net is trained on plenty, its head replaced, its body frozen and later thawed in part."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def waves(count, classes, seed, skew=0.0):
    g = torch.Generator().manual_seed(seed)
    p = torch.softmax(-skew * torch.arange(classes).float(), 0)
    y = torch.multinomial(p, count, replacement=True, generator=g)
    t = torch.arange(64) / 64
    pitch = 2 + 1.5 * y[:, None] + 0.3 * torch.randn(count, 1, generator=g)
    phase = torch.rand(count, 1, generator=g) * 6.28
    x = torch.sin(6.28 * pitch * t + phase) * torch.exp(-t * (y[:, None] % 2) * 2) + 0.7 * torch.randn(count, 64, generator=g)
    return x[:, None], y


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv = nn.Conv1d(a, b, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm1d(b)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Listener(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(Block(1, 16), Block(16, 24), Block(24, 32))
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(32, classes))

    def forward(self, x):
        return self.head(self.body(x).mean(2))


def shifted(x):
    """Every wave is rolled by a step of its own, and made a little louder or softer."""
    steps = torch.randint(0, 64, (len(x), 1, 1))
    where = (torch.arange(64) + steps) % 64
    return x.gather(2, where) * (1 + 0.2 * torch.randn(len(x), 1, 1))


def accuracy(model, loader):
    model.eval()
    good = 0
    with torch.no_grad():
        for x, y in loader:
            good += (model(x).argmax(1) == y).sum().item()
    return good / len(loader.dataset)


def pretrain(epochs=4):
    model = Listener(8)
    loader = DataLoader(TensorDataset(*waves(960, 8, 1)), batch_size=40, shuffle=True)
    val = DataLoader(TensorDataset(*waves(300, 8, 2)), batch_size=100)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    decay = torch.optim.lr_scheduler.MultiStepLR(opt, [2, 3], 0.3)
    best = 0.0
    for epoch in range(epochs):
        model.train()
        sum_ = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(shifted(x)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sum_ += loss.item()
        decay.step()
        acc = accuracy(model, val)
        print(f"[pretrain {epoch}] loss {sum_ / len(loader):.4f} acc {acc:.4f}")
        if acc > best:
            best = acc
            torch.save(model.state_dict(), "pretrained.pt")


def freeze(model):
    for p in model.body.parameters():
        p.requires_grad = False


def train_mode(model, thawed):
    model.train()
    for block in model.body[: 3 - thawed]:
        block.eval()


def finetune(epochs=6, thaw_at=3):
    model = Listener(4)
    weights = torch.load("pretrained.pt")
    model.load_state_dict({k: v for k, v in weights.items() if k.startswith("body.")}, strict=False)
    freeze(model)
    x, y = waves(360, 4, 3, skew=0.6)
    per_class = torch.bincount(y, minlength=4).float()
    sampler = WeightedRandomSampler((1 / per_class)[y], len(y))
    loader = DataLoader(TensorDataset(x, y), batch_size=24, sampler=sampler)
    val = DataLoader(TensorDataset(*waves(240, 4, 4)), batch_size=80)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    opt = torch.optim.AdamW(model.head.parameters(), lr=1e-2, weight_decay=0.01)
    thawed = 0
    for epoch in range(epochs):
        if epoch == thaw_at:
            thawed = 1
            for p in model.body[2].parameters():
                p.requires_grad = True
            opt.add_param_group({"params": model.body[2].parameters(), "lr": 1e-3})
        train_mode(model, thawed)
        sum_ = 0.0
        for x, y in loader:
            loss = criterion(model(shifted(x)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sum_ += loss.item()
        print(f"[finetune {epoch}] loss {sum_ / len(loader):.4f} acc {accuracy(model, val):.4f} thawed {thawed}")
    torch.save(model.state_dict(), "birds.pt")


if __name__ == "__main__":
    torch.manual_seed(17)
    pretrain()
    finetune()
