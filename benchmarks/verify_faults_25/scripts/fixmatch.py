"""Semi-supervised classification of small drawn shapes: confidence-thresholded pseudo labels."""
import argparse
import copy
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, CLASSES = 16, 6


def draw(label, rng):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    cy, cx, r = rng.uniform(6, 10), rng.uniform(6, 10), rng.uniform(3.0, 5.0)
    dy, dx = yy - cy, xx - cx
    dist = np.sqrt(dy ** 2 + dx ** 2)
    shapes = [dist < r,
              np.abs(dist - r) < 0.9,
              (np.abs(dy) < r * 0.8) & (np.abs(dx) < r * 0.8),
              ((np.abs(dy) < 1.1) | (np.abs(dx) < 1.1)) & (dist < r + 1),
              ((np.abs(dy - dx) < 1.5) | (np.abs(dy + dx) < 1.5)) & (dist < r + 1),
              (np.abs(dy) < 1.3) & (np.abs(dx) < r + 1)]
    img = 0.1 + shapes[label] * rng.uniform(0.5, 1.0)
    return (img + 0.22 * rng.normal(size=img.shape)).astype(np.float32)


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, size=n)
    return torch.from_numpy(np.stack([draw(k, rng) for k in y]))[:, None], torch.from_numpy(y)


def weak(x):
    """Per image: random horizontal flip and a shift by up to one pixel."""
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    dy, dx = torch.randint(0, 3, (2,)).tolist()
    return F.pad(x, (1, 1, 1, 1), mode="replicate")[..., dy:dy + SIZE, dx:dx + SIZE]


def strong(x):
    """Per image: weak, contrast change, noise and one blanked 5 x 5 square."""
    x = weak(x)
    x = x * (0.5 + torch.rand(())) + 0.1 * torch.randn_like(x)
    cy, cx = torch.randint(0, SIZE - 4, (2,)).tolist()
    x[..., cy:cy + 5, cx:cx + 5] = 0.1
    return x


def each(fn, batch):
    return torch.stack([fn(x) for x in batch])


class Net(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(1, w, 3, padding=1), nn.GroupNorm(4, w)
        self.c2, self.n2 = nn.Conv2d(w, 2 * w, 3, padding=1), nn.GroupNorm(4, 2 * w)
        self.fc = nn.Linear(2 * w * 16, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.n1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.n2(self.c2(x))), 2)
        return self.fc(x.flatten(1))


def update_ema(ema, model, decay):
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.copy_(decay * a + (1 - decay) * b)


def accuracy(model, x, y):
    model.eval()
    right = 0
    with torch.no_grad():
        for s in range(0, len(x), 100):
            right += (model(x[s:s + 100]).argmax(1) == y[s:s + 100]).sum().item()
    model.train()
    return right / len(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=360)
    ap.add_argument("--bs", type=int, default=16)
    ap.add_argument("--mu", type=int, default=4)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--threshold", type=float, default=0.9)
    ap.add_argument("--lambda-u", type=float, default=1.0)
    ap.add_argument("--ema", type=float, default=0.97)
    ap.add_argument("--seed", type=int, default=2)
    ap.add_argument("--out", default=".")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    lab_x, lab_y = make_set(72, 10)
    unl_x, _ = make_set(1600, 11)
    test_x, test_y = make_set(600, 12)
    model = Net()
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    unl_order = torch.randperm(len(unl_x))
    at, nu = 0, args.bs * args.mu
    for step in range(args.steps):
        for g in opt.param_groups:
            g["lr"] = args.lr * math.cos(7 * math.pi * step / (16 * args.steps))
        li = torch.randint(0, len(lab_x), (args.bs,))
        if at + nu > len(unl_x):
            unl_order, at = torch.randperm(len(unl_x)), 0
        u = unl_x[unl_order[at:at + nu]]
        at += nu
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
        loss = loss_l + args.lambda_u * loss_u
        opt.zero_grad()
        loss.backward()
        opt.step()
        update_ema(ema, model, args.ema)
        if (step + 1) % 40 == 0:
            print(f"step {step + 1} sup {loss_l.item():.4f} unsup {loss_u.item():.4f} "
                  f"mask {mask.mean().item():.3f} ema acc {accuracy(ema, test_x, test_y):.4f}", flush=True)
    os.makedirs(args.out, exist_ok=True)
    torch.save({"ema": ema.state_dict(), "model": model.state_dict()}, os.path.join(args.out, "fixmatch.pt"))


if __name__ == "__main__":
    main()
