"""Little figures seen by several cameras: clothes belong to the identity, pose, light and background do not."""
import numpy as np


def make_people(n_ids, per_id, h, w, n_cams, seed):
    rng = np.random.RandomState(seed)
    cams = rng.uniform(0.7, 1.2, size=(n_cams, 3))
    images = np.zeros((n_ids * per_id, h, w, 3), dtype=np.uint8)
    pids, camids = [], []
    k = 0
    for pid in range(n_ids):
        torso, legs, bag, hair = rng.randint(20, 235, size=(4, 3))
        stripes = rng.randint(0, 3)
        has_bag = rng.rand() < 0.5
        for _ in range(per_id):
            cam = rng.randint(n_cams)
            img = np.ones((h, w, 3)) * rng.randint(40, 200, size=3) + rng.randn(h, w, 3) * 18
            dy, dx = rng.randint(-h // 16, h // 16 + 1), rng.randint(-w // 10, w // 10 + 1)
            y0, x0 = h // 8 + dy, w // 2 + dx
            img[max(0, y0 - h // 16):y0 + h // 10, x0 - w // 8:x0 + w // 8] = hair
            ty, tb = y0 + h // 10, y0 + h // 2
            img[ty:tb, x0 - w // 4:x0 + w // 4] = torso
            if stripes:
                img[ty:tb:stripes * 4, x0 - w // 4:x0 + w // 4] = legs
            img[tb:h - h // 12 + dy, x0 - w // 5:x0 + w // 5] = legs
            if has_bag:
                side = 1 if rng.rand() < 0.5 else -1
                bx = int(np.clip(x0 + side * w // 4, 0, w - w // 8))
                img[ty + h // 8:tb + h // 16, bx:bx + w // 8] = bag
            img = img * cams[cam] * rng.uniform(0.75, 1.15) + rng.randn(h, w, 3) * 10
            images[k] = img.clip(0, 255)
            pids.append(pid)
            camids.append(cam)
            k += 1
    return images, np.array(pids), np.array(camids)
