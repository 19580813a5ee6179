# Keypoints of stick figures by heatmaps. Two loader workers draw the figures' changes and make the target heatmaps.
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, STRIDE, SIGMA = 24, 2, 1.0
JOINTS = ["head", "left hand", "right hand", "left foot", "right foot"]
MIRROR = [0, 2, 1, 4, 3]
EPOCHS, BATCH, LR, WARMUP = 6, 10, 2e-3, 15


def render(joints, seen, rng):
    """Five limbs from the middle of the body; the left ones are brighter than the right ones."""
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    image = np.zeros((SIZE, SIZE), np.float32)
    middle = joints.mean(0)
    for (x, y), bright, there in zip(joints, (0.7, 1.0, 0.45, 1.0, 0.45), seen):
        if not there:
            continue
        d = np.array([x, y]) - middle
        along = np.clip(((xx - middle[0]) * d[0] + (yy - middle[1]) * d[1]) / (d @ d + 1e-6), 0, 1)
        far = (xx - middle[0] - along * d[0]) ** 2 + (yy - middle[1] - along * d[1]) ** 2
        image = np.maximum(image, bright * np.exp(-far / 1.5))
    return image + rng.normal(0, 0.12, image.shape).astype(np.float32)


class Figures(Dataset):
    def __init__(self, count, seed, train):
        rng = np.random.default_rng(seed)
        home = np.array([[0, -7], [-6, -2], [6, -2], [-4, 7], [4, 7]], np.float32)
        self.train = train
        self.joints = 11.5 + home + rng.normal(0, 1.4, (count, 5, 2)).astype(np.float32) + rng.normal(0, 1.2, (count, 1, 2)).astype(np.float32)
        self.joints = self.joints.clip(1, SIZE - 2)
        self.seen = (rng.random((count, 5)) < 0.85).astype(np.float32)
        self.images = np.stack([render(j, s, rng) for j, s in zip(self.joints, self.seen)])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, joints, seen = self.images[i], self.joints[i], self.seen[i]
        if self.train:
            if np.random.rand() < 0.5:
                image = image[:, ::-1]
                joints = (joints * [-1, 1] + [SIZE - 1, 0])[MIRROR]
                seen = seen[MIRROR]
            image = image * np.random.uniform(0.7, 1.3) + np.random.normal(0, 0.1)
            y, x = np.random.randint(0, SIZE - 6, 2)
            image = image.copy()
            image[y : y + 6, x : x + 6] = 0
        return image.astype(np.float32), joints.astype(np.float32), seen


def heatmap(joints):
    n = SIZE // STRIDE
    maps = np.zeros((len(joints), n, n), np.float32)
    yy, xx = np.mgrid[:n, :n]
    for k, (x, y) in enumerate(joints):
        d2 = (xx - x / STRIDE) ** 2 + (yy - y / STRIDE) ** 2
        maps[k] = np.exp(-d2 / (2 * SIGMA**2))
    return maps


def collate(items):
    images, joints, seen = zip(*items)
    maps = np.stack([heatmap(j) for j in joints])
    return torch.from_numpy(np.stack(images)).unsqueeze(1), torch.from_numpy(maps), torch.from_numpy(np.stack(joints)), torch.from_numpy(np.stack(seen))


def seed_worker(worker):
    np.random.seed(torch.initial_seed() % 2**32)


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(3, c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(3, c))

    def forward(self, x):
        return F.relu(x + self.net(x))


class Hourglass(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, c, 5, STRIDE, 2), nn.GroupNorm(3, c), nn.ReLU())
        self.skip, self.down, self.deep, self.up = Residual(c), Residual(c), Residual(c), Residual(c)
        self.head = nn.Conv2d(c, len(JOINTS), 1)

    def forward(self, x):
        x = self.stem(x)
        low = self.deep(self.down(F.max_pool2d(x, 2)))
        return self.head(self.up(self.skip(x) + F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)))


def heatmap_loss(found, maps, seen):
    errors = (found - maps).pow(2).mean((2, 3))
    return 100 * (errors * seen).sum() / seen.sum().clamp(min=1)


def evaluate(model, loader):
    """Share of seen joints within two pixels, with heatmaps averaged over the picture and its mirror image."""
    model.eval()
    right, total, loss, batches = 0.0, 0.0, 0.0, 0
    for images, maps, joints, seen in loader:
        with torch.no_grad():
            found = model(images)
            mirrored = model(images.flip(3)).flip(3)[:, MIRROR]
            found = (found + mirrored) / 2
        loss += heatmap_loss(found, maps, seen).item()
        best = found.flatten(2).argmax(2)
        x, y = best % (SIZE // STRIDE) * STRIDE, best // (SIZE // STRIDE) * STRIDE
        far = (torch.stack([x, y], 2) - joints).norm(dim=2)
        right += ((far < 2) * seen).sum().item()
        total += seen.sum().item()
        batches += 1
    return loss / batches, right / total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    train = DataLoader(Figures(240, 1, True), BATCH, shuffle=True, num_workers=2, collate_fn=collate, worker_init_fn=seed_worker)
    val = DataLoader(Figures(80, 2, False), BATCH, collate_fn=collate)
    model = Hourglass()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=LR, alpha=0.95)
    steps = EPOCHS * len(train)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / WARMUP) * (1 - s / steps) ** 0.9)
    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for images, maps, joints, seen in train:
            loss = heatmap_loss(model(images), maps, seen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        val_loss, pck = evaluate(model, val)
        print(f"Epoch {epoch}: loss={np.mean(losses):.4f} val={val_loss:.4f} PCK={pck:.4f}")
    torch.save(model, "joints.pth")


if __name__ == "__main__":
    main()
