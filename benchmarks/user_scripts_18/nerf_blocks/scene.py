"""A toy ray tracer which makes the training views (numpy, run once)."""
import numpy as np

SUN = np.array([0.4, 0.8, 0.45]) / np.linalg.norm([0.4, 0.8, 0.45])


def look_at(eye, target=(0, 0, 0)):
    z = eye - np.asarray(target, dtype=float)
    z /= np.linalg.norm(z)
    x = np.cross([0, 1, 0], z)
    x /= np.linalg.norm(x)
    pose = np.eye(4)
    pose[:3, 0], pose[:3, 1], pose[:3, 2], pose[:3, 3] = x, np.cross(z, x), z, eye
    return pose


def rays_of(pose, res, focal):
    i, j = np.meshgrid(np.arange(res), np.arange(res))
    d = np.stack([(i - res / 2 + 0.5) / focal, -(j - res / 2 + 0.5) / focal, -np.ones_like(i, dtype=float)], -1)
    d = d @ pose[:3, :3].T
    return np.broadcast_to(pose[:3, 3], d.shape), d


def hit_ball(o, d, c, r):
    oc = o - c
    a, b, k = (d * d).sum(-1), (oc * d).sum(-1), (oc * oc).sum(-1) - r * r
    disc = b * b - a * k
    t = np.where(disc > 0, (-b - np.sqrt(np.maximum(disc, 0))) / a, np.inf)
    t = np.where(t > 1e-3, t, np.inf)
    p = o + np.where(np.isfinite(t), t, 0)[..., None] * d
    return t, (p - c) / r


def hit_box(o, d, lo, hi):
    with np.errstate(divide="ignore", invalid="ignore"):
        t0, t1 = (lo - o) / d, (hi - o) / d
    near, far = np.minimum(t0, t1), np.maximum(t0, t1)
    tn, tf = near.max(-1), far.min(-1)
    t = np.where((tn < tf) & (tn > 1e-3), tn, np.inf)
    n = np.where(np.arange(3) == near.argmax(-1)[..., None], -np.sign(d), 0)
    return t, n


def render(pose, res, focal, objects):
    o, d = rays_of(pose, res, focal)
    best = np.full(d.shape[:2], np.inf)
    img = np.ones(d.shape)                                     # white sky
    for kind, a, b, color in objects:
        t, n = hit_ball(o, d, a, b) if kind == "ball" else hit_box(o, d, a, b)
        closer = t < best
        shade = 0.35 + 0.65 * np.clip((n * SUN).sum(-1), 0, 1)
        p = o + np.where(np.isfinite(t), t, 0)[..., None] * d
        c = np.asarray(color) * shade[..., None]
        if kind == "box" and b[1] < -0.55:                     # the floor
            c = c * np.where((np.floor(p[..., 0] * 3) + np.floor(p[..., 2] * 3)) % 2 == 0, 1.0, 0.5)[..., None]
        img = np.where(closer[..., None], c, img)
        best = np.where(closer, t, best)
    return img.clip(0, 1).astype(np.float32)


def make(views, res, seed):
    rng = np.random.default_rng(seed)
    objects = [("box", np.array([-1.2, -0.7, -1.2]), np.array([1.2, -0.6, 1.2]), (0.8, 0.8, 0.75))]
    for _ in range(4):
        c = rng.uniform(-0.7, 0.7, 3) * [1, 0, 1]
        s = rng.uniform(0.15, 0.35)
        color = rng.uniform(0.1, 1.0, 3)
        if rng.random() < 0.5:
            objects.append(("ball", c + [0, s - 0.6, 0], s, color))
        else:
            objects.append(("box", c + [-s, -0.6, -s], c + [s, rng.uniform(-0.3, 0.3), s], color))
    focal = 1.2 * res
    poses, images = [], []
    for _ in range(views):
        phi, theta = rng.uniform(0, 2 * np.pi), rng.uniform(0.2, 1.1)
        eye = 4.0 * np.array([np.cos(phi) * np.cos(theta), np.sin(theta), np.sin(phi) * np.cos(theta)])
        poses.append(look_at(eye, (0, -0.3, 0)))
        images.append(render(poses[-1], res, focal, objects))
    return np.stack(images), np.stack(poses).astype(np.float32), focal
