import copy
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from diffusion import GaussianDiffusion, Unet

IMAGE_SIZE = 16
BATCH = 16
ACCUM = 2
STEPS = 60
LR = 2e-4
SAVE_EVERY = 30
RESULTS = Path('./results')
RESULTS.mkdir(exist_ok = True)

device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')
torch.manual_seed(0)
np.random.seed(0)


class Rings(Dataset):
    """ grey rings, stored as uint8 like pngs """
    def __init__(self, n = 2000, size = IMAGE_SIZE):
        yy, xx = np.mgrid[:size, :size]
        self.imgs = np.zeros((n, size, size), dtype = np.uint8)
        for i in range(n):
            cx, cy = np.random.uniform(4, size - 4, 2)
            r = np.random.uniform(2, 5)
            d = np.hypot(xx - cx, yy - cy)
            self.imgs[i] = (255 * np.exp(-((d - r) ** 2))).astype(np.uint8)

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        x = torch.from_numpy(self.imgs[i]).unsqueeze(0).float() / 255.
        if torch.rand(1).item() < 0.5:
            x = x.flip(-1)
        return x


class EMA:
    def __init__(self, beta = 0.995, start = 10):
        self.beta = beta
        self.start = start
        self.step = 0

    def update_average(self, old, new):
        if old is None:
            return new
        return old * self.beta + (1 - self.beta) * new

    def update(self, ma_model, current_model):
        self.step += 1
        if self.step < self.start:
            ma_model.load_state_dict(current_model.state_dict())
            return
        for current_params, ma_params in zip(current_model.parameters(), ma_model.parameters()):
            old_weight, up_weight = ma_params.data, current_params.data
            ma_params.data = self.update_average(old_weight, up_weight)


def cycle(dl):
    while True:
        for data in dl:
            yield data


def save(step, diffusion, ema_model, opt):
    torch.save({
        'step': step,
        'model': diffusion.state_dict(),
        'ema': ema_model.state_dict(),
        'opt': opt.state_dict(),
    }, str(RESULTS / 'model-last.pt'))


diffusion = GaussianDiffusion(Unet(), image_size = IMAGE_SIZE).to(device)
ema_model = copy.deepcopy(diffusion)
ema = EMA()
dl = cycle(DataLoader(Rings(), batch_size = BATCH, shuffle = True, pin_memory = True, num_workers = 0, drop_last = True))
opt = torch.optim.Adam(diffusion.parameters(), lr = LR, betas = (0.9, 0.99))

losses = []
for step in range(STEPS):
    tic = time.perf_counter()
    total_loss = 0.
    for _ in range(ACCUM):
        data = next(dl).to(device)
        loss = diffusion(data) / ACCUM
        total_loss += loss.item()
        loss.backward()

    torch.nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    ema.update(ema_model, diffusion)

    if device.type == 'cuda':
        torch.cuda.synchronize()
    losses.append(total_loss)
    print(f'\rstep {step} loss {total_loss:.4f} {time.perf_counter() - tic:.3f}s/it', end = '')

    if (step + 1) % SAVE_EVERY == 0:
        ema_model.eval()
        imgs = ema_model.sample(4)
        np.save(RESULTS / f'sample-{step + 1}.npy', imgs.cpu().numpy())
        save(step, diffusion, ema_model, opt)

print(f'\nmean loss of the last 20 steps {np.mean(losses[-20:]):.4f}')
