"""Who leaves the bank? A table in memory, an index permuted by hand, early stopping."""
import copy

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(2024)
torch.manual_seed(2024)

N, BATCH, EPOCHS, PATIENCE = 2600, 128, 16, 4

# ------------------------------------------------------------------ the table
age = rng.gamma(9, 5, N)
balance = rng.lognormal(8, 1.2, N)
years = rng.integers(0, 20, N)
calls = rng.poisson(2, N)
noise = rng.normal(0, 3, (N, 4))
region = rng.integers(0, 6, N)
product = rng.integers(0, 9, N)
score = 0.06 * (age - 45) - 0.5 * (np.log(balance) - 8) + 0.5 * calls - 0.1 * years + 0.6 * np.sin(region * 2) + 0.5 * (product % 3) + rng.normal(0, 0.7, N)
left = (score > np.quantile(score, 0.82)).astype(np.float32)
numeric = np.column_stack([age, balance, years, calls, noise]).astype(np.float32)
numeric[:, 1] = np.log1p(numeric[:, 1])

order = rng.permutation(N)
tr, va, te = order[:1600], order[1600:2100], order[2100:]
mean, std = numeric[tr].mean(axis=0), numeric[tr].std(axis=0)
numeric = (numeric - mean) / std


def pack(rows):
    return (
        torch.tensor(numeric[rows]),
        torch.tensor(np.column_stack([region, product])[rows]),
        torch.tensor(left[rows]),
    )


x_train, c_train, y_train = pack(tr)
x_val, c_val, y_val = pack(va)
x_test, c_test, y_test = pack(te)


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.region = nn.Embedding(6, 3)
        self.product = nn.Embedding(9, 4)
        self.body = nn.Sequential(
            nn.Linear(8 + 3 + 4, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(32, 1),
        )  # fmt: skip

    def forward(self, x, c):
        if self.training:
            x = x + 0.25 * torch.randn_like(x)
        return self.body(torch.cat([x, self.region(c[:, 0]), self.product(c[:, 1])], dim=1)).squeeze(1)


def auc(score, label):
    ranks = np.empty(len(score))
    ranks[np.argsort(score)] = np.arange(1, len(score) + 1)
    positive = label.sum()
    return (ranks[label == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive))


def predict(model, x, c):
    model.eval()
    outs = []
    with torch.no_grad():
        for i in range(0, len(x), 64):
            outs.append(model(x[i : i + 64], c[i : i + 64]))
    return torch.cat(outs)


model = Tabular()
pos_weight = (1 - y_train).sum() / y_train.sum()
criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.02)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.4, patience=1)

best_loss, best_state, waited = float("inf"), None, 0
for epoch in range(1, EPOCHS + 1):
    model.train()
    perm = torch.randperm(len(x_train))
    total = 0.0
    for i in range(0, len(x_train), BATCH):
        idx = perm[i : i + BATCH]
        out = model(x_train[idx], c_train[idx])
        loss = criterion(out, y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    logits = predict(model, x_val, c_val)
    val_loss = criterion(logits, y_val).item()
    val_auc = auc(logits.numpy(), y_val.numpy())
    scheduler.step(val_loss)
    print(f"{epoch:3d}  train {total / len(x_train):.4f}  val {val_loss:.4f}  auc {val_auc:.4f}  lr {optimizer.param_groups[0]['lr']:.5f}")
    if val_loss < best_loss:
        best_loss, best_state, waited = val_loss, copy.deepcopy(model.state_dict()), 0
    else:
        waited += 1
        if waited >= PATIENCE:
            print(f"stopped after epoch {epoch}")
            break

model.load_state_dict(best_state)
val_p = torch.sigmoid(predict(model, x_val, c_val)).numpy()
cuts = np.linspace(0.1, 0.9, 33)
f1 = [2 * ((val_p > c) & (y_val.numpy() == 1)).sum() / ((val_p > c).sum() + y_val.numpy().sum()) for c in cuts]
cut = cuts[int(np.argmax(f1))]
test_p = torch.sigmoid(predict(model, x_test, c_test)).numpy()
truth = y_test.numpy()
test_f1 = 2 * ((test_p > cut) & (truth == 1)).sum() / ((test_p > cut).sum() + truth.sum())
print(f"test auc {auc(test_p, truth):.4f}  f1 {test_f1:.4f}  brier {np.mean((test_p - truth) ** 2):.4f}  cut {cut:.3f}")
torch.save(best_state, "ledger.pt")
