"""python main.py config.yaml [train.batch_size=8 data.archive=/somewhere/else.npz ...]"""
from __future__ import annotations

import csv
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader
from tqdm import tqdm

from convlstm import Nowcaster
from radar import BalancedLoss, RadarWindows, find_sequences, skill


def load_config(argv: list[str]) -> dict:
    cfg = yaml.safe_load(Path(argv[0]).read_text())
    for item in argv[1:]:
        key, value = item.split("=", 1)
        node = cfg
        *parents, leaf = key.split(".")
        for p in parents:
            node = node[p]
        node[leaf] = yaml.safe_load(value)
    return cfg


def persistence_baseline(loader: DataLoader, n_out: int) -> float:
    """CSI of 'the last frame stays' at 2 mm/h: printed once, so that one knows what to beat."""
    hit = other = 0.0
    for x, y in loader:
        last = x[:, -1:].expand(-1, n_out, -1, -1, -1)
        s = skill(last, y)
        hit += s["hit"][:, 1].sum()
        other += s["miss"][:, 1].sum() + s["false"][:, 1].sum()
    return hit / max(1.0, hit + other)


def validate(model: Nowcaster, loader: DataLoader, criterion: BalancedLoss, n_out: int, device: str):
    model.eval()
    total, n = 0.0, 0
    tables = None
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            pred = model(x, n_out)
            total += criterion(pred, y).item() * len(x)
            n += len(x)
            s = skill(pred, y)
            if tables is None:
                tables = s
            else:
                for k in tables:
                    tables[k] += s[k]
    csi = tables["hit"] / np.maximum(1.0, tables["hit"] + tables["miss"] + tables["false"])
    return total / n, csi


def main() -> None:
    cfg = load_config(sys.argv[1:])
    d, m, t = cfg["data"], cfg["model"], cfg["train"]
    out = Path(t["out"])
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.yaml").write_text(yaml.safe_dump(deepcopy(cfg)))

    torch.manual_seed(t["seed"])
    np.random.seed(t["seed"])
    device = "cuda" if torch.cuda.is_available() else "cpu"

    archive = np.load(d["archive"])
    frames, times = archive["frames"], archive["times"]
    starts = find_sequences(times, d["n_in"] + d["n_out"])
    cut = int(len(starts) * (1 - d["val_fraction"]))
    train_ds = RadarWindows(frames, starts[:cut], d["n_in"], d["n_out"])
    val_ds = RadarWindows(frames, starts[cut:], d["n_in"], d["n_out"])
    train_dl = DataLoader(train_ds, batch_size=t["batch_size"], shuffle=True, num_workers=2)
    val_dl = DataLoader(val_ds, batch_size=t["batch_size"], num_workers=2)
    print(f"{len(train_ds)} windows for training, {len(val_ds)} for validation")
    print(f"persistence CSI@2mm: {persistence_baseline(val_dl, d['n_out']):.3f}")

    model = Nowcaster(m["hidden"], m["kernel"]).to(device)
    criterion = BalancedLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=t["lr"])
    steps = t["epochs"] * len(train_dl)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=t["lr"], total_steps=steps)

    step, best = 0, 0.0
    with open(out / "steps.csv", "w", newline="") as fs, open(out / "epochs.csv", "w", newline="") as fe:
        step_log, epoch_log = csv.writer(fs), csv.writer(fe)
        step_log.writerow(["step", "loss", "grad_norm", "teacher", "lr"])
        epoch_log.writerow(["epoch", "train", "val", "csi_05", "csi_2", "csi_5", "csi_10", "csi_30"])
        for epoch in range(t["epochs"]):
            model.train()
            running = 0.0
            bar = tqdm(train_dl, desc=f"epoch {epoch}")
            for x, y in bar:
                x = x.to(device)
                y = y.to(device)
                mix = min(1.0, 2 * step / steps)
                teacher = t["teacher_start"] * (1 - mix) + t["teacher_end"] * mix
                optimizer.zero_grad()
                pred = model(x, d["n_out"], future=y, teacher=teacher)
                loss = criterion(pred, y)
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                running += loss.item()
                bar.set_postfix(loss=f"{loss.item():.4f}")
                step_log.writerow([step, loss.item(), norm.item(), teacher, scheduler.get_last_lr()[0]])
                fs.flush()  # plotted live
                step += 1
            val, csi = validate(model, val_dl, criterion, d["n_out"], device)
            mean_csi = csi.mean(axis=0)
            epoch_log.writerow([epoch, running / len(train_dl), val, *mean_csi.tolist()])
            fe.flush()
            print(f"epoch {epoch}: train {running / len(train_dl):.4f} val {val:.4f} csi {mean_csi.round(3)}")
            if mean_csi[1] > best:
                best = float(mean_csi[1])
                torch.save({"model": model.state_dict(), "config": cfg, "csi": best}, out / "best.pt")


if __name__ == "__main__":
    main()
