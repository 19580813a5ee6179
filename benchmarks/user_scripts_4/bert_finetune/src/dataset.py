import torch
from torch.utils.data import Dataset

from .tokenizer import make_pairs


class NliDataset(Dataset):
    def __init__(self, tokenizer, n, seed, max_len=32):
        self.tok = tokenizer
        self.pairs = make_pairs(n, seed)
        self.max_len = max_len

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        a, b, label = self.pairs[i]
        ids, types = self.tok(a, b)
        return {"input_ids": ids[: self.max_len], "token_type_ids": types[: self.max_len], "label": label}


class Collator:
    """Pads to the longest of the batch."""

    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        batch = {}
        for key, pad in (("input_ids", self.pad_id), ("token_type_ids", 0)):
            batch[key] = torch.tensor([f[key] + [pad] * (longest - len(f[key])) for f in features])
        batch["attention_mask"] = (batch["input_ids"] != self.pad_id).long()
        batch["labels"] = torch.tensor([f["label"] for f in features])
        return batch
