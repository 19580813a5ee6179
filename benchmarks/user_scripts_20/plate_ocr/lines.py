"""labels.tsv: <file name> TAB <text>"""
from pathlib import Path

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from alphabet import encode

HEIGHT = 48
MAX_WIDTH = 512


class Lines(Dataset):
    def __init__(self, root: Path, split: str, augment: bool) -> None:
        self.root = root
        self.augment = augment
        self.items: list[tuple[str, str]] = []
        for line in (root / f"{split}.tsv").read_text(encoding="utf-8").splitlines():
            name, text = line.split("\t")
            if encode(text):
                self.items.append((name, text))

    def __len__(self) -> int:
        return len(self.items)

    def distort(self, img: np.ndarray) -> np.ndarray:
        if np.random.rand() < 0.5:
            h, w = img.shape
            shift = np.random.uniform(-0.15, 0.15) * h
            m = np.float32([[1, shift / h, 0], [0, 1, 0]])
            img = cv2.warpAffine(img, m, (w, h), borderValue=255)
        if np.random.rand() < 0.3:
            img = cv2.GaussianBlur(img, (3, 3), 0)
        return np.clip(img.astype(np.float32) * np.random.uniform(0.7, 1.2), 0, 255).astype(np.uint8)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, str]:
        name, text = self.items[i]
        img = cv2.imread(str(self.root / "img" / name), cv2.IMREAD_GRAYSCALE)
        w = min(MAX_WIDTH, max(32, round(img.shape[1] * HEIGHT / img.shape[0])))
        img = cv2.resize(img, (w, HEIGHT), interpolation=cv2.INTER_AREA)
        if self.augment:
            img = self.distort(img)
        return torch.from_numpy(img).float().div(127.5).sub(1.0)[None], text


def pad(batch):
    width = max(img.shape[-1] for img, _ in batch)
    images = torch.ones(len(batch), 1, HEIGHT, width)
    for k, (img, _) in enumerate(batch):
        images[k, :, :, : img.shape[-1]] = img
    widths = torch.tensor([img.shape[-1] for img, _ in batch])
    targets = [torch.tensor(encode(t)) for _, t in batch]
    lengths = torch.tensor([len(t) for t in targets])
    return images, widths, torch.cat(targets), lengths, [t for _, t in batch]


def make_loader(root: Path, split: str, batch_size: int, train: bool, **kw) -> DataLoader:
    return DataLoader(
        Lines(root, split, augment=train), batch_size=batch_size, shuffle=train, collate_fn=pad, drop_last=train, **kw
    )
