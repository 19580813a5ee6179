from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from metrics import SegMeter, boundary_f1

PALETTE = np.array([[0, 0, 0], [80, 160, 255], [255, 200, 40], [220, 60, 60]], np.uint8)


class Engine:
    def __init__(self, model, criterion, optimizer, scheduler, device, cfg):
        self.model, self.criterion = model, criterion
        self.optimizer, self.scheduler = optimizer, scheduler
        self.device, self.cfg = device, cfg
        self.out = Path(cfg["out_dir"])
        self.out.mkdir(parents=True, exist_ok=True)
        self.amp = device.type == "cuda"

    def preprocess(self, img: torch.Tensor) -> torch.Tensor:
        x = img.to(self.device, non_blocking=True).float().div_(255).sub_(0.45).div_(0.22)
        return x.contiguous(memory_format=torch.channels_last)

    def train_epoch(self, loader, epoch: int) -> dict[str, float]:
        self.model.train()
        tc = self.cfg["train"]
        loss_sum = dice_sum = 0.0
        seen, t_step = 0, 0.0
        for step, (img, mask) in enumerate(loader):
            start = time.perf_counter()
            x = self.preprocess(img)
            y = mask.to(self.device).long()
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.amp):
                logits = self.model(x)
            loss = self.criterion(logits.float(), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), tc["grad_clip"])
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.scheduler.step()

            fg_pred, fg_true = logits.argmax(1) > 0, y > 0
            dice = 2 * (fg_pred & fg_true).sum() / (fg_pred.sum() + fg_true.sum()).clamp(min=1)
            loss_sum += loss.item() * len(img)
            dice_sum += dice.item() * len(img)
            seen += len(img)
            if self.amp:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            t_step += time.perf_counter() - start
            if (step + 1) % tc["log_every"] == 0:
                print(f"  [{epoch:03d}:{step + 1:04d}] loss {loss_sum / seen:.4f} fg-dice {dice_sum / seen:.4f}")
        (self.out / "timing.txt").write_text(f"{1000 * t_step / (step + 1):.1f} ms per step\n")
        return {"train_loss": loss_sum / seen, "train_dice": dice_sum / seen}

    @torch.inference_mode()
    def validate(self, loader, epoch: int) -> dict[str, float]:
        self.model.eval()
        meter = SegMeter(self.model.head.out_channels)
        bf1, losses = [], []
        for k, (img, mask) in enumerate(loader):
            x = self.preprocess(img)
            y = mask.to(self.device, non_blocking=True).long()
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.amp):
                logits = self.model(x)
            losses.append(self.criterion(logits.float(), y))
            meter.update(logits, y)
            bf1.append(boundary_f1(logits.argmax(1), y, cls=2))
            self.save_overlay(img, logits, self.out / "overlays" / f"{epoch:03d}_{k:03d}.png")
        return {"val_loss": torch.stack(losses).mean().item(),
                "val_bf1": torch.stack(bf1).mean().item(), **meter.compute()}

    def save_overlay(self, img, logits, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        pred = logits.argmax(1).cpu().numpy()
        rows = []
        for i in range(min(8, len(img))):
            gray = np.repeat(img[i, 0].numpy()[..., None], 3, axis=2)
            rows.append(np.concatenate([gray, PALETTE[pred[i]]], axis=1))
        Image.fromarray(np.concatenate(rows)).save(path)

    def fit(self, train_loader, val_loader) -> float:
        best = 0.0
        with open(self.out / "log.csv", "w", newline="") as f:
            writer = None
            for epoch in range(self.cfg["train"]["epochs"]):
                row = {"epoch": epoch, **self.train_epoch(train_loader, epoch), **self.validate(val_loader, epoch)}
                if writer is None:
                    writer = csv.DictWriter(f, fieldnames=list(row))
                    writer.writeheader()
                writer.writerow(row)
                f.flush()
                print(f"epoch {epoch:03d} train {row['train_loss']:.4f} val {row['val_loss']:.4f} "
                      f"mIoU {row['miou']:.4f} bF1 {row['val_bf1']:.4f} acc {row['acc']:.4f}")
                if row["miou"] > best:
                    best = row["miou"]
                    torch.save({"model": self.model.state_dict(), "epoch": epoch, "miou": best}, self.out / "best.pt")
        return best
