"""A character model: two LSTM layers with dropout between them, truncated backpropagation with the state carried, perplexity through logging."""

import logging
import math

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("language")
torch.manual_seed(3)
BPTT, ROWS, WORDS = 12, 8, 20


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.rnn = nn.LSTM(16, 32, num_layers=2, dropout=0.2)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32, WORDS)

    def forward(self, x, state):
        out, state = self.rnn(self.drop(self.embed(x)), state)
        return self.head(self.drop(out)), state


def corpus(length, seed):
    generator = torch.Generator().manual_seed(seed)
    table = torch.softmax(3 * torch.randn(WORDS, WORDS, generator=torch.Generator().manual_seed(9)), 1)
    words = [0]
    for _ in range(length - 1):
        words.append(int(torch.multinomial(table[words[-1]], 1, generator=generator)))
    return torch.tensor(words).view(ROWS, -1).t().contiguous()


def batches(data):
    for i in range(0, len(data) - 1, BPTT):
        length = min(BPTT, len(data) - 1 - i)
        yield data[i : i + length], data[i + 1 : i + 1 + length].reshape(-1)


def detached(state):
    return tuple(part.detach() for part in state)


def evaluate(model, data, criterion):
    model.eval()
    total, state = 0.0, None
    with torch.no_grad():
        for x, y in batches(data):
            out, state = model(x, state)
            total += len(x) * criterion(out.reshape(-1, WORDS), y).item()
    return total / (len(data) - 1)


def main():
    train, valid = corpus(1200, 0), corpus(400, 1)
    model = Model()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    plain = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    best = None
    for epoch in range(4):
        model.train()
        total, state = 0.0, None
        for x, y in batches(train):
            if state is not None:
                state = detached(state)
            out, state = model(x, state)
            loss = criterion(out.reshape(-1, WORDS), y)
            model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            total += len(x) * loss.item()
        value = evaluate(model, valid, plain)
        log.info("epoch %d train %.4f valid %.4f ppl %.2f", epoch, total / (len(train) - 1), value, math.exp(value))
        if best is None or value < best:
            best = value
            torch.save({"model": model.state_dict(), "epoch": epoch}, "model.pt")
        else:
            for group in optimizer.param_groups:
                group["lr"] /= 4.0


main()
