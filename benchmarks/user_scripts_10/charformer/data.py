import torch
from torch.utils.data import Dataset


class CharDataset(Dataset):
    """Windows of block_size + 1 characters; a window starts at every `stride` characters."""

    def __init__(self, text: str, block_size: int, chars=None, stride: int = 8):
        self.chars = chars or sorted(set(text))
        self.stoi = {c: i for i, c in enumerate(self.chars)}
        self.itos = {i: c for i, c in enumerate(self.chars)}
        self.text = text
        self.block_size = block_size
        self.stride = stride

    @property
    def vocab_size(self) -> int:
        return len(self.chars)

    def __len__(self) -> int:
        return (len(self.text) - self.block_size - 1) // self.stride

    def __getitem__(self, i):
        start = i * self.stride
        chunk = self.text[start:start + self.block_size + 1]
        ids = [self.stoi[c] for c in chunk]
        x = torch.tensor(ids[:-1], dtype=torch.long)
        y = torch.tensor(ids[1:], dtype=torch.long)
        return x, y

    def decode(self, ids) -> str:
        return "".join(self.itos[int(i)] for i in ids)
