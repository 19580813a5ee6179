import torch
import torch.nn.functional as F


def task_losses(out, t):
    ok = ~torch.isnan(t['depth'])
    depth = torch.where(ok, t['depth'], torch.zeros_like(t['depth']))
    err = (out['depth'].log() - (depth + 1e-6).log()).abs() * ok
    silog = (err.flatten(1).sum(1) / ok.flatten(1).sum(1).clamp(min=1))
    return {'kind': F.cross_entropy(out['kind'], t['kind']),
            'depth': silog[ok.flatten(1).any(1)].mean() if ok.any() else out['depth'].sum() * 0,
            'light': (1 - (out['light'] * t['light']).sum(1)).mean()}


def attention_maps(feats):
    """spatial attention transfer; normalises the maps IN PLACE (memory), so feats are spoiled after this call"""
    maps = []
    for f in feats:
        a = f.pow_(2).mean(1)
        a = F.adaptive_avg_pool2d(a, 6).flatten(1)
        maps.append(F.normalize(a, dim=1))
    return maps


def distill(out, tout, T=3.0):
    kl = F.kl_div(F.log_softmax(out['kind'] / T, 1), F.softmax(tout['kind'] / T, 1), reduction='batchmean') * T * T
    maps_s = attention_maps([f.clone() for f in out['feats'][1:]])
    maps_t = attention_maps(tout['feats'][1:])
    return kl, sum((a - b).pow(2).sum(1).mean() for a, b in zip(maps_s[:2], maps_t[:2]))
