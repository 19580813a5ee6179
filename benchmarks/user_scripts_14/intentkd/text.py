import json
import os
import random
import re
from collections import Counter

import torch
from torch.utils.data import Dataset

PAD, UNK, CLS = 0, 1, 2
TOKEN = re.compile(r"[a-z]+|\d|[^\sa-z\d]")

OPEN = ["please", "hey", "hello ,", "could you", "i would like to", "can i", "i need to", "", "", "good morning ,", "quick question :"]
CLOSE = ["", "", "thanks", "as soon as possible", "today", "by friday", "for my wife", "from my phone", "if that is possible ?", "?"]
ACTIONS = ["open", "close", "block", "renew", "check", "change", "cancel", "dispute", "order", "explain", "increase", "lower"]
OBJECTS = ["savings account", "credit card", "loan", "transfer", "standing order", "statement", "pin", "limit", "address", "fee"]


def intents(n):
    pairs = [(a, o) for o in OBJECTS for a in ACTIONS]
    return pairs[:n]


def noise(word, rng):
    if len(word) > 3 and rng.random() < 0.06:
        i = rng.randrange(len(word) - 1)
        word = word[:i] + word[i + 1] + word[i] + word[i + 2:]
    return word


def write_queries(path, n, n_intents, seed):
    if os.path.exists(path):
        return
    rng = random.Random(seed)
    pairs = intents(n_intents)
    with open(path, "w") as f:
        for _ in range(n):
            y = rng.randrange(len(pairs))
            a, o = pairs[y]
            extra = " and also tell me about the " + rng.choice(OBJECTS) if rng.random() < 0.2 else ""
            amount = f" number {rng.randint(1, 9999)}" if rng.random() < 0.3 else ""
            text = f"{rng.choice(OPEN)} {a} my {o}{amount}{extra} {rng.choice(CLOSE)}"
            text = " ".join(noise(w, rng) for w in text.split())
            f.write(json.dumps({"text": text, "intent": y}) + "\n")


class Vocabulary:
    def __init__(self, texts, size):
        count = Counter(t for text in texts for t in TOKEN.findall(text.lower()))
        self.words = ["<pad>", "<unk>", "<cls>"] + [w for w, _ in count.most_common(size - 3)]
        self.index = {w: i for i, w in enumerate(self.words)}

    def __len__(self):
        return len(self.words)

    def encode(self, text, max_len):
        return [CLS] + [self.index.get(t, UNK) for t in TOKEN.findall(text.lower())][: max_len - 1]


class Queries(Dataset):
    def __init__(self, path):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Collate:
    """Tokenises and pads. `ids` is what the teacher sees, `noisy` is for the student."""

    def __init__(self, vocab, max_len, word_drop):
        self.vocab, self.max_len, self.word_drop = vocab, max_len, word_drop

    def __call__(self, rows):
        seqs = [self.vocab.encode(r["text"], self.max_len) for r in rows]
        width = max(len(s) for s in seqs)
        noisy = []
        for s in seqs:
            noisy.append([UNK if t != CLS and random.random() < self.word_drop else t for t in s])
        return {
            "ids": torch.tensor([s + [PAD] * (width - len(s)) for s in seqs]),
            "noisy": torch.tensor([s + [PAD] * (width - len(s)) for s in noisy]),
            "lengths": torch.tensor([len(s) for s in seqs]),
            "labels": torch.tensor([r["intent"] for r in rows]),
        }
