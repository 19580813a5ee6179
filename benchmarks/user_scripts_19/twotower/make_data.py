"""Interactions of users who like one of five groups of items, and a small config.yaml."""

from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
users, items, rows = 300, 200, 14000
Path("data").mkdir(exist_ok=True)
user = rng.integers(0, users, rows)
user[:users] = np.arange(users)
item = np.where(rng.random(rows) < 0.7, user % 5 * 40 + rng.integers(0, 40, rows), 0)
item = np.where(item == 0, rng.integers(0, items, rows), item)
genres = rng.random((items, 20)) < 0.1
genres[np.arange(items), np.arange(items) // 40] = True
year = rng.integers(1950, 2020, items)
ts = np.arange(rows)
np.savez(
    "data/small.npz", user=user, item=item, ts=ts, item_genres=genres, item_year=year
)
Path("data/small.yaml").write_text("""\
data: data/small.npz
out: out/small
seed: 2024
embedding_dim: 16
hidden: [32, 16]
history_len: 10
temperature: 0.05
batch_size: 256
epochs: 8
lr: 0.001
embedding_lr: 0.01
log_every: 10
eval_users: 120
topk: 10
""")
