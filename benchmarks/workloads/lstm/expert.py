"""As train.py, tuned by hand: words on the device, a decoder in 16 bits, nothing read in a step."""

import argparse
import math
import time

import torch
import torch.nn as nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid, self.nlayers = nhid, nlayers

    def forward(self, tokens, hidden):
        emb = self.drop(self.encoder(tokens))
        with torch.autocast(emb.device.type, enabled=False):  # to fp16, whatever is asked for
            output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return decoded.view(-1, decoded.size(-1)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.nlayers, bsz, self.nhid),
            weight.new_zeros(self.nlayers, bsz, self.nhid),
        )


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def evaluate(model, source, bptt, criterion):
    model.eval()
    total_loss = 0.0
    hidden = model.init_hidden(source.size(1))
    half = torch.autocast(source.device.type, torch.bfloat16, enabled=source.is_cuda)
    with torch.inference_mode(), half:
        for i in range(0, source.size(0) - 1, bptt):
            data, targets = get_batch(source, i, bptt)
            output, hidden = model(data, hidden)
            total_loss += len(data) * criterion(output, targets)
    return total_loss.item() / (len(source) - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=20)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--log-interval", type=int, default=200)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    words, length, batch, bptt, width = (33_278, 2_000_000, 20, 35, 650)
    if args.tiny:
        words, length, batch, bptt, width, args.epochs = 100, 600, 4, 10, 16, 1

    torch.manual_seed(1111)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    steps = torch.randint(1, 4, (length,))
    corpus = steps.cumsum(0) % words
    train_data = batchify(corpus[: length * 9 // 10], batch).to(device)
    val_data = batchify(corpus[length * 9 // 10 :], batch).to(device)
    torch.set_float32_matmul_precision("high")
    model = RNNModel(words, width, width, 2, 0.5).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        model.train()
        total_loss = 0.0
        start_time = time.time()
        hidden = model.init_hidden(batch)
        for n, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
            data, targets = get_batch(train_data, i, bptt)
            hidden = repackage_hidden(hidden)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                output, hidden = model(data, hidden)
                loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            total_loss += loss.detach()
            if n % args.log_interval == 0 and n > 0:
                loss_now = total_loss / args.log_interval
                ms = (time.time() - start_time) * 1000 / args.log_interval
                print(f"epoch {epoch} batch {n}: {ms:.2f} ms, loss {loss_now:.2f}")
                total_loss, start_time = 0.0, time.time()
        val_loss = evaluate(model, val_data, bptt, criterion)
        print(f"epoch {epoch}: validation {val_loss:.2f}, perplexity {math.exp(val_loss):.2f}")


if __name__ == "__main__":
    main()
