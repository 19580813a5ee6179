import numpy as np
import torch


def render(i, size=24):
    """a ball over a floor: class (material), depth map, light direction"""
    r = np.random.RandomState(i)
    kind = r.randint(0, 4)
    yy, xx = np.mgrid[:size, :size] / (size - 1.) * 2 - 1
    cx, cy, rad = r.uniform(-.4, .4), r.uniform(-.4, .2), r.uniform(.3, .5)
    d2 = (xx - cx) ** 2 + (yy - cy) ** 2
    ball = d2 < rad ** 2
    z = np.sqrt(np.clip(rad ** 2 - d2, 0, None))
    light = r.normal(size=3)
    light[2] = abs(light[2]) + .5
    light /= np.linalg.norm(light)
    n = np.stack([(xx - cx) / rad, (yy - cy) / rad, z / rad])
    shade = np.clip((n * light[:, None, None]).sum(0), 0, 1)
    tex = [1, .6 + .4 * np.sign(np.sin(12 * xx)), .6 + .4 * np.sign(np.sin(12 * yy)), r.rand(size, size)][kind]
    img = np.where(ball, shade * tex, .3 + .2 * yy) + r.normal(0, .03, (size, size))
    depth = np.where(ball, 1 - z, 1 + .5 * (1 - yy))
    return img.astype(np.float32)[None], kind, depth.astype(np.float32)[None], light.astype(np.float32), ball[None]


class Scenes(torch.utils.data.Dataset):
    missing = .25          # part of the pictures has no depth label

    def __init__(self, n, first=0):
        self.items = [render(first + i) for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, kind, depth, light, ball = self.items[i]
        has = i % 100 >= self.missing * 100
        return img, dict(kind=kind, depth=depth if has else np.full_like(depth, np.nan), light=light, ball=ball)
