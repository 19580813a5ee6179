from __future__ import annotations

import copy
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader


def psnr_y(sr: np.ndarray, hr: np.ndarray, border: int) -> float:
    """luminance PSNR with the border cut, averaged over the batch"""
    coef = np.array([65.481, 128.553, 24.966]).reshape(1, 3, 1, 1) / 255.0
    diff = ((sr.clip(0, 1) - hr) * coef).sum(1)[:, border:-border, border:-border]
    mse = (diff ** 2).reshape(len(diff), -1).mean(1)
    return float((-10 * np.log10(mse + 1e-12)).mean())


class EMA:
    def __init__(self, model: nn.Module, decay: float):
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        src = model.state_dict()
        for k, v in self.model.state_dict().items():
            v.copy_(self.decay * v + (1 - self.decay) * src[k])


def x8_forward(model: nn.Module, lr: Tensor) -> Tensor:
    """geometric self-ensemble"""
    outs = []
    for k in range(4):
        for flip in (False, True):
            x = torch.rot90(lr, k, (2, 3))
            x = x.flip(3) if flip else x
            y = model(x)
            y = y.flip(3) if flip else y
            outs.append(torch.rot90(y, -k, (2, 3)))
    return torch.stack(outs).mean(0)


def train_epoch(model, ema, loader: DataLoader, criterion, optimizer, scheduler, scaler, device, args, epoch):
    model.train()
    amp = device.type == "cuda"
    epoch_loss = 0.0
    psnrs = []
    t0 = time.time()
    for i, (lr, hr) in enumerate(loader):
        lr, hr = lr.to(device), hr.to(device)
        with torch.autocast(device.type, dtype=torch.float16, enabled=amp):
            sr = model(lr)
        loss = criterion(sr.float(), hr)

        optimizer.zero_grad(set_to_none=False)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        ema.update(model)

        epoch_loss += loss
        psnrs.append(psnr_y(sr.detach().float().cpu().numpy(), hr.cpu().numpy(), args.scale))
        if i % args.print_every == 0:
            print(f"epoch {epoch:3d} [{i:4d}/{len(loader)}] loss {loss.item():.5f} psnr {np.mean(psnrs):.3f}")
    print(f"epoch {epoch:3d} took {time.time() - t0:.1f}s")
    return float(epoch_loss) / len(loader), float(np.mean(psnrs))


@torch.no_grad()
def validate(model, loader: DataLoader, device, args, out_dir: Path, ensemble: bool = False):
    model.eval()
    scores, base = [], []
    for i, (lr, hr) in enumerate(loader):
        lr = lr.to(device)
        sr = x8_forward(model, lr) if ensemble else model(lr)
        sr = sr.clamp(0, 1).cpu().numpy()
        up = torch.nn.functional.interpolate(lr, scale_factor=args.scale, mode="bicubic", align_corners=False)
        scores.append(psnr_y(sr, hr.numpy(), args.scale))
        base.append(psnr_y(up.cpu().numpy(), hr.numpy(), args.scale))
        Image.fromarray((sr[0].transpose(1, 2, 0) * 255).round().astype(np.uint8)).save(out_dir / f"{i:03d}.png")
    return float(np.mean(scores)), float(np.mean(base))
