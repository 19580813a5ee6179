"""
Handwriting synthesis with a recurrent mixture density network
==============================================================

A walk through section 5 of Graves, "Generating sequences with recurrent neural
networks" (2013), in one file.  We train a network which, given a line of text,
draws it: at each time step it predicts a mixture of Gaussians for the next pen
offset, and a Bernoulli variable for "pen up".

    python handwriting.py                       # real data in lines.npz
    python handwriting.py --toy 200 --epochs 2  # synthetic pen strokes

Part 1 is the data, part 2 the soft window, part 3 the mixture density output,
and part 4 the training loop.
"""
import argparse
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

ALPHABET = "\0 abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,'-?!"

device = "cuda" if torch.cuda.is_available() else "cpu"


# %% Part 1: the data -------------------------------------------------------
# A line is an array of (dx, dy, end_of_stroke) of shape (T, 3) plus its text.

def make_toy_lines(n, seed, min_chars=4, max_chars=9, pts=10):
    """Each letter is a fixed random Lissajous squiggle; good enough to learn."""
    rng = np.random.RandomState(seed)
    shapes = rng.rand(len(ALPHABET), 4)
    lines = []
    for _ in range(n):
        ids = rng.randint(2, 28, rng.randint(min_chars, max_chars + 1))
        pen = []
        for c in ids:
            a, b, ph, w = shapes[c]
            s = np.linspace(0, 2 * np.pi, pts)
            x = (0.4 + a) * np.sin((1 + round(2 * w)) * s + ph) + s / 3
            y = (0.4 + b) * np.cos((1 + round(2 * ph)) * s)
            eos = np.zeros(pts)
            eos[-1] = 1
            pen.append(np.stack([np.gradient(x), np.gradient(y), eos], 1))
        pen = np.concatenate(pen).astype(np.float32)
        pen[:, :2] += 0.02 * rng.randn(len(pen), 2)
        lines.append((pen, "".join(ALPHABET[c] for c in ids)))
    return lines


def load_lines(path):
    z = np.load(path, allow_pickle=True)
    return list(zip(z["strokes"], z["texts"]))


