import random
import torch

PAD, UNK = 0, 1


class Alphabet(object):
    def __init__(self, unk=True):
        self.item2id = {"<pad>": PAD}
        if unk:
            self.item2id["<unk>"] = UNK
        self.items = list(self.item2id)

    def add(self, item):
        if item not in self.item2id:
            self.item2id[item] = len(self.items)
            self.items.append(item)

    def get(self, item):
        return self.item2id.get(item, UNK)

    def __len__(self):
        return len(self.items)


def read_conll(path):
    sents, cur = [], []
    with open(path) as f:
        for line in f:
            line = line.strip()
            if not line:
                if cur:
                    sents.append(cur)
                cur = []
                continue
            w, t = line.split()
            cur.append((w, t))
    if cur:
        sents.append(cur)
    return sents


def build_alphabets(sents, min_count=2):
    words, chars, tags = Alphabet(), Alphabet(), Alphabet(unk=False)
    counts = {}
    for s in sents:
        for w, t in s:
            counts[w.lower()] = counts.get(w.lower(), 0) + 1
            tags.add(t)
            for c in w:
                chars.add(c)
    for w, n in counts.items():
        if n >= min_count:
            words.add(w)
    return words, chars, tags


def to_ids(sents, words, chars, tags):
    out = []
    for s in sents:
        out.append(([words.get(w.lower()) for w, _ in s],
                    [[chars.get(c) for c in w] for w, _ in s],
                    [tags.item2id.get(t, PAD) for _, t in s]))
    return out


class BatchIter(object):
    """Sorts by length once and cuts batches; every epoch only their order changes."""

    def __init__(self, data, batch_size, shuffle, gpu):
        data = sorted(data, key=lambda x: -len(x[0]))
        self.batches = [data[i:i + batch_size] for i in range(0, len(data), batch_size)]
        self.shuffle = shuffle
        self.gpu = gpu

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        order = list(range(len(self.batches)))
        if self.shuffle:
            random.shuffle(order)
        for i in order:
            yield self.pad(self.batches[i])

    def pad(self, batch):
        lengths = [len(x[0]) for x in batch]
        B, T = len(batch), max(lengths)
        C = max(len(w) for x in batch for w in x[1])
        word = torch.zeros(B, T).long()
        char = torch.zeros(B, T, C).long()
        tag = torch.zeros(B, T).long()
        mask = torch.zeros(B, T)
        for b, (ws, cs, ts) in enumerate(batch):
            word[b, :lengths[b]] = torch.LongTensor(ws)
            tag[b, :lengths[b]] = torch.LongTensor(ts)
            mask[b, :lengths[b]] = 1
            for t, w in enumerate(cs):
                char[b, t, :len(w)] = torch.LongTensor(w)
        if self.gpu:
            word, char, tag, mask = word.cuda(), char.cuda(), tag.cuda(), mask.cuda()
        return word, char, tag, mask, lengths
