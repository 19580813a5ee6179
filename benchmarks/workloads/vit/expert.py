"""As train.py, tuned by hand: workers, bytes to the device, fused attention, 16 bits, compiled."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def store(folder, number, side):
    os.makedirs(folder)
    rng = np.random.default_rng(0)
    base = rng.integers(0, 128, (10, side, side, 3))
    for n in range(number):
        image = base[n % 10] + rng.integers(0, 128, (side, side, 3))
        np.save(os.path.join(folder, f"{n:05d}_{n % 10}.npy"), image.astype(np.uint8))


class StoredImages(Dataset):
    def __init__(self, folder, size):
        self.files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        self.size = size

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        image = torch.from_numpy(np.load(path)).permute(2, 0, 1)
        top, left = torch.randint(image.shape[1] - self.size + 1, (2,)).tolist()
        image = image[:, top : top + self.size, left : left + self.size]
        if torch.rand(1) < 0.5:
            image = image.flip(2)
        return image.contiguous(), int(path[:-4].rsplit("_", 1)[1])


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, size, patch, dim, heads):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(12)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        return self.head(self.norm(self.blocks(x + self.pos_embed))[:, 0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    number, side, size, patch, dim, heads, batch = (4_000, 256, 224, 16, 384, 6, 64)
    if args.tiny:
        number, side, size, patch, dim, heads, batch, args.epochs = 48, 40, 32, 8, 24, 2, 4, 1

    torch.manual_seed(0)
    if not os.path.exists("stored"):
        store("stored", number, side)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(
        StoredImages("stored", size), batch_size=batch, shuffle=True, pin_memory=on_gpu,
        num_workers=min(len(os.sched_getaffinity(0)), 16), persistent_workers=True,
    )  # fmt: skip
    model = ViT(size, patch, dim, heads).to(device)
    compiled = torch.compile(model) if on_gpu else model
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 100))
    for epoch in range(args.epochs):
        losses = []
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            images = (images - 127.5) / 63.75  # mean 0.5 and deviation 0.25 of 255
            with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
                loss = criterion(compiled(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}")


if __name__ == "__main__":
    main()
