import re
from collections import Counter

import torch
from torch.utils.data import Dataset

PAD, UNK = 0, 1


def tokenize(text):
    return re.findall(r"[a-z']+", text.lower())


class Vocab(object):
    def __init__(self, texts, min_freq=2, max_size=30000):
        counter = Counter()
        for t in texts:
            counter.update(tokenize(t))
        self.itos = ['<pad>', '<unk>'] + [w for w, c in counter.most_common(max_size) if c >= min_freq]
        self.stoi = {}
        for i, w in enumerate(self.itos):
            self.stoi[w] = i

    def __len__(self):
        return len(self.itos)

    def encode(self, text):
        return [self.stoi.get(w, UNK) for w in tokenize(text)]


def read_tsv(path):
    labels, texts = [], []
    with open(path) as f:
        for line in f:
            label, text = line.rstrip('\n').split('\t')
            labels.append(label)
            texts.append(text)
    return labels, texts


class NewsDataset(Dataset):
    def __init__(self, labels, texts, vocab, classes):
        self.labels = labels
        self.texts = texts
        self.vocab = vocab
        self.classes = classes

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = self.vocab.encode(self.texts[index])
        label = self.classes.index(self.labels[index])
        return ids, label


def collate_fn(batch):
    """sort by length (needed for pack_padded_sequence) and pad"""
    batch.sort(key=lambda b: len(b[0]), reverse=True)
    lengths = [len(b[0]) for b in batch]
    inputs = torch.zeros(len(batch), max(lengths)).long()
    for i, (ids, _) in enumerate(batch):
        inputs[i, :lengths[i]] = torch.LongTensor(ids)
    labels = torch.LongTensor([b[1] for b in batch])
    return inputs, torch.LongTensor(lengths), labels
