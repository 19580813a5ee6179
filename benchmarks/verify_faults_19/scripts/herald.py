"""Sequence tagger for heralds' rolls: packed two-way LSTM with a mask of dropout held through the sentence, conditional random field on top, rate lowered when the span F1 stands still, best weights by F1."""
import copy

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
PAD, UNKNOWN, WORDS = 0, 1, 122
EPOCHS, BATCH, LR = 10, 20, 1e-2


def make_sentences(n, seed):
    """Words 2..21 fill, 22..25 lead to a person, 26..29 to a place, 30..121 are names, even ones of persons more often than of places."""
    g = torch.Generator().manual_seed(seed)

    def draw(a, b):
        return int(torch.randint(a, b, (1,), generator=g))

    def chance():
        return torch.rand(1, generator=g).item()

    texts, tags = [], []
    for _ in range(n):
        words, marks = [], []
        for _ in range(draw(1, 5)):
            for _ in range(draw(1, 4)):
                words.append(draw(2, 22))
                marks.append(0)
            person = chance() < 0.5
            if chance() < 0.6:
                words.append(draw(22, 26) if person else draw(26, 30))
                marks.append(0)
            for k in range(draw(1, 4)):
                name = 30 + 2 * int(46 * chance() ** 2)
                odd = chance() < (0.2 if person else 0.8)
                words.append(name + odd)
                marks.append((1 if person else 3) + (k > 0))
        if chance() < 0.5:
            words.append(draw(2, 22))
            marks.append(0)
        texts.append(words)
        tags.append(marks)
    return texts, tags


class Tagger(nn.Module):
    def __init__(self, width=24, hidden=24, p=0.3):
        super().__init__()
        self.p = p
        self.embed = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(TAGS))
        self.start, self.end = nn.Parameter(torch.zeros(len(TAGS))), nn.Parameter(torch.zeros(len(TAGS)))
        self.trans = nn.Parameter(0.1 * torch.randn(len(TAGS), len(TAGS)))

    def locked(self, x):
        if not self.training:
            return x
        mask = torch.bernoulli(torch.full((x.size(0), 1, x.size(2)), 1 - self.p)) / (1 - self.p)
        return x * mask

    def emissions(self, words, lengths):
        x = self.locked(self.embed(words))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(self.locked(h))

    def gold(self, emit, tags, there):
        score = self.start[tags[:, 0]] + emit[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, tags.size(1)):
            more = self.trans[tags[:, t - 1], tags[:, t]] + emit[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
            score = score + more * there[:, t]
        last = tags.gather(1, there.sum(1, keepdim=True) - 1).squeeze(1)
        return score + self.end[last]

    def partition(self, emit, there):
        alpha = self.start + emit[:, 0]
        for t in range(1, emit.size(1)):
            new = torch.logsumexp(alpha.unsqueeze(2) + self.trans, 1) + emit[:, t]
            alpha = torch.where(there[:, t, None], new, alpha)
        return torch.logsumexp(alpha + self.end, 1)

    def loss(self, words, tags, lengths):
        there = words != PAD
        emit = self.emissions(words, lengths)
        return (self.partition(emit, there) - self.gold(emit, tags, there)).mean()

    def decode(self, words, lengths):
        emit = self.emissions(words, lengths)
        score, back = self.start + emit[:, 0], []
        here = torch.arange(len(TAGS)).expand(len(words), -1)
        for t in range(1, emit.size(1)):
            best, came = (score.unsqueeze(2) + self.trans).max(1)
            there = (lengths > t).unsqueeze(1)
            score = torch.where(there, best + emit[:, t], score)
            back.append(torch.where(there, came, here))
        tag = (score + self.end).argmax(1)
        path = [tag]
        for came in reversed(back):
            tag = came.gather(1, tag.unsqueeze(1)).squeeze(1)
            path.append(tag)
        return torch.stack(path[::-1], 1)


def spans(marks):
    found, begin = set(), None
    for i, tag in enumerate([*marks, 0]):
        if begin is not None and tag != marks[begin] + 1:
            found.add((begin, i, marks[begin]))
            begin = None
        if tag in (1, 3):
            begin = i
    return found


def collate(texts, tags, idx):
    words = [torch.tensor(texts[i]) for i in idx]
    marks = [torch.tensor(tags[i]) for i in idx]
    return pad_sequence(words, True, PAD), pad_sequence(marks, True, 0), torch.tensor([len(w) for w in words])


@torch.no_grad()
def evaluate(model, data, batch=25):
    model.eval()
    loss, hits, said, real = 0.0, 0, 0, 0
    for idx in torch.arange(len(data[0])).split(batch):
        words, tags, lengths = collate(*data, idx.tolist())
        loss += model.loss(words, tags, lengths).item() * len(idx)
        for n, a, b in zip(lengths.tolist(), model.decode(words, lengths).tolist(), tags.tolist()):
            a, b = spans(a[:n]), spans(b[:n])
            hits, said, real = hits + len(a & b), said + len(a), real + len(b)
    return loss / len(data[0]), 2 * hits / max(1, said + real)


def main():
    torch.manual_seed(5)
    train, dev, test = make_sentences(320, 1), make_sentences(100, 2), make_sentences(150, 3)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
    best, kept = -1.0, None
    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for idx in torch.randperm(len(train[0])).split(BATCH):
            words, tags, lengths = collate(*train, idx.tolist())
            words = torch.where((torch.rand(words.shape) < 0.05) & (words != PAD), UNKNOWN, words)
            loss = model.loss(words, tags, lengths)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(idx)
        dev_loss, f1 = evaluate(model, dev)
        plateau.step(f1)
        if f1 > best:
            best, kept = f1, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch} loss {total / len(train[0]):.5f} dev {dev_loss:.5f} f1 {f1:.4f} lr {optimizer.param_groups[0]['lr']:.5f}")
    torch.save({"model": kept, "f1": best, "tags": TAGS}, "herald.pt")
    model.load_state_dict(kept)
    test_loss, f1 = evaluate(model, test)
    print(f"test {test_loss:.5f} f1 {f1:.4f}")


if __name__ == "__main__":
    main()
