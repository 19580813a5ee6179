"""Segments grass, flowers and paths in aerial pictures: small U-Net, dice + cross-entropy with unlabelled pixels, random crops, gradient accumulation, poly schedule, flipped views at evaluation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, IGNORE = 3, 255
FULL, CROP = 28, 20


def make_scenes(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(FULL).float(), torch.arange(FULL).float(), indexing="ij")
    labels = torch.zeros(n, FULL, FULL, dtype=torch.long)
    slope, shift = torch.randn(n, 1, 1, generator=g) * 0.5, torch.rand(n, 1, 1, generator=g) * FULL
    labels[(yy - slope * (xx - FULL / 2) - shift).abs() < 2.0] = 2
    for _ in range(3):
        c, r = torch.rand(n, 2, 1, 1, generator=g) * FULL, 2.0 + 2.5 * torch.rand(n, 1, 1, generator=g)
        labels[((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2) < r**2] = 1
    look = torch.tensor([[0.2, 0.6], [0.7, 0.3], [0.8, 0.9]])
    images = look[labels].permute(0, 3, 1, 2) + 0.4 * torch.randn(n, 2, FULL, FULL, generator=g)
    unknown = F.interpolate(torch.rand(n, 1, 7, 7, generator=g), size=FULL)[:, 0] < torch.rand(n, 1, 1, generator=g) * 0.5
    return images, labels.masked_fill(unknown, IGNORE)


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.down1, self.down2, self.middle = block(2, w), block(w, 2 * w), block(2 * w, 2 * w)
        self.up2, self.up1 = block(4 * w, w), block(2 * w, w)
        self.drop = nn.Dropout2d(0.2)
        self.head = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        m = self.drop(self.middle(F.max_pool2d(b, 2)))
        u = self.up2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        u = self.up1(torch.cat([F.interpolate(u, scale_factor=2), a], 1))
        return self.head(u)


def dice_loss(logits, labels):
    """Soft dice of every picture and class, over labelled pixels."""
    valid = (labels != IGNORE).unsqueeze(1)
    probs = logits.softmax(1) * valid
    truth = F.one_hot(labels.masked_fill(labels == IGNORE, 0), CLASSES).permute(0, 3, 1, 2) * valid
    inter = (probs * truth).sum((2, 3))
    union = probs.sum((2, 3)) + truth.sum((2, 3))
    return (1 - (2 * inter + 1) / (union + 1)).mean()


def criterion(logits, labels):
    return F.cross_entropy(logits, labels, ignore_index=IGNORE) + dice_loss(logits, labels)


def random_crops(images, labels):
    xs, ys = [], []
    for img, lab in zip(images, labels):
        top, left = torch.randint(0, FULL - CROP + 1, (2,)).tolist()
        img, lab = img[:, top : top + CROP, left : left + CROP], lab[top : top + CROP, left : left + CROP]
        if torch.rand(1) < 0.5:
            img, lab = img.flip(-1), lab.flip(-1)
        xs.append(img)
        ys.append(lab)
    return torch.stack(xs), torch.stack(ys)


@torch.no_grad()
def evaluate(model, images, labels, batch_size=16):
    model.eval()
    confusion = torch.zeros(CLASSES, CLASSES)
    for i in range(0, len(images), batch_size):
        x, y = images[i : i + batch_size], labels[i : i + batch_size]
        probs = model(x).softmax(1)
        probs = probs + model(x.flip(-1)).softmax(1).flip(-1)
        pred, known = probs.argmax(1), y != IGNORE
        confusion += torch.bincount(y[known] * CLASSES + pred[known], minlength=CLASSES**2).view(CLASSES, CLASSES)
    inter = confusion.diag()
    iou = inter / (confusion.sum(0) + confusion.sum(1) - inter)
    return iou.mean().item(), iou.tolist()


def train(epochs=7, micro=5, accum=4, lr=0.012, seed=42):
    torch.manual_seed(seed)
    train_x, train_y = make_scenes(172, 0)
    val_x, val_y = make_scenes(36, 1)
    test_x, test_y = make_scenes(60, 2)
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    batches = -(-len(train_x) // micro)
    max_steps = epochs * -(-batches // accum)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, 1 - s / max_steps) ** 0.9)

    best = 0.0
    for epoch in range(epochs):
        model.train()
        epoch_loss = 0.0
        chunks = torch.randperm(len(train_x)).split(micro)
        for first in range(0, len(chunks), accum):
            group = chunks[first : first + accum]
            size = sum(len(idx) for idx in group)
            optimizer.zero_grad()
            for idx in group:
                x, y = random_crops(train_x[idx], train_y[idx])
                loss = criterion(model(x), y)
                (loss * len(idx) / size).backward()
                epoch_loss += loss.item() * len(idx)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        miou, per_class = evaluate(model, val_x, val_y)
        print(f"[{epoch + 1}/{epochs}] loss={epoch_loss / len(train_x):.4f} val mIoU={miou:.4f} " + " ".join(f"{v:.3f}" for v in per_class))
        if miou > best:
            best = miou
            torch.save(model.state_dict(), "meadow_best.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, "meadow_last.pt")
    model.load_state_dict(torch.load("meadow_best.pt"))
    print(f"best val mIoU={best:.4f} test mIoU={evaluate(model, test_x, test_y)[0]:.4f}")


if __name__ == "__main__":
    train()
