"""Fruit classifier on small noisy thumbnails: flips, shifts and colour jitter per image, mixup in the collate function, smoothed labels, warmup + cosine, EMA."""
import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 5
SIZE = 14
EPOCHS = 9
BATCH_SIZE = 48
BASE_LR = 0.08
SMOOTHING = 0.1
MIXUP_ALPHA = 0.4


def make_fruit(n, seed):
    rng = np.random.default_rng(seed)
    palette = np.array([[0.9, 0.2, 0.2], [0.9, 0.8, 0.2], [0.2, 0.7, 0.3], [0.8, 0.4, 0.1], [0.5, 0.2, 0.6]], dtype=np.float32)
    labels = rng.integers(0, NUM_CLASSES, n)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    images = np.empty((n, 3, SIZE, SIZE), dtype=np.float32)
    for i, k in enumerate(labels):
        cy, cx = rng.uniform(5, 9, 2)
        stretch = [1.0, 2.2, 1.3, 1.0, 0.7][k]
        inside = ((yy - cy) ** 2 * stretch + (xx - cx) ** 2 / stretch) < rng.uniform(6, 12)
        colour = palette[k] + rng.normal(0, 0.25, 3)
        images[i] = inside[None] * colour[:, None, None] + rng.normal(0, 0.45, (3, SIZE, SIZE))
    return torch.from_numpy(images), torch.from_numpy(labels)


class FruitDataset(Dataset):
    def __init__(self, images, labels, train=False):
        self.images, self.labels, self.train = images, labels, train

    def __len__(self):
        return len(self.labels)

    def augment(self, img):
        if torch.rand(1).item() < 0.5:
            img = img.flip(-1)
        dy, dx = torch.randint(-2, 3, (2,)).tolist()
        img = torch.roll(img, (dy, dx), (1, 2))
        return img * (0.7 + 0.6 * torch.rand(3, 1, 1))

    def __getitem__(self, i):
        img = self.images[i]
        if self.train:
            img = self.augment(img)
        return img, self.labels[i]


class MixupCollate:
    """Mixes every image of a batch with another one, each pair with its own lambda."""

    def __init__(self, alpha):
        self.beta = torch.distributions.Beta(alpha, alpha)

    def __call__(self, samples):
        x = torch.stack([s[0] for s in samples])
        y = torch.stack([s[1] for s in samples])
        target = F.one_hot(y, NUM_CLASSES).float() * (1 - SMOOTHING) + SMOOTHING / NUM_CLASSES
        lam = self.beta.sample((len(x),))
        lam = torch.maximum(lam, 1 - lam)
        perm = torch.randperm(len(x))
        x = lam.view(-1, 1, 1, 1) * x + (1 - lam).view(-1, 1, 1, 1) * x[perm]
        target = lam.view(-1, 1) * target + (1 - lam).view(-1, 1) * target[perm]
        return x, target


class SmallNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.fc = nn.Linear(2 * width * 9, NUM_CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.adaptive_avg_pool2d(x, 3)
        return self.fc(x.flatten(1))


class ModelEMA:
    def __init__(self, model, decay=0.98):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.module.parameters(), model.parameters()):
            e.mul_(self.decay).add_(p, alpha=1 - self.decay)
        for e, b in zip(self.module.buffers(), model.buffers()):
            e.copy_(b)


def param_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.ndim > 1]
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]


def evaluate(model, loader):
    model.eval()
    loss_sum, correct, seen = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            logits = model(x)
            loss_sum += F.cross_entropy(logits, y, reduction="sum").item()
            correct += (logits.argmax(1) == y).sum().item()
            seen += len(y)
    return loss_sum / seen, correct / seen


def main():
    torch.manual_seed(1234)
    train_set = FruitDataset(*make_fruit(700, 0), train=True)
    train_loader = DataLoader(train_set, BATCH_SIZE, shuffle=True, collate_fn=MixupCollate(MIXUP_ALPHA))
    val_loader = DataLoader(FruitDataset(*make_fruit(260, 1)), 100)
    test_loader = DataLoader(FruitDataset(*make_fruit(400, 2)), 100)

    model = SmallNet()
    ema = ModelEMA(model)
    optimizer = torch.optim.SGD(param_groups(model, 0.02), lr=BASE_LR, momentum=0.9, nesterov=True)
    total_steps = EPOCHS * len(train_loader)
    warmup = total_steps // 10

    def lr_lambda(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total_steps - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    best_loss, best_state = float("inf"), None
    for epoch in range(EPOCHS):
        model.train()
        running, seen = 0.0, 0
        for x, target in train_loader:
            logits = model(x)
            loss = -(target * F.log_softmax(logits, dim=1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            scheduler.step()
            running += loss.item() * len(x)
            seen += len(x)
        val_loss, val_acc = evaluate(model, val_loader)
        ema_loss, ema_acc = evaluate(ema.module, val_loader)
        print(f"epoch {epoch + 1}: train {running / seen:.4f} val {val_loss:.4f}/{val_acc:.4f} ema {ema_loss:.4f}/{ema_acc:.4f} lr {scheduler.get_last_lr()[0]:.5f}")
        if val_loss < best_loss:
            best_loss = val_loss
            best_state = copy.deepcopy(model.state_dict())
    torch.save({"model": model.state_dict(), "best": best_state, "ema": ema.module.state_dict(), "optimizer": optimizer.state_dict()}, "picnic.pt")
    model.load_state_dict(best_state)
    test_loss, test_acc = evaluate(model, test_loader)
    ema_loss, ema_acc = evaluate(ema.module, test_loader)
    print(f"best val {best_loss:.4f} test {test_loss:.4f}/{test_acc:.4f} ema test {ema_loss:.4f}/{ema_acc:.4f}")


if __name__ == "__main__":
    main()
