"""Character language model: stacked GRU with tied weights, locked dropout, truncated BPTT over parallel streams with windows of random length, activation regularisation, going back to the best weights at a plateau."""
import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = 12


def make_corpus(length, seed):
    """Two voices take turns; each has its own table of likely next letters."""
    fixed = torch.Generator().manual_seed(5)
    tables = torch.softmax(2.0 * torch.randn(2, VOCAB, VOCAB, generator=fixed), -1).cumsum(-1).tolist()
    g = torch.Generator().manual_seed(seed)
    draws, turns = torch.rand(length, generator=g).tolist(), (torch.rand(length, generator=g) < 0.02).tolist()
    voice, last, text = 0, 0, []
    for u, turn in zip(draws, turns):
        voice = 1 - voice if turn else voice
        row = tables[voice][last]
        nxt = next((k for k, c in enumerate(row) if u < c), VOCAB - 1)
        text.append(nxt)
        last = nxt
    return torch.tensor(text)


def batchify(text, batch_size):
    steps = len(text) // batch_size
    return text[: steps * batch_size].view(batch_size, steps).t().contiguous()


class LockedDropout(nn.Module):
    """One mask for all the time steps of a window."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        mask = torch.bernoulli(torch.full((1, x.size(1), x.size(2)), 1 - self.p)) / (1 - self.p)
        return x * mask


class RNNModel(nn.Module):
    def __init__(self, hidden=40, layers=2, dropout=0.15):
        super().__init__()
        self.encoder = nn.Embedding(VOCAB, hidden)
        self.rnns = nn.ModuleList([nn.GRU(hidden, hidden) for _ in range(layers)])
        self.drop = LockedDropout(dropout)
        self.decoder = nn.Linear(hidden, VOCAB)
        nn.init.uniform_(self.encoder.weight, -0.2, 0.2)
        self.decoder.weight = self.encoder.weight
        self.hidden, self.layers = hidden, layers

    def init_hidden(self, batch_size):
        return [torch.zeros(1, batch_size, self.hidden) for _ in range(self.layers)]

    def forward(self, tokens, hidden):
        x = self.drop(self.encoder(tokens))
        new_hidden = []
        for rnn, h in zip(self.rnns, hidden):
            raw, h = rnn(x, h)
            new_hidden.append(h)
            x = self.drop(raw)
        return self.decoder(x), new_hidden, raw, x


def evaluate(model, data, window=40):
    model.eval()
    hidden = model.init_hidden(data.size(1))
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(data) - 1, window):
            n = min(window, len(data) - 1 - i)
            logits, hidden, _, _ = model(data[i : i + n], hidden)
            total += n * F.cross_entropy(logits.flatten(0, 1), data[i + 1 : i + 1 + n].flatten()).item()
    return total / (len(data) - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--bptt", type=int, default=24)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--clip", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_data = batchify(make_corpus(7000, 1), 16)
    val_data = batchify(make_corpus(2600, 2), 8)
    test_data = batchify(make_corpus(2600, 3), 8)
    model = RNNModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)

    lr, best_val, best = args.lr, math.inf, None
    for epoch in range(args.epochs):
        model.train()
        hidden = model.init_hidden(train_data.size(1))
        total, count, i = 0.0, 0, 0
        while i < len(train_data) - 1:
            bptt = args.bptt if torch.rand(1).item() < 0.9 else args.bptt // 2
            seq_len = min(max(5, int(bptt + 3 * torch.randn(1).item())), len(train_data) - 1 - i)
            x, y = train_data[i : i + seq_len], train_data[i + 1 : i + 1 + seq_len]
            hidden = [h.detach() for h in hidden]
            # short windows get a smaller step
            optimizer.param_groups[0]["lr"] = lr * seq_len / args.bptt
            logits, hidden, raw, dropped = model(x, hidden)
            ce = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss = ce + 0.3 * dropped.pow(2).mean() + 0.3 * (raw[1:] - raw[:-1]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            total += ce.item() * seq_len
            count += seq_len
            i += seq_len
        val_loss = evaluate(model, val_data)
        print(f"| epoch {epoch + 1} | train {total / count:.4f} | val {val_loss:.4f} | ppl {math.exp(val_loss):.3f} | lr {lr:.5f}")
        if val_loss < best_val - 0.01:
            best_val = val_loss
            best = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        else:
            model.load_state_dict(best["model"])
            optimizer.load_state_dict(copy.deepcopy(best["optimizer"]))
            lr /= 3
    torch.save({"model": best["model"], "last": model.state_dict(), "val": best_val}, "parrot.pt")
    model.load_state_dict(best["model"])
    test_loss = evaluate(model, test_data)
    print(f"best val {best_val:.4f} test {test_loss:.4f} ppl {math.exp(test_loss):.3f}")


if __name__ == "__main__":
    main()