class Lines(Dataset):
    def __init__(self, lines, max_len):
        lines = [(s[:max_len + 1], t) for s, t in lines]
        xy = np.concatenate([s[:, :2] for s, _ in lines])
        self.std = xy.std(0)
        self.items = []
        for s, t in lines:
            s = s.copy()
            s[:, :2] /= self.std
            ids = [max(ALPHABET.find(c), 1) for c in t]
            self.items.append((torch.from_numpy(s), torch.tensor(ids)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    strokes, texts = zip(*batch)
    lengths = torch.tensor([len(s) - 1 for s in strokes])
    x = pad_sequence(strokes, batch_first=True)
    text = pad_sequence(texts, batch_first=True)
    mask = torch.arange(x.size(1) - 1)[None, :] < lengths[:, None]
    return x, text, mask.float()


# %% Part 2: the network ----------------------------------------------------
# The window w_t is a soft look at the text.  Its position kappa only moves
# forward.  The first LSTM sees the window of the *previous* step, so this part
# cannot be computed for all the time steps at once.

class Window(nn.Module):
    def __init__(self, hidden, k):
        super().__init__()
        self.lin = nn.Linear(hidden, 3 * k)

    def forward(self, h, kappa, onehot):
        alpha, beta, dk = self.lin(h).exp().chunk(3, dim=1)
        kappa = kappa + dk / 25.0
        u = torch.arange(onehot.size(1)).float().to(device)
        phi = alpha[:, :, None] * torch.exp(-beta[:, :, None] * (kappa[:, :, None] - u) ** 2)
        w = torch.bmm(phi.sum(1, keepdim=True), onehot).squeeze(1)
        return w, kappa


class Scribe(nn.Module):
    def __init__(self, hidden, k, mixtures):
        super().__init__()
        a = len(ALPHABET)
        self.hidden, self.k, self.m = hidden, k, mixtures
        self.cell1 = nn.LSTMCell(3 + a, hidden)
        self.window = Window(hidden, k)
        self.cell2 = nn.LSTMCell(3 + a + hidden, hidden)
        self.out = nn.Linear(2 * hidden, 6 * mixtures + 1)

    def forward(self, x, text):
        b, steps, _ = x.shape
        onehot = F.one_hot(text, len(ALPHABET)).float()
        onehot = onehot * (text > 0).unsqueeze(-1)
        h1, c1 = x.new_zeros(b, self.hidden), x.new_zeros(b, self.hidden)
        h2, c2 = x.new_zeros(b, self.hidden), x.new_zeros(b, self.hidden)
        w, kappa = onehot[:, 0], x.new_zeros(b, self.k)
        ys = []
        for t in range(steps):
            h1, c1 = self.cell1(torch.cat([x[:, t], w], 1), (h1, c1))
            w, kappa = self.window(h1, kappa, onehot)
            h2, c2 = self.cell2(torch.cat([x[:, t], w, h1], 1), (h2, c2))
            ys.append(self.out(torch.cat([h1, h2], 1)))
        return torch.stack(ys, 1)

    @torch.no_grad()
    def sample(self, text, steps, bias=0.5):
        """Draw one line: the next input is the sample itself."""
        onehot = F.one_hot(text, len(ALPHABET)).float()
        x = torch.zeros(1, 3, device=text.device)
        h1 = c1 = h2 = c2 = torch.zeros(1, self.hidden, device=text.device)
        w, kappa = onehot[:, 0], torch.zeros(1, self.k, device=text.device)
        pen = []
        for _ in range(steps):
            h1, c1 = self.cell1(torch.cat([x, w], 1), (h1, c1))
            w, kappa = self.window(h1, kappa, onehot)
            h2, c2 = self.cell2(torch.cat([x, w, h1], 1), (h2, c2))
            pi, mu, sigma, rho, eos = split_params(self.out(torch.cat([h1, h2], 1)), self.m)
            j = torch.multinomial(F.softmax(pi * (1 + bias), -1), 1).item()
            s = sigma[0, j] * math.exp(-bias)
            e = torch.randn(2, device=text.device)
            dx = mu[0, j, 0] + s[0] * e[0]
            dy = mu[0, j, 1] + s[1] * (rho[0, j] * e[0] + (1 - rho[0, j] ** 2).sqrt() * e[1])
            x = torch.stack([dx, dy, torch.bernoulli(torch.sigmoid(eos[0]))])[None]
            pen.append(x[0])
            if kappa.min() > text.size(1):
                break
        return torch.stack(pen).cpu()


# %% Part 3: the mixture density loss ----------------------------------------

def split_params(y, m):
    pi, mu, ls, rho, eos = torch.split(y, [m, 2 * m, 2 * m, m, 1], dim=-1)
    mu = mu.reshape(*mu.shape[:-1], m, 2)
    sigma = ls.reshape(*ls.shape[:-1], m, 2).clamp(-6, 6).exp()
    return pi, mu, sigma, torch.tanh(rho) * 0.98, eos.squeeze(-1)


def mdn_loss(y, target, mask, m):
    pi, mu, sigma, rho, eos = split_params(y, m)
    d = (target[..., None, :2] - mu) / sigma
    one_r2 = 1 - rho ** 2
    z = (d ** 2).sum(-1) - 2 * rho * d[..., 0] * d[..., 1]
    logn = -z / (2 * one_r2) - sigma.log().sum(-1) - 0.5 * one_r2.log() - math.log(2 * math.pi)
    nll = -torch.logsumexp(F.log_softmax(pi, -1) + logn, -1)
    bce = F.binary_cross_entropy_with_logits(eos, target[..., 2], reduction="none")
    return ((nll + bce) * mask).sum() / mask.sum()


# %% Part 4: training ----------------------------------------------------------

def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, text, mask in loader:
        x, text, mask = x.to(device), text.to(device), mask.to(device)
        total += mdn_loss(model(x[:, :-1], text), x[:, 1:], mask, model.m)
    model.train()
    return total.item() / len(loader)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="lines.npz")
    ap.add_argument("--toy", type=int, default=0, help="number of synthetic lines instead of real ones")
    ap.add_argument("--max-len", type=int, default=600)
    ap.add_argument("--hidden", type=int, default=400)
    ap.add_argument("--windows", type=int, default=10)
    ap.add_argument("--mixtures", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=50)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--clip", type=float, default=10.0)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    if args.toy or not os.path.exists(args.data):
        lines = make_toy_lines(args.toy or 10000, args.seed)
    else:
        lines = load_lines(args.data)
    n_val = max(1, len(lines) // 10)
    train = Lines(lines[n_val:], args.max_len)
    valid = Lines(lines[:n_val], args.max_len)
    train_loader = DataLoader(train, args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    valid_loader = DataLoader(valid, args.batch_size, collate_fn=collate)

    model = Scribe(args.hidden, args.windows, args.mixtures).to(device)
    opt = torch.optim.RMSprop(model.parameters(), lr=args.lr, alpha=0.95, momentum=0.9,
                              eps=1e-4, centered=True)
    print("parameters: %.2fM" % (sum(p.numel() for p in model.parameters()) / 1e6))

    for epoch in range(args.epochs):
        total, count = 0.0, 0
        for x, text, mask in train_loader:
            x, text, mask = x.to(device), text.to(device), mask.to(device)
            loss = mdn_loss(model(x[:, :-1], text), x[:, 1:], mask, model.m)
            opt.zero_grad()
            loss.backward()
            # Graves clips the gradient element by element
            for p in model.parameters():
                p.grad.data.clamp_(-args.clip, args.clip)
            opt.step()
            total += loss.item()
            count += 1
            if count % 10 == 1:
                print("epoch %d batch %d loss %.4f" % (epoch, count, total / count), flush=True)
        print("epoch %d: train %.4f valid %.4f" % (epoch, total / count, evaluate(model, valid_loader)))

        text = torch.tensor([[ALPHABET.index(c) for c in "hello"]]).to(device)
        pen = model.sample(text, 200)
        print("   sample of %d points, ends at (%.1f, %.1f)" % (len(pen), *pen[:, :2].sum(0).tolist()))
        torch.save(model.state_dict(), "scribe.pt")


if __name__ == "__main__":
    main()
