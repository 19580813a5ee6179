# House prices from a table: an MLP with embeddings for the categorical columns, weighted Huber loss, early stopping.
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 2024
BATCH = 64
MAX_EPOCHS = 40
PATIENCE = 6
LR = 4e-3

torch.manual_seed(SEED)
rng = np.random.default_rng(7)

# ---------------------------------------------------------------- data
rows = 4500
quarter = rng.integers(0, 12, rows)
kind = rng.integers(0, 5, rows)
area = rng.lognormal(4.4, 0.45, rows) * (1 + 0.1 * kind)
age = rng.gamma(2.0, 18.0, rows)
rooms = np.clip(np.round(area / 28 + rng.normal(0, 0.8, rows)), 1, None)
distance = rng.exponential(6.0, rows) + 0.3 * quarter
garden = np.where(kind >= 2, rng.exponential(200.0, rows), 0.0)
noise_level = rng.normal(55, 8, rows)
charm = rng.normal(0, 0.35, 12)
price = np.exp(
    8.0 + 0.85 * np.log(area) - 0.03 * distance + charm[quarter] + 0.12 * np.sin(kind * 1.7)
    - 0.25 * np.tanh((age - 30) / 25) + 0.06 * np.log1p(garden) * (distance > 5)
    - 0.012 * np.maximum(noise_level - 58, 0) * (area > 90) + 0.12 * rng.standard_t(4, rows)
)
numeric = np.stack([area, age, rooms, distance, garden, noise_level], 1)
missing = rng.random(numeric.shape) < 0.05
numeric[missing] = np.nan
weight = 0.1 + rng.exponential(1.0, rows) ** 1.5  # how lately the house was sold, and how surely
split = rng.permutation(rows)
train_rows, val_rows, test_rows = split[:3030], split[3030:3730], split[3730:]

mean, std = np.nanmean(numeric[train_rows], 0), np.nanstd(numeric[train_rows], 0)
target = np.log(price)
target_mean, target_std = target[train_rows].mean(), target[train_rows].std()
features = np.concatenate([np.nan_to_num((numeric - mean) / std), missing], 1)
weight = weight / weight[train_rows].mean()


def tensors(which):
    return (
        torch.tensor(features[which], dtype=torch.float32),
        torch.tensor(np.stack([quarter, kind], 1)[which]),
        torch.tensor((target[which] - target_mean) / target_std, dtype=torch.float32),
        torch.tensor(weight[which], dtype=torch.float32),
    )


train_set, val_set, test_set = (TensorDataset(*tensors(r)) for r in (train_rows, val_rows, test_rows))
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)
val_loader = DataLoader(val_set, batch_size=256)
test_loader = DataLoader(test_set, batch_size=256)


# ---------------------------------------------------------------- model
class PriceNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.quarter = nn.Embedding(12, 6)
        self.kind = nn.Embedding(5, 3)
        self.layers = nn.Sequential(
            nn.Linear(features.shape[1] + 9, width), nn.BatchNorm1d(width), nn.SiLU(), nn.Dropout(0.15),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.SiLU(), nn.Dropout(0.15),
            nn.Linear(width, 1),
        )

    def forward(self, x, c):
        return self.layers(torch.cat([x, self.quarter(c[:, 0]), self.kind(c[:, 1])], 1)).squeeze(1)


def weighted_huber(prediction, y, w):
    loss = nn.functional.huber_loss(prediction, y, reduction="none", delta=0.7)
    return (w * loss).sum() / w.sum()


def validate(loader):
    model.eval()
    loss = squares = weights = 0.0
    count = 0
    with torch.no_grad():
        for x, c, y, w in loader:
            prediction = model(x, c)
            loss += (weighted_huber(prediction, y, w) * w.sum()).item()
            squares += ((prediction - y) * target_std).square().sum().item()
            weights += w.sum().item()
            count += len(y)
    return loss / weights, (squares / count) ** 0.5


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.state, self.epoch = patience, float("inf"), 0, None, -1

    def update(self, value, model, epoch):
        if value < self.best - 1e-5:
            self.best, self.bad, self.epoch = value, 0, epoch
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


model = PriceNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.02)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
stopper = EarlyStopping(PATIENCE)

# ---------------------------------------------------------------- training
for epoch in range(MAX_EPOCHS):
    model.train()
    total, n = 0.0, 0
    for x, c, y, w in train_loader:
        optimizer.zero_grad()
        loss = weighted_huber(model(x, c), y, w)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        total += loss.item() * len(y)
        n += len(y)
    scheduler.step()
    val_loss, val_rmse = validate(val_loader)
    print(f"epoch {epoch:3d}  train {total / n:.6f}  val {val_loss:.6f}  rmse(log) {val_rmse:.5f}")
    if stopper.update(val_loss, model, epoch):
        print("stopping early")
        break

model.load_state_dict(stopper.state)
test_loss, test_rmse = validate(test_loader)
print(f"best epoch {stopper.epoch}  val {stopper.best:.6f}  test {test_loss:.6f}  test rmse(log) {test_rmse:.5f}")
torch.save({"state": model.state_dict(), "mean": mean, "std": std, "target": (target_mean, target_std)}, "houses.pt")
