"""Quantile forecaster.   python train.py --config config.yaml"""
import argparse
import json
import logging
from pathlib import Path

import torch
import yaml

from src.data import build_loaders
from src.losses import attention_entropy, pinball
from src.model import Forecaster

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("train")


def to_device(batch: dict, device: torch.device) -> dict:
    return {k: v.to(device) for k, v in batch.items()}


@torch.no_grad()
def validate(model, loader, quantiles, device):
    model.eval()
    total, n = 0.0, 0
    mape = []
    for batch in loader:
        b = to_device(batch, device)
        pred, _ = model(b["past"], b["cal"], b["series"])
        total += pinball(pred, b["future"], quantiles).item() * len(b["past"])
        n += len(b["past"])
        mu, sigma = b["scale"][:, :1], b["scale"][:, 1:]
        med = pred[..., len(quantiles) // 2] * sigma + mu
        true = b["future"] * sigma + mu
        mape.append(((med - true).abs() / true.abs().clamp(min=1e-3)).mean().cpu())
    model.train()
    return total / n, torch.stack(mape).mean().item()


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="config.yaml")
    args = ap.parse_args()
    cfg = yaml.safe_load(Path(args.config).read_text())

    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if cfg["debug"]:
        torch.autograd.set_detect_anomaly(True)

    train_loader, val_loader = build_loaders(cfg)
    quantiles = cfg["model"]["quantiles"]
    model = Forecaster(cfg["data"]["n_series"], cfg["data"]["horizon"], **cfg["model"]).to(device)
    log.info("parameters: %d", sum(p.numel() for p in model.parameters()))

    oc = cfg["optim"]
    opt = torch.optim.AdamW(model.parameters(), lr=oc["lr"], weight_decay=oc["weight_decay"])
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=oc["lr"] * 3, total_steps=oc["max_epochs"] * len(train_loader)
    )

    best, bad = float("inf"), 0
    history = []
    for epoch in range(oc["max_epochs"]):
        running = 0.0
        for step, batch in enumerate(train_loader):
            b = to_device(batch, device)
            # series dropout: half of the steps train the model without identity ("cold start")
            series = b["series"] if step % 2 == 0 else None
            pred, w = model(b["past"], b["cal"], series)
            loss = pinball(pred, b["future"], quantiles)
            loss = loss + oc["entropy_weight"] * attention_entropy(w)

            opt.zero_grad(set_to_none=False)  # grad_report needs .grad everywhere
            loss.backward()
            if step % 50 == 0:
                grad_report = {n: p.grad.norm().item() for n, p in model.named_parameters()}
                log.info("largest grad: %s", max(grad_report, key=grad_report.get))
            torch.nn.utils.clip_grad_norm_(model.parameters(), oc["clip"])
            opt.step()
            sched.step()
            running += loss.item()

        val_loss, mape = validate(model, val_loader, quantiles, device)
        history.append({"epoch": epoch, "train": running / len(train_loader), "val": val_loss, "mape": mape})
        log.info("epoch %d  train %.4f  val %.4f  mape %.3f", epoch, history[-1]["train"], val_loss, mape)
        with open("history.json", "w") as f:
            json.dump(history, f, indent=2)

        if val_loss < best - 1e-4:
            best, bad = val_loss, 0
            torch.save({"model": model.state_dict(), "cfg": cfg}, "best.pt")
        else:
            bad += 1
            if bad >= oc["patience"]:
                log.info("early stop")
                break


if __name__ == "__main__":
    main()
