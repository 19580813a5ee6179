#!/usr/bin/env python
# Aufruf:  python recipe.py <befehl> [--schluessel=wert ...]     befehl: train | info
import sys, time, importlib
import torch
import torch.nn as nn
from asr.data import loaders
from asr.model import CTCNet


def greedy(logp, lens):
    hyps = []
    best = logp.argmax(-1)
    for b in range(best.size(0)):
        seq, prev = [], 0
        for t in range(int(lens[b])):
            k = best[b, t].item()
            if k != 0 and k != prev:
                seq.append(k - 1)
            prev = k
        hyps.append(seq)
    return hyps


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


def evaluate(model, loader, ctc, device):
    model.eval()
    loss_sum, err, ref, n = 0.0, 0, 0, 0
    for xs, xl, ys, yl in loader:
        xs, xl, ys, yl = xs.to(device), xl.to(device), ys.to(device), yl.to(device)
        logp, ol = model(xs, xl)
        loss_sum += ctc(logp.transpose(0, 1), ys, ol, yl).item() * len(xl)
        n += len(xl)
        off = 0
        for h, L in zip(greedy(logp, ol), yl):
            r = (ys[off:off + L] - 1).tolist()
            off += int(L)
            err += edit_distance(h, r)
            ref += len(r)
    return loss_sum / n, 100.0 * err / ref


def train(cfg):
    torch.manual_seed(cfg.seed)
    device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')
    tr, dev = loaders(cfg)
    model = CTCNet(cfg.n_mels, cfg.hidden, len(cfg.tokens) + 1).to(device)
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    opt = torch.optim.Adam(model.parameters(), cfg.lr)
    best, skipped = float('inf'), 0
    for ep in range(cfg.epochs):
        model.train()
        tot, cnt, frames, t0 = 0.0, 0, 0, time.time()
        for i, (xs, xl, ys, yl) in enumerate(tr):
            frames += xl.sum().item()
            xs, xl, ys, yl = xs.to(device), xl.to(device), ys.to(device), yl.to(device)
            logp, ol = model(xs, xl)
            loss = ctc(logp.transpose(0, 1), ys, ol, yl)
            opt.zero_grad()
            loss.backward()
            gn = nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
            if torch.isnan(gn) or torch.isinf(gn):      # Batch verwerfen
                skipped += 1
                continue
            opt.step()
            tot += loss.item() * len(xl)
            cnt += len(xl)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        sys.stderr.write('%.0f Frames/s\n' % (frames / (time.time() - t0)))
        dl, ter = evaluate(model, dev, ctc, device)
        print('Epoche %d  train %.4f  dev %.4f  TER %.2f%%  lr %.5f  verworfen %d' % (
            ep, tot / cnt, dl, ter, opt.param_groups[0]['lr'], skipped))
        if dl < best:
            best = dl
            torch.save(model.state_dict(), 'best.pt')
        else:
            for g in opt.param_groups:
                g['lr'] *= cfg.half_life


def info(cfg):
    m = CTCNet(cfg.n_mels, cfg.hidden, len(cfg.tokens) + 1)
    print(m, sum(p.numel() for p in m.parameters()))


if __name__ == '__main__':
    cfg = importlib.import_module('conf')
    for a in sys.argv[2:]:
        k, v = a.lstrip('-').split('=')
        setattr(cfg, k, type(getattr(cfg, k))(v))
    {'train': train, 'info': info}[sys.argv[1]](cfg)
