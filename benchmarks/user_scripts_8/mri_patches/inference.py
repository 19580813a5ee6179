import itertools

import numpy as np
import torch


def gaussian_map(patch, sigma_scale):
    axes = [np.exp(-0.5 * ((np.arange(p) - (p - 1) / 2) / (p * sigma_scale)) ** 2) for p in patch]
    g = np.einsum('i,j,k->ijk', *axes)
    g = g / g.max()
    g[g < 1e-4] = 1e-4
    return torch.from_numpy(g).float()


def predict_tta(model, x, mirror_axes):
    """Average of softmax over all mirrorings."""
    combos = [c for n in range(len(mirror_axes) + 1) for c in itertools.combinations(mirror_axes, n)]
    out = 0
    for c in combos:
        pred = torch.softmax(model(torch.flip(x, c)), dim=1)
        out = out + torch.flip(pred, c)
    return out / len(combos)


def sliding_window(model, volume, patch, num_classes, cfg, device):
    """volume: (C, D, H, W) on the host; returns the label map."""
    shape = volume.shape[1:]
    steps = []
    for s, p in zip(shape, patch):
        stride = max(int(p * (1 - cfg['overlap'])), 1)
        pos = list(range(0, s - p + 1, stride))
        if pos[-1] != s - p:
            pos.append(s - p)
        steps.append(pos)
    scores = torch.zeros((num_classes,) + tuple(shape))
    weight = torch.zeros(shape)
    for z, y, x in itertools.product(*steps):
        sl = (slice(None), slice(z, z + patch[0]), slice(y, y + patch[1]), slice(x, x + patch[2]))
        inp = volume[sl].unsqueeze(0).to(device).float()
        importance = gaussian_map(patch, cfg['sigma_scale']).to(device)
        pred = predict_tta(model, inp, cfg['mirror_axes'])[0]
        scores[sl] += (pred * importance).cpu()
        weight[sl[1:]] += importance.cpu()
        torch.cuda.empty_cache()
    return (scores / weight).argmax(0)


def dice_per_class(pred, target, num_classes):
    res = []
    for c in range(1, num_classes):
        p, t = pred == c, target == c
        denom = p.sum() + t.sum()
        res.append(1.0 if denom == 0 else (2.0 * (p & t).sum() / denom).item())
    return res
