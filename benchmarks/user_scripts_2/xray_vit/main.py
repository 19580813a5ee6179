import argparse
import json
import math

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from dataset import XRays
from vit import ViT


def get_parser():
    p = argparse.ArgumentParser('bone age')
    p.add_argument('--root', default='/data/rsna-bone-age')
    p.add_argument('--size', type=int, default=224)
    p.add_argument('--patch', type=int, default=16)
    p.add_argument('--width', type=int, default=384)
    p.add_argument('--depth', type=int, default=12)
    p.add_argument('--heads', type=int, default=6)
    p.add_argument('--bs', type=int, default=128)
    p.add_argument('--epochs', type=int, default=60)
    p.add_argument('--lr', type=float, default=1e-3)
    p.add_argument('--clip', type=float, default=1.0)
    p.add_argument('--seed', type=int, default=0)
    return p


def augment(x, g, device):
    """flip and brightness, on the device; numbers from a CPU generator"""
    flip = torch.rand(len(x), generator=g).to(device) < 0.5
    gain = (0.8 + 0.4 * torch.rand(len(x), generator=g)).to(device)
    x = torch.where(flip[:, None, None, None], x.flip(-1), x)
    return x * gain[:, None, None, None]


def gaussian_nll(mu, log_s, y):
    return (0.5 * ((y - mu) / log_s.exp()).pow(2) + log_s).mean()


def train_one_epoch(model, loader, opt, sched, g, device, args, stats):
    model.train()
    mean, std = stats
    total_loss = 0
    total_mae = 0
    grad_norm = 0
    for i, (x, sex, months) in enumerate(loader):
        x = x.to(device)
        sex = sex.to(device)
        months = months.to(device)
        x = augment(x, g, device)
        y = (months - torch.tensor(mean).to(device)) / torch.tensor(std).to(device)

        mu, log_s = model(x, sex)
        loss = gaussian_nll(mu, log_s, y)
        attn = model.pool.last
        loss = loss + 0.01 * (attn * (attn + 1e-8).log()).sum(1).mean()

        opt.zero_grad()
        loss.backward()
        grad_norm += torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        opt.step()
        sched.step()

        total_loss += loss.item()
        total_mae += (mu.detach() - y).abs().mean().item() * std
        if i % 50 == 0:
            print(f'   {i}/{len(loader)} loss {loss.item()} lr {sched.get_last_lr()[0]}')
    return total_loss / len(loader), total_mae / len(loader), grad_norm / len(loader)


def evaluate(model, loader, device, stats):
    model.eval()
    mean, std = stats
    errs, zs = [], []
    for x, sex, months in loader:
        x, sex = x.to(device), sex.to(device)
        mu, log_s = model(x, sex)
        mu2, _ = model(x.flip(-1), sex)
        pred = (mu + mu2).cpu() / 2 * std + mean
        errs.append((pred - months).abs())
        zs.append(((pred - months) / (log_s.exp().cpu() * std)))
    errs, zs = torch.cat(errs), torch.cat(zs)
    return errs.mean().item(), zs.std().item()


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    train_ds, val_ds = XRays(args.root, 'train', args.size), XRays(args.root, 'val', args.size)
    months = torch.tensor([float(r['months']) for r in train_ds.rows])
    stats = (months.mean().item(), months.std().item())
    train_loader = DataLoader(train_ds, batch_size=args.bs, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_ds, batch_size=args.bs)

    model = ViT(args.size, args.patch, args.width, args.depth, args.heads).to(device)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.05}, {'params': rest, 'weight_decay': 0.0}], lr=args.lr)
    total = args.epochs * len(train_loader)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / (0.1 * total)) * 0.5 * (1 + math.cos(math.pi * s / total)))
    g = torch.Generator().manual_seed(args.seed)
    print('parameters', sum(p.numel() for p in model.parameters()), 'train', len(train_ds), 'val', len(val_ds))

    best = math.inf
    for epoch in range(args.epochs):
        tl, tm, gn = train_one_epoch(model, train_loader, opt, sched, g, device, args, stats)
        mae, calib = evaluate(model, val_loader, device, stats)
        print(json.dumps({'epoch': epoch, 'train_loss': tl, 'train_mae': tm, 'grad_norm': float(gn), 'val_mae': mae, 'z_std': calib}))
        if mae < best:
            best = mae
            torch.save(model.state_dict(), 'best.pth')
    x, sex, m = val_ds[0]
    model.load_state_dict(torch.load('best.pth'))
    model.eval()
    with torch.no_grad():
        mu, _ = model(x[None].to(device), sex[None].to(device))
    print('first patient', mu.item() * stats[1] + stats[0], m.item(), 'heat', model.pool.last.max().item(), 'best', best)


if __name__ == '__main__':
    main(get_parser().parse_args())
