import random
import re

import torch
from torch.utils.data import Dataset

POS = "great lovely superb brilliant warm clever fresh".split()
NEG = "dull awful stale clumsy cold boring weak".split()
FILL = "the a film scene plot actor music was and felt with of this rather very it one long short ending".split()
SPECIAL = ["[PAD]", "[CLS]", "[UNK]", "not", ".", ","]


class WordTokenizer:
    def __init__(self):
        self.vocab = {w: i for i, w in enumerate(SPECIAL + FILL + POS + NEG)}

    def __call__(self, text):
        toks = re.findall(r"\w+|[.,]", text.lower())
        return [1] + [self.vocab.get(t, 2) for t in toks]


def make_review(rng):
    words, score = [], 0
    for _ in range(rng.randint(6, 28)):
        r = rng.random()
        if r < 0.16:
            neg = rng.random() < 0.3
            good = rng.random() < 0.5
            words += (["not"] if neg else []) + [rng.choice(POS if good else NEG)]
            score += 1 if good != neg else -1
        elif r < 0.22:
            words.append(rng.choice([".", ","]))
        else:
            words.append(rng.choice(FILL))
    return " ".join(words), 0 if score < 0 else (1 if score == 0 else 2)


class ReviewDataset(Dataset):
    def __init__(self, n, seed, tokenizer):
        rng = random.Random(seed)
        self.rows = [make_review(rng) for _ in range(n)]
        self.tokenizer = tokenizer

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text, label = self.rows[i]
        return {"input_ids": self.tokenizer(text), "label": label}


class DataCollatorWithPadding:
    def __init__(self, pad_id=0):
        self.pad_id = pad_id

    def __call__(self, features):
        width = max(len(f["input_ids"]) for f in features)
        ids = torch.full((len(features), width), self.pad_id, dtype=torch.long)
        for r, f in enumerate(features):
            ids[r, :len(f["input_ids"])] = torch.tensor(f["input_ids"])
        return {"input_ids": ids, "attention_mask": (ids != self.pad_id).long(),
                "labels": torch.tensor([f["label"] for f in features])}
