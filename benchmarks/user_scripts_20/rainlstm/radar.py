from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

# dBZ = 70 * pixel / 255 - 10,  Z = 200 R^1.6
THRESHOLDS_MM = (0.5, 2.0, 5.0, 10.0, 30.0)


def rain_to_pixel(mm: float) -> float:
    dbz = 10.0 * np.log10(200.0) + 16.0 * np.log10(mm)
    return float((dbz + 10.0) / 70.0)


def find_sequences(times: np.ndarray, length: int, stride: int = 4) -> list[int]:
    """Starts of windows without a gap."""
    starts = []
    for s in range(0, len(times) - length + 1, stride):
        ok = True
        for k in range(s, s + length - 1):
            if times[k + 1] - times[k] != 300:
                ok = False
                break
        if ok:
            starts.append(s)
    return starts


class RadarWindows(Dataset):
    def __init__(self, frames: np.ndarray, starts: list[int], n_in: int, n_out: int) -> None:
        self.frames = frames
        self.starts = starts
        self.n_in, self.n_out = n_in, n_out

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, idx: int) -> tuple[Tensor, Tensor]:
        s = self.starts[idx]
        win = self.frames[s : s + self.n_in + self.n_out].astype(np.float32) / 255.0
        win = torch.from_numpy(win).unsqueeze(1)
        return win[: self.n_in], win[self.n_in :]


class BalancedLoss(torch.nn.Module):
    """MSE + MAE, heavier where it rains more (Shi et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [1.0, 1.0, 2.0, 5.0, 10.0, 30.0]

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        edges = torch.tensor([rain_to_pixel(mm) for mm in THRESHOLDS_MM]).to(target.device)
        table = torch.tensor(self.weights).to(target.device)
        w = table[torch.bucketize(target, edges)]
        diff = pred - target
        return (w * diff**2).mean() + (w * diff.abs()).mean()


def skill(pred: Tensor, target: Tensor) -> dict[str, np.ndarray]:
    """Hits, misses and false alarms per lead time and threshold, for CSI."""
    p = pred.cpu().numpy()
    t = target.cpu().numpy()
    n_out = p.shape[1]
    table = {k: np.zeros((n_out, len(THRESHOLDS_MM))) for k in ("hit", "miss", "false")}
    for lead in range(n_out):
        for j, mm in enumerate(THRESHOLDS_MM):
            thr = rain_to_pixel(mm)
            pb, tb = p[:, lead] >= thr, t[:, lead] >= thr
            table["hit"][lead, j] += np.logical_and(pb, tb).sum()
            table["miss"][lead, j] += np.logical_and(~pb, tb).sum()
            table["false"][lead, j] += np.logical_and(pb, ~tb).sum()
    return table
