import argparse
import time

import numpy as np
import torch
from PIL import Image

import scene
from nerf import NeRF, composite, sample_pdf

ap = argparse.ArgumentParser()
ap.add_argument('--views', type=int, default=100)
ap.add_argument('--res', type=int, default=400)
ap.add_argument('--rays', type=int, default=4096)
ap.add_argument('--coarse', type=int, default=64)
ap.add_argument('--fine', type=int, default=128)
ap.add_argument('--width', type=int, default=256)
ap.add_argument('--depth', type=int, default=8)
ap.add_argument('--iters', type=int, default=200_000)
ap.add_argument('--lr', type=float, default=5e-4)
ap.add_argument('--noise', type=float, default=0.5, help='noise on sigma during training')
ap.add_argument('--chunk', type=int, default=16384, help='rays rendered at once in tests')
ap.add_argument('--log-every', type=int, default=100)
ap.add_argument('--test-every', type=int, default=5000)
ap.add_argument('--seed', type=int, default=0)
ap.add_argument('--out', default=None, help='prefix for test pictures and weights')
opt = ap.parse_args()
NEAR, FAR = 2.0, 6.5

np.random.seed(opt.seed)
torch.manual_seed(opt.seed)
dev = 'cuda' if torch.cuda.is_available() else 'cpu'


def get_rays(pose, res, focal):
    """Origins and directions of all pixels of a view, (res, res, 3)."""
    j, i = torch.meshgrid(torch.arange(res, dtype=torch.float32), torch.arange(res, dtype=torch.float32),
                          indexing='ij')
    d = torch.stack([(i - res / 2 + 0.5) / focal, -(j - res / 2 + 0.5) / focal, -torch.ones_like(i)], -1)
    d = (d[..., None, :] * pose[:3, :3]).sum(-1)
    return pose[:3, 3].expand(d.shape), d


def render_rays(coarse, fine, o, d, train):
    n = o.shape[0]
    view = d / d.norm(dim=-1, keepdim=True)
    z = torch.linspace(NEAR, FAR, opt.coarse).to(dev).expand(n, opt.coarse)
    if train:
        mid = 0.5 * (z[:, 1:] + z[:, :-1])
        upper, lower = torch.cat([mid, z[:, -1:]], -1), torch.cat([z[:, :1], mid], -1)
        z = lower + (upper - lower) * torch.rand(z.shape).to(dev)
    noise = opt.noise if train else 0.0

    pts = o[:, None] + d[:, None] * z[..., None]
    rgb, sigma = coarse(pts, view[:, None].expand(pts.shape))
    rgb_c, weights = composite(rgb, sigma, z, d, noise)

    mid = 0.5 * (z[:, 1:] + z[:, :-1])
    extra = sample_pdf(mid, weights[:, 1:-1].detach(), opt.fine, det=not train)
    z = torch.sort(torch.cat([z, extra], -1), -1)[0]
    pts = o[:, None] + d[:, None] * z[..., None]
    rgb, sigma = fine(pts, view[:, None].expand(pts.shape))
    rgb_f, _ = composite(rgb, sigma, z, d, noise)
    return rgb_c, rgb_f


def render_view(coarse, fine, pose, focal):
    o, d = get_rays(pose, opt.res, focal)
    o, d = o.reshape(-1, 3), d.reshape(-1, 3)
    out = []
    with torch.no_grad():
        for s in range(0, len(o), opt.chunk):
            rgb = render_rays(coarse, fine, o[s:s + opt.chunk].to(dev), d[s:s + opt.chunk].to(dev), False)[1]
            out.append(rgb.cpu())
    return torch.cat(out).reshape(opt.res, opt.res, 3)


images, poses, focal = scene.make(opt.views, opt.res, opt.seed)
images, poses = torch.from_numpy(images), torch.from_numpy(poses)
n_test = max(1, opt.views // 10)
n_train = opt.views - n_test

coarse = NeRF(opt.depth, opt.width).to(dev)
fine = NeRF(opt.depth, opt.width).to(dev)
params = list(coarse.parameters()) + list(fine.parameters())
optimizer = torch.optim.Adam(params, lr=opt.lr)
print(f'{n_train} training views, {sum(p.numel() for p in params)} parameters')

psnrs, t0 = [], time.time()
for it in range(1, opt.iters + 1):
    v = np.random.randint(n_train)
    o, d = get_rays(poses[v], opt.res, focal)
    target = images[v].reshape(-1, 3)
    pick = np.random.choice(opt.res * opt.res, opt.rays, replace=False)
    o = o.reshape(-1, 3)[pick].to(dev)
    d = d.reshape(-1, 3)[pick].to(dev)
    target = target[pick].to(dev)

    rgb_c, rgb_f = render_rays(coarse, fine, o, d, True)
    loss_f = ((rgb_f - target) ** 2).mean()
    loss = ((rgb_c - target) ** 2).mean() + loss_f
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for g in optimizer.param_groups:
        g['lr'] = opt.lr * 0.1 ** (it / opt.iters)
    psnrs.append(-10 * np.log10(loss_f.item()))

    if it % opt.log_every == 0:
        print(f'iter {it} loss {loss.item():.5f} psnr {np.mean(psnrs[-opt.log_every:]):.3f} '
              f'({(time.time() - t0) / it * 1000:.1f} ms/iter)')
    if it % opt.test_every == 0 or it == opt.iters:
        scores = []
        for v in range(n_train, opt.views):
            rgb = render_view(coarse, fine, poses[v], focal)
            scores.append(-10 * torch.log10(((rgb - images[v]) ** 2).mean()).item())
            if opt.out:
                Image.fromarray((rgb.clamp(0, 1).numpy() * 255).astype(np.uint8)).save(f'{opt.out}_{v}_{it}.png')
        print(f'== test psnr {np.mean(scores):.3f} after {it}')
        if opt.out:
            torch.save({'coarse': coarse.state_dict(), 'fine': fine.state_dict(),
                        'optimizer': optimizer.state_dict(), 'it': it}, f'{opt.out}.pt')
