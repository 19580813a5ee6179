import copy
import glob
import os

import click
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from diffusion import Diffusion
from unet import UNet


class ImageFolder(Dataset):
    def __init__(self, folder, size):
        self.files = sorted(glob.glob(os.path.join(folder, "**", "*.jpg"), recursive=True))
        self.size = size

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        img = Image.open(self.files[i]).convert("RGB")
        s = min(img.size)
        left, top = (img.width - s) // 2, (img.height - s) // 2
        img = img.crop((left, top, left + s, top + s)).resize((self.size, self.size), Image.BICUBIC)
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 127.5 - 1
        if torch.rand(1).item() < 0.5:
            x = x.flip(-1)
        return x


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval()
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.data = s.data * self.decay + p.data * (1 - self.decay)


def save_grid(x, path, rows=8):
    x = ((x.cpu().permute(0, 2, 3, 1).numpy() + 1) * 127.5).round().astype(np.uint8)
    n, h, w, _ = x.shape
    cols = (n + rows - 1) // rows
    grid = np.zeros((rows * h, cols * w, 3), dtype=np.uint8)
    for i in range(n):
        r, c = i % rows, i // rows
        grid[r * h:(r + 1) * h, c * w:(c + 1) * w] = x[i]
    Image.fromarray(grid).save(path)


@click.command()
@click.argument("folder")
@click.option("--out", default="out_ddpm")
@click.option("--size", default=64)
@click.option("--batch", default=64)
@click.option("--ch", default=128)
@click.option("--epochs", default=400)
@click.option("--lr", default=2e-4)
@click.option("--warmup", default=2000)
@click.option("--ema", "ema_decay", default=0.9995)
@click.option("--sample-every", default=10)
@click.option("--steps", default=1000)
@click.option("--device", default="cuda")
def main(folder, out, size, batch, ch, epochs, lr, warmup, ema_decay, sample_every, steps, device):
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(42)

    ds = ImageFolder(folder, size)
    dl = DataLoader(ds, batch_size=batch, shuffle=True, num_workers=2, drop_last=True)
    print(len(ds), "images", len(dl), "steps an epoch")

    net = UNet(ch=ch, image_size=size).to(device)
    ema = EMA(net, ema_decay)
    diff = Diffusion(steps)
    opt = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))

    # loss by quarter of the noise level: the first one tells if the colours will be off
    quarter_sum = np.zeros(4)
    quarter_cnt = np.zeros(4)
    global_step = 0
    running = 0.0
    for epoch in range(epochs):
        net.train()
        bar = tqdm(dl, desc=f"epoch {epoch}")
        for x in bar:
            x = x.to(device)
            loss, per_sample, t = diff.loss(net, x)
            opt.zero_grad()
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            ema.update(net)

            for l, ti in zip(per_sample, t):
                q = int(ti.item() * 4 // steps)
                quarter_sum[q] += l.item()
                quarter_cnt[q] += 1
            running = 0.98 * running + 0.02 * loss.item() if global_step else loss.item()
            bar.set_postfix(loss=f"{running:.4f}", gn=f"{grad_norm.item():.2f}")
            global_step += 1

        with open(os.path.join(out, "quarters.txt"), "a") as f:
            f.write(f"{epoch} " + " ".join(f"{v:.5f}" for v in quarter_sum / np.maximum(quarter_cnt, 1)) + "\n")
        quarter_sum[:] = 0
        quarter_cnt[:] = 0

        if (epoch + 1) % sample_every == 0:
            grid = diff.sample(ema.shadow, 64, size, device)
            save_grid(grid, os.path.join(out, f"{epoch + 1:04d}.png"))
            torch.save({"net": net.state_dict(), "ema": ema.shadow.state_dict(), "opt": opt.state_dict(),
                        "sched": sched.state_dict(), "epoch": epoch}, os.path.join(out, "last.pt"))


if __name__ == "__main__":
    main()
