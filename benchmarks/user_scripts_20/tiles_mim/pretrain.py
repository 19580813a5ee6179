"""python pretrain.py conf.yml        (nohup it, about a day and a half on the A100)"""
import math
import os
import sys

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader
from tqdm import tqdm

from mim.probe import linear_probe
from mim.tiles import TileSet
from mim.vit import MIM


def lr_factor(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def param_groups(model, wd):
    decay, rest = [], []
    for name, p in model.named_parameters():
        (rest if p.ndim < 2 or name.endswith('mask_tok') else decay).append(p)
    return [{'params': decay, 'weight_decay': wd}, {'params': rest, 'weight_decay': 0.0}]


def grad_norm(model):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.norm(2).item() ** 2
    return total ** 0.5


def main(cfg):
    run, o = cfg['run'], cfg['optim']
    torch.manual_seed(run['seed'])
    np.random.seed(run['seed'])
    device = run['device'] if torch.cuda.is_available() else 'cpu'
    os.makedirs(run['out'], exist_ok=True)

    ds = TileSet(cfg['data']['train'], cfg['model'])
    loader = DataLoader(ds, batch_size=o['batch'], shuffle=True, drop_last=True, pin_memory=True)
    model = MIM(cfg['model']).to(device)
    print(f'{len(ds)} tiles, {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters')
    opt = torch.optim.AdamW(param_groups(model, o['wd']), lr=o['lr'], betas=(0.9, 0.95))
    total = o['epochs'] * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_factor(s, o['warmup'], total))

    ckpt = os.path.join(run['out'], 'last.pt')
    first = 0
    if os.path.exists(ckpt):
        c = torch.load(ckpt, map_location=device, weights_only=True)
        model.load_state_dict(c['model'])
        opt.load_state_dict(c['opt'])
        sched.load_state_dict(c['sched'])
        first = c['epoch'] + 1

    for epoch in range(first, o['epochs']):
        model.train()
        history, norms = [], []
        bar = tqdm(loader, desc=f'epoch {epoch}', mininterval=5)
        for x, mask in bar:
            x, mask = x.to(device), mask.to(device)
            loss = model(x, mask)
            if not math.isfinite(loss.item()):
                torch.save(model.state_dict(), os.path.join(run['out'], 'nan.pt'))
                raise RuntimeError(f'loss is {loss.item()} in epoch {epoch}')
            opt.zero_grad(set_to_none=True)
            loss.backward()
            norms.append(grad_norm(model))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 3.0)
            opt.step()
            sched.step()
            history.append(loss.item())
            bar.set_postfix(loss=f'{loss.item():.4f}', lr=f'{sched.get_last_lr()[0]:.2e}')
            torch.cuda.empty_cache()
        print(f'epoch {epoch}: loss {np.mean(history):.4f}  grad norm mean {np.mean(norms):.3f} max {np.max(norms):.3f}')
        if (epoch + 1) % run['probe_every'] == 0:
            print(f'   probe accuracy {linear_probe(model, cfg, device):.4f}')
        if (epoch + 1) % run['save_every'] == 0 or epoch + 1 == o['epochs']:
            torch.save({'model': model.state_dict(), 'opt': opt.state_dict(),
                        'sched': sched.state_dict(), 'epoch': epoch}, ckpt)


if __name__ == '__main__':
    with open(sys.argv[1] if len(sys.argv) > 1 else 'conf.yml') as f:
        main(yaml.safe_load(f))
