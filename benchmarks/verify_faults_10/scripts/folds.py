# Five-fold cross-validation of a small net on survey rows: each fold scales by its own training rows, keeps its best epoch,
# and judges the test rows together with the others.
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

FOLDS = 5
EPOCHS = 6
BATCH = 48


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def survey():
    rng = np.random.default_rng(31)
    x = rng.normal(size=(900, 12)).astype(np.float32) * np.linspace(0.5, 6, 12, dtype=np.float32) + 3
    x[:, 4] = np.exp(rng.normal(size=900) * 1.5)
    w = rng.normal(size=(12, 3)) / np.linspace(0.5, 6, 12)[:, None]
    score = (x - 3) @ w + 1.2 * np.sin((x[:, :3] - 3) * 3) + rng.normal(size=(900, 3)) * 0.6 + np.array([1.4, 0, -1.2])
    return x, score.argmax(1)


def stratified(labels, folds):
    place = np.empty(len(labels), dtype=int)
    for label in np.unique(labels):
        rows = np.random.permutation(np.where(labels == label)[0])
        place[rows] = np.arange(len(rows)) % folds
    return place


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(12, 48)
        self.norm = nn.BatchNorm1d(48)
        self.middle = nn.Linear(48, 24)
        self.leave = nn.Linear(24, 3)

    def forward(self, x):
        x = F.gelu(self.norm(self.enter(x)))
        x = F.dropout(x, 0.15, self.training)
        return self.leave(F.gelu(self.middle(x)))


def predict(net, x):
    net.eval()
    with torch.no_grad():
        return torch.cat([net(part) for part in x.split(100)])


def train_fold(fold, x, y, x_val, y_val):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    scheduler = OneCycleLR(optimizer, max_lr=0.12, total_steps=EPOCHS * len(loader))
    best, state = -1.0, None
    for epoch in range(EPOCHS):
        net.train()
        lost = 0.0
        for xb, yb in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(net(xb), yb, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
            scheduler.step()
            lost += loss.item() * len(yb)
        hits = (predict(net, x_val).argmax(1) == y_val).float().mean().item()
        print(f"fold {fold} epoch {epoch} loss {lost / len(y):.4f} accuracy {hits:.4f}")
        if hits > best:
            best, state = hits, {k: v.clone() for k, v in net.state_dict().items()}
    net.load_state_dict(state)
    torch.save(state, f"fold{fold}.pt")
    return net, best


def main():
    seed_all(11)
    x, y = survey()
    x, y, x_test, y_test = x[:700], y[:700], x[700:], y[700:]
    place = stratified(y, FOLDS)
    outside = np.zeros((len(y), 3), dtype=np.float32)
    together = torch.zeros(len(y_test), 3)
    scores = []
    for fold in range(FOLDS):
        tr, va = np.where(place != fold)[0], np.where(place == fold)[0]
        mean, std = x[tr].mean(0), x[tr].std(0)
        scaled = torch.from_numpy((x - mean) / std)
        net, best = train_fold(fold, scaled[tr], torch.from_numpy(y[tr]), scaled[va], torch.from_numpy(y[va]))
        outside[va] = predict(net, scaled[va]).softmax(1).numpy()
        together += predict(net, torch.from_numpy((x_test - mean) / std)).softmax(1) / FOLDS
        scores.append(best)
    loss = -np.log(outside[np.arange(len(y)), y]).mean()
    print(f"folds {np.mean(scores):.4f} +- {np.std(scores):.4f}, out of fold {(outside.argmax(1) == y).mean():.4f}, log loss {loss:.4f}")
    print(f"test {(together.argmax(1).numpy() == y_test).mean():.4f} confidence {together.max(1).values.mean():.4f}")
    np.save("outside.npy", outside)


main()
