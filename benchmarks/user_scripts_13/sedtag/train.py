import argparse
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader

from clips import EVENTS, ClipSet
from model import Tagger


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument('--data', default='clips')
    p.add_argument('--n-train', type=int, default=12000)
    p.add_argument('--n-val', type=int, default=1500)
    p.add_argument('--seconds', type=float, default=5.0)
    p.add_argument('--sr', type=int, default=16000)
    p.add_argument('--n-fft', type=int, default=512)
    p.add_argument('--hop', type=int, default=160)
    p.add_argument('--n-mels', type=int, default=64)
    p.add_argument('--time-mask', type=int, default=40)
    p.add_argument('--width', type=int, default=64)
    p.add_argument('--dropout', type=float, default=0.2)
    p.add_argument('--batch-size', type=int, default=32)
    p.add_argument('--epochs', type=int, default=60)
    p.add_argument('--lr', type=float, default=1e-3)
    p.add_argument('--warmup', type=int, default=500)
    p.add_argument('--ema', type=float, default=0.999)
    p.add_argument('--clip', type=float, default=1.0)
    p.add_argument('--workers', type=int, default=4)
    p.add_argument('--threads', type=int, default=8, help='of the CPU, for machines without a GPU')
    p.add_argument('--log-every', type=int, default=50)
    p.add_argument('--out', default='exp/sed')
    p.add_argument('--resume', default='')
    return p.parse_args()


class EMA:
    """Shadow copy of the weights and of the BatchNorm statistics"""

    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        src = model.state_dict()
        for name, value in self.model.state_dict().items():
            if value.dtype.is_floating_point:
                value.copy_(value * self.decay + src[name] * (1 - self.decay))
            else:
                value.copy_(src[name])


def bce(prob, y, device):
    # rare events count more
    weight = torch.tensor([2.0 if e in ('click', 'knock', 'bell') else 1.0 for e in EVENTS]).to(device)
    with autocast(enabled=False):
        loss = nn.BCELoss(reduction='none')(prob.float().clamp(1e-6, 1 - 1e-6), y)
    return (loss * (1 + (weight - 1) * y)).mean()


def average_precision(score, target):
    order = np.argsort(-score)
    hit = target[order]
    if hit.sum() == 0:
        return np.nan
    prec = np.cumsum(hit) / (np.arange(len(hit)) + 1)
    return (prec * hit).sum() / hit.sum()


def validate(model, loader, device):
    model.eval()
    probs, ys = [], []
    with torch.no_grad():
        for wav, y in loader:
            wav = wav.to(device, non_blocking=True)
            with autocast(enabled=device.type == 'cuda'):
                probs.append(model(wav))
            ys.append(y)
    probs, ys = torch.cat(probs).float().cpu(), torch.cat(ys)
    loss = bce(probs, ys, 'cpu').item()
    aps = [average_precision(probs[:, k].numpy(), ys[:, k].numpy()) for k in range(len(EVENTS))]
    return loss, np.nanmean(aps), aps


def seed_worker(worker_id):
    np.random.seed(torch.initial_seed() % 2 ** 32)


def main():
    args = get_args()
    torch.manual_seed(3)
    torch.set_num_threads(args.threads)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    torch.backends.cudnn.benchmark = True
    os.makedirs(args.out, exist_ok=True)

    train_set = ClipSet(args.data, 'train', args.n_train, args.seconds, args.sr, True)
    val_set = ClipSet(args.data, 'val', args.n_val, args.seconds, args.sr, False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True, pin_memory=True,
                              num_workers=args.workers, worker_init_fn=seed_worker)
    val_loader = DataLoader(val_set, batch_size=args.batch_size, num_workers=args.workers)

    model = Tagger(args, len(EVENTS)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    total = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / args.warmup, 0.5 * (1 + np.cos(np.pi * min(1.0, s / total)))))
    scaler = GradScaler(enabled=device.type == 'cuda')
    ema = EMA(model, args.ema)
    start = 0
    if args.resume:
        ck = torch.load(args.resume, map_location=device)
        model.load_state_dict(ck['model'])
        optimizer.load_state_dict(ck['optimizer'])
        start = ck['epoch'] + 1

    for epoch in range(start, args.epochs):
        model.train()
        running, seen, step_time = 0.0, 0, 0.0
        for i, (wav, y) in enumerate(train_loader):
            if device.type == 'cuda':
                torch.cuda.synchronize()
            t0 = time.time()
            wav = wav.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=False)
            with autocast(enabled=device.type == 'cuda'):
                prob = model(wav)
                loss = bce(prob, y, device)
            scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            ema.update(model)
            running += loss.item()
            seen += 1
            if device.type == 'cuda':
                torch.cuda.synchronize()
            step_time += time.time() - t0
            if (i + 1) % args.log_every == 0:
                print(f'  {epoch}:{i + 1}/{len(train_loader)} loss {running / seen:.4f} '
                      f'lr {scheduler.get_last_lr()[0]:.2e} {1000 * step_time / seen:.1f} ms/step')
        val_loss, mAP, aps = validate(ema.model, val_loader, device)
        print(f'epoch {epoch} train {running / seen:.4f} val {val_loss:.4f} mAP {mAP:.4f} | ' +
              ' '.join(f'{e}:{a:.2f}' for e, a in zip(EVENTS, aps)))
        torch.save({'epoch': epoch, 'model': model.state_dict(), 'optimizer': optimizer.state_dict()},
                   os.path.join(args.out, 'last.pt'))


if __name__ == '__main__':
    main()
