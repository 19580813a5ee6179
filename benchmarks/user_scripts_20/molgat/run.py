import math
import os
from dataclasses import dataclass, asdict, field
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from tqdm import tqdm

from mol_data import read_file, split, collate
from net import MolGAT, segment_softmax


@dataclass
class Cfg:
    file: str = 'molecules.jsonl'
    targets: int = 12
    dim: int = 256
    layers: int = 6
    heads: int = 8
    batch: int = 256
    epochs: int = 150
    lr: float = 5e-4
    clip: float = 2.0
    ema: float = 0.999
    patience: int = 12
    seed: int = 7
    limit: int = None
    out: str = 'molgat.pt'
    ablate: list = field(default_factory=list)     # target columns left out of the loss


def parse(argv):
    cfg = Cfg()
    for a in argv:
        k, v = a.lstrip('-').split('=')
        old = getattr(cfg, k)
        if isinstance(old, list):
            v = [int(s) for s in v.split(',')]
        elif k == 'limit':
            v = int(v)
        else:
            v = type(old)(v)
        setattr(cfg, k, v)
    return cfg


USE_CUDA = torch.cuda.is_available()


def to_gpu(batch):
    if not USE_CUDA:
        return batch
    return {k: v.cuda() if torch.is_tensor(v) else v for k, v in batch.items()}


def selftest():
    """segment_softmax against torch.softmax, in a loop over the segments"""
    torch.manual_seed(0)
    idx = torch.randint(0, 9, (50,))
    s = torch.randn(50)
    got = segment_softmax(s, idx, 9)
    for k in range(9):
        sel = idx == k
        if sel.any():
            want = torch.softmax(s[sel], dim=0)
            assert torch.allclose(got[sel], want, atol=1e-6), (k, got[sel].tolist(), want.tolist())
    print('segment_softmax ok')


class Ema:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for k, v in model.state_dict().items():
            if v.dtype.is_floating_point:
                self.shadow[k] = self.decay * self.shadow[k] + (1 - self.decay) * v
            else:
                self.shadow[k] = v.clone()


def loss_fn(pred, y, mean, std, ablate):
    y = (y - mean) / std
    keep = [c for c in range(y.size(1)) if c not in ablate]
    loss = 0
    for c in keep:
        loss = loss + F.smooth_l1_loss(pred[:, c], y[:, c])
    return loss / len(keep)


def evaluate(model, loader, mean, std):
    model.eval()
    preds, ys = [], []
    for batch in loader:
        batch = to_gpu(batch)
        p = model(batch) * std + mean
        preds.append(p.detach().cpu().numpy())
        ys.append(batch['y'].cpu().numpy())
    preds = np.concatenate(preds)
    ys = np.concatenate(ys)
    return np.abs(preds - ys).mean(axis=0)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == 'selftest':
        selftest()
        return
    cfg = parse(sys.argv[1:])
    print(asdict(cfg))
    torch.manual_seed(cfg.seed)
    np.random.seed(cfg.seed)

    mols = read_file(cfg.file, cfg.limit)
    train, valid, test = split(mols, cfg.seed)
    train_dl = DataLoader(train, batch_size=cfg.batch, shuffle=True, collate_fn=collate)
    valid_dl = DataLoader(valid, batch_size=cfg.batch, collate_fn=collate)
    test_dl = DataLoader(test, batch_size=cfg.batch, collate_fn=collate)

    ys = torch.stack([m.y for m in train])
    mean, std = ys.mean(0), ys.std(0) + 1e-8
    model = MolGAT(cfg.targets, cfg.dim, cfg.layers, cfg.heads)
    if USE_CUDA:
        model = model.cuda()
        mean, std = mean.cuda(), std.cuda()
    print('parameters:', sum(p.numel() for p in model.parameters()))

    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=4, min_lr=1e-6)
    ema = Ema(model, cfg.ema)
    best, wait = math.inf, 0
    for epoch in range(cfg.epochs):
        model.train()
        losses, norms = [], []
        for batch in tqdm(train_dl, leave=False):
            batch = to_gpu(batch)
            pred = model(batch)
            loss = loss_fn(pred, batch['y'], mean, std, cfg.ablate)
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.zero_()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            if not math.isfinite(norm.item()):
                print('skipped a step, norm', norm.item())
                continue
            opt.step()
            ema.update(model)
            losses.append(loss.item())
            norms.append(norm.item())

        backup = {k: v.clone() for k, v in model.state_dict().items()}
        model.load_state_dict(ema.shadow)
        mae = evaluate(model, valid_dl, mean, std)
        score = float((mae / std.cpu().numpy()).mean())
        sched.step(score)
        print('epoch %3d  loss %.5f  norm %.2f  valid %.5f  lr %.1e' % (
            epoch, np.mean(losses), np.mean(norms), score, opt.param_groups[0]['lr']))
        if score < best:
            best, wait = score, 0
            torch.save({'cfg': asdict(cfg), 'state': model.state_dict(), 'mean': mean, 'std': std}, cfg.out)
        else:
            wait += 1
        model.load_state_dict(backup)
        if wait > cfg.patience:
            print('no progress, stop')
            break

    if os.path.exists(cfg.out):
        model.load_state_dict(torch.load(cfg.out, weights_only=True)['state'])
    mae = evaluate(model, test_dl, mean, std)
    print('test MAE per target:', ' '.join('%.4f' % m for m in mae))


if __name__ == '__main__':
    main()
