"""Keyword spotting for the wake-word team.  Settings in settings.json, override with key=value."""
import json
import sys
import time
import warnings

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader

from clips import SpeechClips
from net import KeywordNet
from synth import build

warnings.filterwarnings("ignore")
torch.backends.cudnn.benchmark = True


def load_settings(argv):
    cfg = json.load(open("settings.json"))
    for arg in argv:
        key, value = arg.split("=")
        cfg[key] = type(cfg[key])(value)
    return cfg


def make_loader(cfg, split, train):
    return DataLoader(SpeechClips(cfg, split, train), batch_size=cfg["batch_size"], shuffle=train,
                      num_workers=cfg["workers"], pin_memory=torch.cuda.is_available(), drop_last=train)


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def train_epoch(net, loader, criterion, opt, scaler, sched, device, cfg, epoch):
    net.train()
    data_time = step_time = 0.0
    loss_sum, hits, seen = 0.0, 0, 0
    end = time.time()
    for i, (spec, label) in enumerate(loader):
        data_time += time.time() - end
        start = time.time()
        spec = spec.to(device)
        label = label.to(device)
        opt.zero_grad()
        with autocast():
            logits = net(spec)
            loss = criterion(logits, label)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(net.parameters(), cfg["clip"])
        scaler.step(opt)
        scaler.update()
        sched.step()
        sync()
        step_time += time.time() - start
        loss_sum += loss.item() * label.size(0)
        hits += (logits.argmax(1) == label).sum().item()
        seen += label.size(0)
        if i % cfg["log_every"] == 0:
            print(f"[{epoch}] {i}/{len(loader)} loss {loss_sum / seen:.4f} acc {hits / seen:.4f}")
        end = time.time()
    print(f"time: data {data_time:.1f}s step {step_time:.1f}s", file=sys.stderr)
    return loss_sum / seen, hits / seen


@torch.no_grad()
def test(net, loader, device, n_words):
    net.eval()
    confusion = torch.zeros(n_words, n_words, device=device)
    for spec, label in loader:
        spec, label = spec.to(device), label.to(device)
        pred = net(spec).argmax(1)
        for t, p in zip(label, pred):
            confusion[t, p] += 1
    recall = confusion.diag() / confusion.sum(1).clamp(min=1)
    return (confusion.diag().sum() / confusion.sum()).item(), recall.cpu()


def main():
    cfg = load_settings(sys.argv[1:])
    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    build(cfg["root"], "train", cfg["clips_per_word"], cfg["n_words"], cfg["sample_rate"], 1)
    build(cfg["root"], "test", cfg["test_per_word"], cfg["n_words"], cfg["sample_rate"], 2)
    train_loader = make_loader(cfg, "train", True)
    test_loader = make_loader(cfg, "test", False)

    net = KeywordNet(cfg["n_words"], cfg["width"], cfg["blocks"]).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=cfg["label_smoothing"])
    opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg["lr"], epochs=cfg["epochs"], steps_per_epoch=len(train_loader))
    scaler = GradScaler()

    best = 0.0
    for epoch in range(cfg["epochs"]):
        loss, acc = train_epoch(net, train_loader, criterion, opt, scaler, sched, device, cfg, epoch)
        test_acc, recall = test(net, test_loader, device, cfg["n_words"])
        print(f"epoch {epoch} loss {loss:.4f} acc {acc:.4f} test {test_acc:.4f} worst recall {recall.min():.4f}")
        if test_acc > best:
            best = test_acc
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "cfg": cfg}, "kws_best.pt")
    print(f"best test accuracy {best:.4f}")


if __name__ == "__main__":
    main()
