"""python train.py conf/base.yaml [section.key=value ...]"""
import math
import random
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import yaml
from torch.utils.data import DataLoader

from speech.data import ALPHABET, BucketSampler, SpeechDataset, collate
from speech.decode import error_rates, greedy
from speech.model import CTCModel

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_config(argv):
    with open(argv[0]) as f:
        cfg = yaml.safe_load(f)
    for item in argv[1:]:
        key, value = item.split("=", 1)
        section, _, name = key.partition(".")
        if name:
            assert name in cfg[section], key
            cfg[section][name] = yaml.safe_load(value)
        else:
            cfg[section] = yaml.safe_load(value)
    return cfg


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2 ** 32
    np.random.seed(seed)
    random.seed(seed)


def evaluate(model, loader, ctc):
    model.eval()
    total, n = 0.0, 0
    counts = np.zeros(4)
    example = None
    with torch.no_grad():
        for x, frames, y, y_len, texts in loader:
            x, frames = x.to(device), frames.to(device)
            log_probs, lengths = model(x, frames)
            loss = ctc(log_probs.transpose(0, 1), y.to(device), lengths, y_len.to(device))
            total += loss.item() * len(texts)
            n += len(texts)
            hyps = greedy(log_probs, lengths)
            counts += np.array(error_rates(hyps, texts))
            example = (texts[0], hyps[0])
    return total / n, counts[0] / counts[1], counts[2] / counts[3], example


def main():
    cfg = load_config(sys.argv[1:])
    torch.manual_seed(cfg["seed"])
    np.random.seed(cfg["seed"])
    random.seed(cfg["seed"])
    d, t = cfg["data"], cfg["train"]

    train_set = SpeechDataset(d, d["n_train"], cfg["seed"], True)
    dev_set = SpeechDataset(d, d["n_dev"], cfg["seed"] + 1, False)
    sampler = BucketSampler([len(w) for w in train_set.wavs], t["batch_size"], cfg["seed"])
    train_loader = DataLoader(train_set, batch_sampler=sampler, num_workers=t["num_workers"], collate_fn=collate,
                              worker_init_fn=seed_worker)
    dev_loader = DataLoader(dev_set, batch_size=t["batch_size"], collate_fn=collate)

    model = CTCModel(cfg["model"], d["n_mels"], len(ALPHABET)).to(device)
    print("parameters: %.2f M" % (sum(p.numel() for p in model.parameters()) / 1e6))
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=t["lr"], weight_decay=1e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / t["warmup"]))

    best, bad, step, scale = float("inf"), 0, 0, 1.0
    for epoch in range(t["epochs"]):
        model.train()
        sampler.set_epoch(epoch)
        start, losses = time.time(), []
        for x, frames, y, y_len, texts in train_loader:
            x = x.to(device)
            frames = frames.to(device)
            y = y.to(device)
            y_len = y_len.to(device)
            log_probs, lengths = model(x, frames)
            loss = ctc(log_probs.transpose(0, 1), y, lengths, y_len)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), t["clip"])
            if math.isnan(norm) or math.isinf(norm):
                print("step %d: bad gradient, batch left out" % step)
                continue
            optimizer.step()
            warm.step()
            step += 1
            losses.append(loss.item())
            if step % t["log_every"] == 0:
                hyps = greedy(log_probs, lengths)
                ce, cn, _, _ = error_rates(hyps, texts)
                print("step %6d  loss %.4f  cer %.3f  lr %.2e" % (
                    step, np.mean(losses[-t["log_every"]:]), ce / cn, optimizer.param_groups[0]["lr"]))
        val, cer, wer, example = evaluate(model, dev_loader, ctc)
        print("epoch %d  train %.4f  dev %.4f  cer %.4f  wer %.4f  (%.1f s)" % (
            epoch, np.mean(losses), val, cer, wer, time.time() - start))
        print("   ref: %s\n   hyp: %s" % example)
        if cer < best - 1e-4:
            best, bad = cer, 0
            torch.save({"model": model.state_dict(), "cfg": cfg}, "best.pt")
        else:
            bad += 1
            if bad >= t["patience"]:
                print("no better for %d epochs" % bad)
                break
            scale *= 0.5
            warm.base_lrs = [t["lr"] * scale]
    print("best cer %.4f" % best)


if __name__ == "__main__":
    main()
