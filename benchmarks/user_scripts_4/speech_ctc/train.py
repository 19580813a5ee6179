import argparse
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from audio import CHARS, SpeechDataset, collate
from model import SpeechModel


def greedy_decode(log_probs, lengths):
    out = []
    for b in range(log_probs.size(0)):
        prev, chars = 0, []
        for t in range(lengths[b]):
            k = log_probs[b, t].argmax().item()
            if k != 0 and k != prev:
                chars.append(CHARS[k])
            prev = k
        out.append("".join(chars))
    return out


def edit_distance(a, b):
    d = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, cb in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (ca != cb))
    return d[-1]


class AverageMeter(object):
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def validate(model, loader, device):
    model.eval()
    errs, chars = 0, 0
    with torch.no_grad():
        for feats, targets, in_lens, tgt_lens in loader:
            feats = feats.to(device)
            logits, out_lens = model(feats, in_lens.to(device))
            hyps = greedy_decode(F.log_softmax(logits, -1), out_lens)
            offset = 0
            for hyp, n in zip(hyps, tgt_lens.tolist()):
                ref = "".join(CHARS[k] for k in targets[offset:offset + n].tolist())
                offset += n
                errs += edit_distance(hyp, ref)
                chars += n
    return errs / chars


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", default=4, type=int)
    parser.add_argument("--batch-size", default=16, type=int)
    parser.add_argument("--n", default=400, type=int)
    parser.add_argument("--lr", default=3e-3, type=float)
    parser.add_argument("--max-norm", default=100, type=float)
    parser.add_argument("--anneal", default=1.05, type=float)
    parser.add_argument("--seed", default=7, type=int)
    args = parser.parse_args()
    random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True

    train_loader = DataLoader(SpeechDataset(args.n, 0, spec_augment=True), args.batch_size, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(SpeechDataset(60, 1), args.batch_size, collate_fn=collate)
    model = SpeechModel().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    losses = AverageMeter()
    for epoch in range(args.epochs):
        model.train()
        losses.reset()
        for i, (feats, targets, in_lens, tgt_lens) in enumerate(train_loader):
            feats = feats.to(device)
            in_lens = in_lens.to(device)
            logits, out_lens = model(feats, in_lens)
            log_probs = F.log_softmax(logits.transpose(0, 1).float(), dim=-1)
            loss = F.ctc_loss(log_probs, targets.to(device), out_lens, tgt_lens.to(device), blank=0)
            loss = loss / feats.size(0)
            loss_value = loss.item()
            if loss_value == float("inf") or loss_value != loss_value:
                print("WARNING: received an inf loss, skipping batch", i)
                continue
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            optimizer.step()
            losses.update(loss_value, feats.size(0))
            if i % 10 == 0:
                print("Epoch: [{0}][{1}/{2}]\tLoss {l.val:.4f} ({l.avg:.4f})".format(epoch, i, len(train_loader), l=losses))
            torch.cuda.empty_cache()
        cer = validate(model, val_loader, device)
        for g in optimizer.param_groups:
            g["lr"] = g["lr"] / args.anneal
        print("Epoch %d CER %.3f" % (epoch, cer))


if __name__ == "__main__":
    main()
