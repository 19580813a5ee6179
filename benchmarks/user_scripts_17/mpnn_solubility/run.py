"""Message passing network for aqueous solubility (5-fold protocol of section 4.2).

    python run.py --fold 0
"""
import dataclasses
from dataclasses import dataclass

import click
import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

from graphs import MolDataset, collate
from molecules import ensure_file
from mpnn import MPNN


@dataclass
class Config:
    path: str = "data/molecules.txt"
    n: int = 50000
    folds: int = 5
    fold: int = 0
    dim: int = 128
    layers: int = 5
    dropout: float = 0.1
    batch_size: int = 256
    epochs: int = 150
    lr: float = 1e-3
    l2: float = 1e-6
    patience: int = 5
    workers: int = 4
    seed: int = 13


def to_device(data, device):
    return {k: v.to(device) for k, v in data.items()}


def split(cfg):
    perm = np.random.default_rng(cfg.seed).permutation(cfg.n)
    parts = np.array_split(perm, cfg.folds)
    test = parts[cfg.fold]
    valid = parts[(cfg.fold + 1) % cfg.folds]
    train = np.concatenate([p for i, p in enumerate(parts)
                            if i not in (cfg.fold, (cfg.fold + 1) % cfg.folds)])
    return train, valid, test


def evaluate(model, loader, mean, std, device):
    model.eval()
    preds, ys = [], []
    for data in loader:
        data = to_device(data, device)
        out = model(data) * std + mean
        preds += out.detach().cpu().tolist()
        ys += data["y"].cpu().tolist()
    err = np.array(preds) - np.array(ys)
    return float(np.sqrt((err ** 2).mean())), float(np.abs(err).mean())


def train_one_epoch(model, loader, optimizer, mean, std, cfg, device):
    model.train()
    total_loss = 0
    n = 0
    for data in loader:
        data = to_device(data, device)
        target = (data["y"] - mean) / std
        pred = model(data)
        loss = torch.nn.functional.mse_loss(pred, target) + cfg.l2 * model.l2_penalty()
        optimizer.zero_grad()
        loss.backward()
        # skip the rare exploding batch instead of stopping the run
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        if torch.isfinite(norm):
            optimizer.step()
        total_loss += loss * len(target)
        n += len(target)
    return total_loss / n


@click.command()
@click.option("--set", "overrides", multiple=True, help="key=value, fields of Config")
def main(overrides):
    cfg = Config()
    for item in overrides:
        key, value = item.split("=", 1)
        setattr(cfg, key, type(getattr(cfg, key))(value))
    print(dataclasses.asdict(cfg))

    torch.manual_seed(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ensure_file(cfg.path, cfg.n, cfg.seed)
    data = MolDataset(cfg.path)
    train_idx, valid_idx, test_idx = split(cfg)
    y = data.targets()[train_idx]
    mean, std = float(y.mean()), float(y.std())

    train_loader = DataLoader(Subset(data, train_idx), batch_size=cfg.batch_size, shuffle=True,
                              collate_fn=collate, num_workers=cfg.workers)
    valid_loader = DataLoader(Subset(data, valid_idx), batch_size=cfg.batch_size, collate_fn=collate)
    test_loader = DataLoader(Subset(data, test_idx), batch_size=cfg.batch_size, collate_fn=collate)

    sample = data[0]
    model = MPNN(sample["x"].shape[1], sample["edge_attr"].shape[1], cfg.dim, cfg.layers, cfg.dropout).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=cfg.patience)

    best, best_state = float("inf"), None
    for epoch in range(cfg.epochs):
        loss = train_one_epoch(model, train_loader, optimizer, mean, std, cfg, device)
        rmse, mae = evaluate(model, valid_loader, mean, std, device)
        scheduler.step(rmse)
        print(f"epoch {epoch:03d} loss {loss.item():.4f} valid rmse {rmse:.4f} mae {mae:.4f}")
        if rmse < best:
            best = rmse
            best_state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best_state)
    rmse, mae = evaluate(model, test_loader, mean, std, device)
    print(f"test rmse {rmse:.4f} mae {mae:.4f}")


if __name__ == "__main__":
    main()
