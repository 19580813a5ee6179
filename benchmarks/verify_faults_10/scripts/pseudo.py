"""Few labels, many pictures: confident answers to a gently changed picture are taught to a harshly changed one."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(41)
STEPS, EVERY, BATCH, RATIO = 150, 30, 12, 4
SURE, SHARE, HEAT, KEEP = 0.7, 1.0, 0.5, 0.95


def glyphs(count, seed):
    gen = torch.Generator().manual_seed(seed)
    forms = torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(8))
    forms = F.avg_pool2d(forms, 3, 1, 1) * 2.5
    y = torch.randint(0, 5, (count,), generator=gen)
    return forms[y] * (0.7 + 0.6 * torch.rand(count, 1, 1, 1, generator=gen)) + 1.8 * torch.randn(count, 1, 12, 12, generator=gen), y


def gently(x):
    out = torch.empty_like(x)
    for i, picture in enumerate(x):
        dx, dy = torch.randint(-1, 2, (2,)).tolist()
        out[i] = picture.roll((dx, dy), (1, 2))
    return out


def harshly(x):
    x = gently(x)
    rows = torch.arange(12).view(1, 1, 12, 1)
    cols = torch.arange(12).view(1, 1, 1, 12)
    top = torch.randint(0, 8, (len(x), 1, 1, 1))
    left = torch.randint(0, 8, (len(x), 1, 1, 1))
    hole = (rows >= top) & (rows < top + 5) & (cols >= left) & (cols < left + 5)
    return x.masked_fill(hole, 0.0) + 0.5 * torch.randn_like(x)


def net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 5),
    )  # fmt: skip


@torch.no_grad()
def follow(shadow, model):
    for s, p in zip(shadow.parameters(), model.parameters()):
        s.mul_(KEEP).add_(p, alpha=1 - KEEP)
    for s, b in zip(shadow.buffers(), model.buffers()):
        s.copy_(b)


def endless(loader):
    while True:
        yield from loader


def test(model, loader):
    model.eval()
    hit, loss = 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            hit += (out.argmax(1) == y).sum().item()
            loss += F.cross_entropy(out, y, reduction="sum").item()
    return hit / len(loader.dataset), loss / len(loader.dataset)


labelled = endless(DataLoader(TensorDataset(*glyphs(60, 1)), batch_size=BATCH, shuffle=True, drop_last=True))
plain = endless(DataLoader(TensorDataset(glyphs(1200, 2)[0]), batch_size=BATCH * RATIO, shuffle=True, drop_last=True))
held = DataLoader(TensorDataset(*glyphs(400, 3)), batch_size=100)

model = net()
shadow = copy.deepcopy(model).requires_grad_(False)
decay = [p for p in model.parameters() if p.dim() > 1]
rest = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.SGD([{"params": decay, "weight_decay": 1e-3}, {"params": rest}], lr=0.03, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: math.cos(7 * math.pi * step / (16 * STEPS)))

best = 0.0
sums = torch.zeros(3)
for step in range(1, STEPS + 1):
    model.train()
    x, y = next(labelled)
    (u,) = next(plain)
    soft, hard = gently(u), harshly(u)
    out = model(torch.cat([gently(x), soft, hard]))
    out_x = out[: len(x)]
    out_soft, out_hard = out[len(x) :].chunk(2)
    with torch.no_grad():
        belief = F.softmax(out_soft / HEAT, dim=1)
        mask = (belief.max(1).values >= SURE).float()
    loss_x = F.cross_entropy(out_x, y)
    loss_u = (F.cross_entropy(out_hard, belief, reduction="none") * mask).mean()
    loss = loss_x + SHARE * loss_u
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    follow(shadow, model)
    sums += torch.stack([loss_x.detach(), loss_u.detach(), mask.mean()])
    if step % EVERY == 0:
        acc, cost = test(shadow, held)
        a, b, c = (sums / EVERY).tolist()
        sums.zero_()
        print(f"step {step} labelled {a:.4f} unlabelled {b:.4f} sure {c:.3f} | accuracy {acc:.4f} loss {cost:.4f}")
        if acc > best:
            best = acc
            torch.save({"shadow": shadow.state_dict(), "model": model.state_dict()}, "pseudo.pt")
print(f"best {best:.4f}")
