import argparse
import logging
import math
import os
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from clapmoco.data import VOCAB, SceneDataset
from clapmoco.modules import ClapMoco

CFG = {
    "data": {"train": 320, "test": 96, "workers": 2},
    "model": {"width": 8, "embed": 64, "text_dim": 64, "text_depth": 2, "heads": 4, "queue": 128, "momentum": 0.95},
    "optim": {"lr": 1e-3, "wd": 0.05, "epochs": 8, "batch_size": 32, "warmup": 10, "clip": 1.0},
}
logger = logging.getLogger("clap")


def build_optimizer(model, cfg):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        (no_decay if p.ndim < 2 or "logit_scale" in name else decay).append(p)
    return torch.optim.AdamW([{"params": decay, "weight_decay": cfg["wd"]}, {"params": no_decay, "weight_decay": 0.0}], lr=cfg["lr"])


def spec_augment(mel, max_f=10, max_t=10):
    """One frequency and one time mask per clip."""
    for i in range(mel.size(0)):
        f, t = np.random.randint(0, max_f), np.random.randint(0, max_t)
        f0, t0 = np.random.randint(0, mel.size(2) - f), np.random.randint(0, mel.size(3) - t)
        mel[i, :, f0:f0 + f, :] = 0
        mel[i, :, :, t0:t0 + t] = 0
    return mel


@torch.no_grad()
def retrieval(model, loader, device):
    model.eval()
    A, T = [], []
    for mel, tokens, lengths in loader:
        mel, tokens, lengths = mel.to(device), tokens.to(device), lengths.to(device)
        A.append(F.normalize(model.audio(mel), dim=1).cpu())
        T.append(F.normalize(model.text(tokens, lengths), dim=1).cpu())
    A, T = torch.cat(A), torch.cat(T)
    ranks = []
    for i in range(len(A)):
        sims = [torch.dot(A[i], T[j]).item() for j in range(len(T))]
        order = sorted(range(len(sims)), key=lambda j: -sims[j])
        ranks.append(order.index(i))
    ranks = np.array(ranks)
    return {"R@1": (ranks < 1).mean(), "R@5": (ranks < 5).mean(), "R@10": (ranks < 10).mean(), "medR": float(np.median(ranks)) + 1}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=CFG["optim"]["epochs"])
    parser.add_argument("--workers", type=int, default=CFG["data"]["workers"])
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    ocfg = CFG["optim"]
    train_ds = SceneDataset(CFG["data"]["train"], seed=args.seed)
    test_ds = SceneDataset(CFG["data"]["test"], seed=args.seed + 1, train=False)
    train_loader = DataLoader(train_ds, batch_size=ocfg["batch_size"], shuffle=True, num_workers=args.workers, drop_last=True)
    test_loader = DataLoader(test_ds, batch_size=ocfg["batch_size"], num_workers=args.workers)

    model = ClapMoco(CFG["model"], len(VOCAB)).to(device)
    optimizer = build_optimizer(model, ocfg)
    total = args.epochs * len(train_loader)

    def lr_lambda(step):
        if step < ocfg["warmup"]:
            return (step + 1) / ocfg["warmup"]
        return 0.5 * (1 + math.cos(math.pi * (step - ocfg["warmup"]) / max(1, total - ocfg["warmup"])))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    start = 0
    if args.resume:
        ck = torch.load(args.resume, map_location="cpu")
        model.load_state_dict(ck["model"])
        optimizer.load_state_dict(ck["optimizer"])
        scheduler.load_state_dict(ck["scheduler"])
        start = ck["epoch"] + 1
    out = tempfile.mkdtemp(prefix="clap_")
    for epoch in range(start, args.epochs):
        model.train()
        loss_sum, acc_sum, n = 0.0, 0.0, 0
        for step, (mel, tokens, lengths) in enumerate(train_loader):
            mel = mel.to(device)
            tokens, lengths = tokens.to(device), lengths.to(device)
            mel = spec_augment(mel)
            loss, logits = model(mel, tokens, lengths)
            optimizer.zero_grad()
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), ocfg["clip"])
            optimizer.step()
            scheduler.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))
            loss_sum += loss.item() * mel.size(0)
            acc_sum += (logits.argmax(1) == 0).sum().item()
            n += mel.size(0)
            if step % 5 == 0:
                logger.info("e%d s%d loss %.5f gnorm %.3f scale %.3f lr %.6f", epoch, step, loss.item(), grad_norm.item(),
                            model.logit_scale.exp().item(), scheduler.get_last_lr()[0])
        metrics = retrieval(model, test_loader, device)
        logger.info("epoch %d loss %.5f inst-acc %.4f | %s", epoch, loss_sum / n, acc_sum / n,
                    " ".join("%s %.4f" % kv for kv in metrics.items()))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                    "epoch": epoch}, os.path.join(out, "last.pt"))


if __name__ == "__main__":
    main()
