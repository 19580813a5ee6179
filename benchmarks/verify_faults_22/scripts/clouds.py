"""PointNet on synthetic shapes: random turns about the vertical, jitter, lost points; T-Net with a penalty; votes at test time."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SHAPES = ["box", "ball", "cone", "ring", "cylinder"]
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--points", type=int, default=64)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--reg", type=float, default=0.01)
parser.add_argument("--max-norm", type=float, default=1.0)
parser.add_argument("--votes", type=int, default=3)
parser.add_argument("--seed", type=int, default=11)


def shape(kind, n, g):
    """n points on the surface of a shape with random proportions."""
    a, u, v = torch.rand(n, generator=g) * 2 * math.pi, torch.rand(n, generator=g) * 2 - 1, torch.rand(n, generator=g)
    if kind == "ball":
        r = (1 - u**2).sqrt()
        points = torch.stack([r * a.cos(), r * a.sin(), u], 1)
    elif kind == "cylinder":
        points = torch.stack([0.7 * a.cos(), 0.7 * a.sin(), u], 1)
    elif kind == "cone":
        r = v.sqrt()
        points = torch.stack([r * a.cos(), r * a.sin(), 1 - 2 * r], 1)
    elif kind == "ring":
        b = u * math.pi
        r = 0.75 + 0.3 * b.cos()
        points = torch.stack([r * a.cos(), r * a.sin(), 0.6 * b.sin()], 1)
    else:
        points = torch.rand(n, 3, generator=g) * 2 - 1
        side = torch.randint(0, 3, (n,), generator=g)
        points[torch.arange(n), side] = points[torch.arange(n), side].sign()
    return points * (0.6 + 0.6 * torch.rand(3, generator=g)) + 0.08 * torch.randn(n, 3, generator=g)


def turned(points, angle):
    c, s = math.cos(angle), math.sin(angle)
    return points @ torch.tensor([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


class Shapes(Dataset):
    def __init__(self, count, points, seed, train):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(count) % len(SHAPES)
        self.clouds = [shape(SHAPES[k], 120, g) for k in self.labels]
        self.points, self.train = points, train

    def __len__(self):
        return len(self.clouds)

    def __getitem__(self, i):
        cloud = self.clouds[i]
        if not self.train:
            return cloud[: self.points], self.labels[i]
        cloud = cloud[torch.randperm(len(cloud))[: self.points]]
        cloud = turned(cloud, torch.rand(1).item() * 2 * math.pi)
        cloud = cloud + (0.06 * torch.randn(cloud.shape)).clamp(-0.12, 0.12)
        lost = torch.rand(len(cloud)) < torch.rand(1) * 0.5
        cloud = torch.where(lost.unsqueeze(1), cloud[0], cloud)
        return cloud, self.labels[i]


def block(cin, cout):
    return nn.Sequential(nn.Conv1d(cin, cout, 1, bias=False), nn.BatchNorm1d(cout), nn.ReLU())


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = block(3, 16)
        self.tnet = nn.Sequential(block(16, 64), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(64, 16 * 16))
        self.body = nn.Sequential(block(16, 32), block(32, 96))
        self.head = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, len(SHAPES)))

    def forward(self, points):
        x = self.local(points.transpose(1, 2))
        transform = self.tnet(x).view(-1, 16, 16) + torch.eye(16)
        x = self.body(transform @ x)
        return self.head(x.amax(2)), transform


def orthogonality(transform):
    gram = transform @ transform.transpose(1, 2)
    return (gram - torch.eye(16)).pow(2).sum((1, 2)).mean()


def set_momentum(model, epoch):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = max(0.5 * 0.6**epoch, 0.02)


@torch.no_grad()
def evaluate(model, loader, votes):
    model.eval()
    right, loss, count = 0, 0.0, 0
    for clouds, labels in loader:
        probs = 0
        for k in range(votes):
            logits, _ = model(turned(clouds, 2 * math.pi * k / votes))
            probs = probs + logits.softmax(1)
        probs = probs / votes
        loss += F.nll_loss(probs.log(), labels, reduction="sum").item()
        right += (probs.argmax(1) == labels).sum().item()
        count += len(labels)
    return loss / count, right / count


def main():
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train = DataLoader(Shapes(360, args.points, 1, True), args.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(Shapes(150, args.points, 2, False), 30)
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    best = 0.0
    for epoch in range(args.epochs):
        model.train()
        set_momentum(model, epoch)
        total = 0.0
        for clouds, labels in train:
            optimizer.zero_grad()
            logits, transform = model(clouds)
            loss = F.cross_entropy(logits, labels, label_smoothing=0.1) + args.reg * orthogonality(transform)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            optimizer.step()
            total += loss.item()
        scheduler.step()
        test_loss, accuracy = evaluate(model, test, args.votes)
        print(f"epoch {epoch + 1} train {total / len(train):.5f} test {test_loss:.5f} accuracy {accuracy:.4f}")
        if accuracy > best:
            best = accuracy
            torch.save(model.state_dict(), "clouds.pt")
    print(f"best accuracy {best:.4f}")


if __name__ == "__main__":
    main()
