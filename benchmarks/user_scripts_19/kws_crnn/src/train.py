import argparse
import csv
import glob
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from .audio import SR, read_wav
from .data import SpeechCommands, list_split
from .model import CRNN


def get_args(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", required=True)
    ap.add_argument("--name", default="crnn")
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--workers", type=int, default=0)
    ap.add_argument("--seed", type=int, default=11)
    return ap.parse_args(argv)


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def load_noise(root):
    noise = []
    for path in sorted(glob.glob(os.path.join(root, "_background_noise_", "*.wav"))):
        import wave
        with wave.open(path, "rb") as w:
            raw = w.readframes(w.getnframes())
        noise.append(np.frombuffer(raw, dtype=np.int16).astype(np.float32) / 32768.0)
    return [n for n in noise if len(n) > SR]


def train_epoch(model, loader, opt, sched, device, writer, epoch):
    model.train()
    n_right, n_seen, loss_sum = 0, 0, 0.0
    for it, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        pred = out.argmax(1)
        n_right += (pred == y).sum().item()
        n_seen += len(y)
        loss_sum += loss.item() * len(y)
        writer.writerow([epoch, it, loss.item(), n_right / n_seen, sched.get_last_lr()[0]])
    return loss_sum / n_seen, n_right / n_seen


def evaluate(model, loader, device, n_classes):
    model.eval()
    conf = np.zeros((n_classes, n_classes), dtype=np.int64)
    for x, y in loader:
        out = model(x.to(device))
        pred = out.argmax(1).cpu().numpy()
        for p, t in zip(pred, y.numpy()):
            conf[t, p] += 1
    acc = np.trace(conf) / conf.sum()
    per_word = np.diag(conf) / np.maximum(conf.sum(1), 1)
    return acc, per_word, conf


def main():
    args = get_args()
    set_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    words, split = list_split(args.root)
    noise = load_noise(args.root)
    kw = dict(batch_size=args.batch_size, num_workers=args.workers)
    train_loader = DataLoader(SpeechCommands(args.root, split["train"], noise, train=True), shuffle=True, **kw)
    val_loader = DataLoader(SpeechCommands(args.root, split["val"]), **kw)
    test_loader = DataLoader(SpeechCommands(args.root, split["test"]), **kw)

    model = CRNN(len(words)).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=args.lr, total_steps=args.epochs * len(train_loader))

    os.makedirs("exp/" + args.name, exist_ok=True)
    f = open(f"exp/{args.name}/steps.csv", "w", newline="")
    writer = csv.writer(f)
    writer.writerow(["epoch", "it", "loss", "acc", "lr"])
    best = 0.0
    for epoch in range(args.epochs):
        t0 = time.time()
        loss, acc = train_epoch(model, train_loader, opt, sched, device, writer, epoch)
        val_acc, per_word, _ = evaluate(model, val_loader, device, len(words))
        f.flush()
        worst = np.argsort(per_word)[:5]
        print(f"[{epoch:02d}] loss {loss:.4f} acc {acc:.4f} val {val_acc:.4f} ({time.time() - t0:.0f}s) worst:",
              ", ".join(f"{words[i]} {per_word[i]:.2f}" for i in worst))
        if val_acc > best:
            best = val_acc
            torch.save({"model": model.state_dict(), "words": words}, f"exp/{args.name}/best.pt")
    f.close()

    model.load_state_dict(torch.load(f"exp/{args.name}/best.pt", weights_only=True)["model"])
    test_acc, _, conf = evaluate(model, test_loader, device, len(words))
    np.save(f"exp/{args.name}/confusion.npy", conf)
    print(f"best val {best:.4f}  test {test_acc:.4f}")


if __name__ == "__main__":
    main()
