"""Rewrite dates as people write them in a short machine form: GRU encoder, GRU decoder with attention, scheduled teacher forcing."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MONTHS = "january february march april may june july august september october november december".split()
CHARS = "abcdefghijklmnopqrstuvwxyz0123456789 /.,-"
PAD, START, END = 0, 1, 2
SOURCE = {c: i + 3 for i, c in enumerate(CHARS)}
TARGET = {c: i + 3 for i, c in enumerate("0123456789-")}

EPOCHS = 7
BATCH = 40
HIDDEN = 64
PEAK_LR = 1e-2


def make_pairs(n, seed):
    rand = random.Random(seed)
    pairs = []
    for _ in range(n):
        day, month, year = rand.randint(1, 28), rand.randint(1, 12), rand.randint(1980, 2039)
        name = MONTHS[month - 1]
        text = rand.choice([
            f"{day} {name} {year}", f"{name} {day}, {year}", f"{day:02d}/{month:02d}/{year}", f"{day}.{month}.{year % 100:02d}",
            f"{name[:3]} {day} {year}", f"the {day} of {name[:3]}, {year % 100:02d}",
        ])
        source = torch.tensor([SOURCE[c] for c in text])
        target = torch.tensor([TARGET[c] for c in f"{year % 100:02d}-{month}-{day}"] + [END])
        pairs.append((source, target))
    return pairs


def pad(sequences):
    return nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PAD)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(SOURCE) + 3, 24, padding_idx=PAD)
        self.dropout = nn.Dropout(0.1)
        self.gru = nn.GRU(24, HIDDEN // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, source):
        lengths = (source != PAD).sum(1)
        x = self.dropout(self.embed(source))
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = self.gru(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return memory, torch.tanh(self.bridge(torch.cat([last[0], last[1]], 1)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(TARGET) + 3, 24)
        self.key, self.query = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.energy = nn.Linear(HIDDEN, 1, bias=False)
        self.cell = nn.GRUCell(24 + HIDDEN, HIDDEN)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(2 * HIDDEN, len(TARGET) + 3)

    def attend(self, hidden, memory, mask):
        energy = self.energy(torch.tanh(self.key(memory) + self.query(hidden).unsqueeze(1))).squeeze(2)
        weights = energy.masked_fill(~mask, -1e9).softmax(1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)

    def forward(self, token, hidden, memory, mask):
        context = self.attend(hidden, memory, mask)
        hidden = self.cell(torch.cat([self.embed(token), context], 1), hidden)
        return self.out(self.dropout(torch.cat([hidden, context], 1))), hidden


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, source, target, teacher_ratio):
        memory, hidden = self.encoder(source)
        mask = source != PAD
        token = torch.full((len(source),), START)
        outputs = []
        for t in range(target.shape[1]):
            logits, hidden = self.decoder(token, hidden, memory, mask)
            outputs.append(logits)
            teach = torch.rand(len(source)) < teacher_ratio
            token = torch.where(teach, target[:, t], logits.argmax(1))
        return torch.stack(outputs, 1)

    @torch.no_grad()
    def translate(self, source, longest=9):
        memory, hidden = self.encoder(source)
        mask = source != PAD
        token = torch.full((len(source),), START)
        written, done = [], torch.zeros(len(source), dtype=torch.bool)
        for _ in range(longest):
            logits, hidden = self.decoder(token, hidden, memory, mask)
            token = logits.argmax(1).masked_fill(done, PAD)
            written.append(token)
            done |= token == END
        return torch.stack(written, 1)


def sequence_loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


@torch.no_grad()
def evaluate(model, pairs, batch=100):
    model.eval()
    loss, tokens, right = 0.0, 0, 0
    for start in range(0, len(pairs), batch):
        sources, targets = zip(*pairs[start : start + batch])
        source, target = pad(sources), pad(targets)
        count = (target != PAD).sum().item()
        loss += sequence_loss(model(source, target, 1.0), target).item() * count
        tokens += count
        written = model.translate(source)
        wanted = F.pad(target, (0, written.shape[1] - target.shape[1]))
        right += (written == wanted).all(1).sum().item()
    return loss / tokens, right / len(pairs)


def main():
    torch.manual_seed(8)
    shuffler = random.Random(8)
    train, valid = make_pairs(1220, 1), make_pairs(300, 2)
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=PEAK_LR)
    steps = -(-len(train) // BATCH)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=PEAK_LR, total_steps=EPOCHS * steps)
    best = -1.0
    for epoch in range(EPOCHS):
        model.train()
        shuffler.shuffle(train)
        teacher_ratio = max(0.25, 1 - epoch / 6)
        loss_sum, token_sum = 0.0, 0
        for start in range(0, len(train), BATCH):
            sources, targets = zip(*train[start : start + BATCH])
            source, target = pad(sources), pad(targets)
            loss = sequence_loss(model(source, target, teacher_ratio), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            count = (target != PAD).sum().item()
            loss_sum += loss.item() * count
            token_sum += count
        valid_loss, exact = evaluate(model, valid)
        print(f"epoch {epoch + 1} teacher {teacher_ratio:.2f} train {loss_sum / token_sum:.4f} valid {valid_loss:.4f} exact {exact:.4f}", flush=True)
        if exact > best:
            best = exact
            torch.save({"model": model.state_dict(), "epoch": epoch, "exact": exact}, "dates.pt")
    print(f"best exact match {best:.4f}")


if __name__ == "__main__":
    main()
