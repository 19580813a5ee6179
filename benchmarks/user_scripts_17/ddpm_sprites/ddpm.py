# Denoising Diffusion from scratch - following the annotated blog post, on my own
# little "sprites" data set so it trains in an evening on one GPU.
#
#   python ddpm.py                 full run
#   python ddpm.py --sample-only   just draw samples from the last checkpoint

import argparse
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="sprites.npz")
parser.add_argument("--num-images", type=int, default=40000)
parser.add_argument("--image-size", type=int, default=32)
parser.add_argument("--timesteps", type=int, default=1000)
parser.add_argument("--dim", type=int, default=96)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--ema-decay", type=float, default=0.995)
parser.add_argument("--num-samples", type=int, default=64)
parser.add_argument("--sample-every", type=int, default=10)
parser.add_argument("--log-every", type=int, default=100)
parser.add_argument("--results", default="results")
parser.add_argument("--sample-only", action="store_true")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"


# ---------------------------------------------------------------- data
def draw_sprites(n, size, seed=0):
    rng = np.random.default_rng(seed)
    half = rng.random((n, size // 4, size // 8)) > 0.45
    full = np.concatenate([half, half[:, :, ::-1]], axis=2)          # mirror, like space invaders
    color = rng.integers(60, 256, size=(n, 1, 1, 3))
    small = (full[..., None] * color).astype(np.uint8)
    return small.repeat(4, axis=1).repeat(4, axis=2)                 # n, size, size, 3


if not os.path.exists(args.data):
    np.savez_compressed(args.data, images=draw_sprites(args.num_images, args.image_size))


class SpriteDataset(Dataset):
    def __init__(self, path):
        self.images = np.load(path)["images"]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        img = torch.from_numpy(self.images[idx]).float() / 255.0
        img = img.permute(2, 0, 1)
        if random.random() < 0.5:
            img = torch.flip(img, dims=[2])
        return img * 2 - 1


# ---------------------------------------------------------------- schedule
def linear_beta_schedule(timesteps):
    scale = 1000 / timesteps
    return torch.linspace(scale * 1e-4, scale * 0.02, timesteps)


betas = linear_beta_schedule(args.timesteps)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
sqrt_recip_alphas = torch.sqrt(1.0 / alphas)
sqrt_alphas_cumprod = torch.sqrt(alphas_cumprod)
sqrt_one_minus_alphas_cumprod = torch.sqrt(1.0 - alphas_cumprod)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)


def extract(a, t, x_shape):
    batch_size = t.shape[0]
    out = a.gather(-1, t.cpu())
    return out.reshape(batch_size, *((1,) * (len(x_shape) - 1))).to(t.device)


def q_sample(x_start, t, noise):
    return (extract(sqrt_alphas_cumprod, t, x_start.shape) * x_start
            + extract(sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise)


# ---------------------------------------------------------------- network
class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half_dim = self.dim // 2
        embeddings = math.log(10000) / (half_dim - 1)
        embeddings = torch.exp(torch.arange(half_dim) * -embeddings).to(time.device)
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, time_dim, groups=8):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, cout))
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm1 = nn.GroupNorm(groups, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, cout)
        self.act = nn.SiLU()
        self.res = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.act(self.norm1(self.conv1(x)))
        h = h + self.mlp(t)[:, :, None, None]
        h = self.act(self.norm2(self.conv2(h)))
        return h + self.res(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=32):
        super().__init__()
        self.scale = dim_head ** -0.5
        self.heads = heads
        hidden = dim_head * heads
        self.norm = nn.GroupNorm(1, dim)
        self.to_qkv = nn.Conv2d(dim, hidden * 3, 1, bias=False)
        self.to_out = nn.Conv2d(hidden, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim=1)
        q, k, v = [y.reshape(b, self.heads, -1, h * w) for y in qkv]
        q = q * self.scale
        sim = torch.einsum("b h d i, b h d j -> b h i j", q, k)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        attn = sim.softmax(dim=-1)
        out = torch.einsum("b h i j, b h d j -> b h i d", attn, v)
        out = out.permute(0, 1, 3, 2).reshape(b, -1, h, w)
        return x + self.to_out(out)


class Unet(nn.Module):
    def __init__(self, dim, channels=3, dim_mults=(1, 2, 4)):
        super().__init__()
        time_dim = dim * 4
        self.init_conv = nn.Conv2d(channels, dim, 3, padding=1)
        self.time_mlp = nn.Sequential(
            SinusoidalPositionEmbeddings(dim), nn.Linear(dim, time_dim), nn.GELU(), nn.Linear(time_dim, time_dim))
        dims = [dim] + [dim * m for m in dim_mults]
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        pairs = list(zip(dims[:-1], dims[1:]))
        for i, (a, b) in enumerate(pairs):
            last = i == len(pairs) - 1
            self.downs.append(nn.ModuleList([
                ResBlock(a, b, time_dim), Attention(b),
                nn.Identity() if last else nn.Conv2d(b, b, 4, stride=2, padding=1)]))
        self.mid1 = ResBlock(dims[-1], dims[-1], time_dim)
        self.mid_attn = Attention(dims[-1])
        self.mid2 = ResBlock(dims[-1], dims[-1], time_dim)
        for i, (a, b) in enumerate(reversed(pairs)):
            last = i == len(pairs) - 1
            self.ups.append(nn.ModuleList([
                ResBlock(b * 2, a, time_dim), Attention(a),
                nn.Identity() if last else nn.ConvTranspose2d(a, a, 4, stride=2, padding=1)]))
        self.final = nn.Conv2d(dim, channels, 1)

    def forward(self, x, time):
        x = self.init_conv(x)
        t = self.time_mlp(time)
        skips = []
        for res, attn, down in self.downs:
            x = attn(res(x, t))
            skips.append(x)
            x = down(x)
        x = self.mid2(self.mid_attn(self.mid1(x, t)), t)
        for res, attn, up in self.ups:
            x = torch.cat([x, skips.pop()], dim=1)
            x = attn(res(x, t))
            x = up(x)
        return self.final(x)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {name: p.data.clone() for name, p in model.named_parameters()}

    def update(self, model):
        for name, p in model.named_parameters():
            new_average = (1.0 - self.decay) * p.data + self.decay * self.shadow[name]
            self.shadow[name] = new_average.clone()

    def apply_to(self, model):
        self.backup = {name: p.data.clone() for name, p in model.named_parameters()}
        for name, p in model.named_parameters():
            p.data.copy_(self.shadow[name])

    def restore(self, model):
        for name, p in model.named_parameters():
            p.data.copy_(self.backup[name])


# ---------------------------------------------------------------- sampling
@torch.no_grad()
def p_sample(model, x, t, t_index):
    betas_t = extract(betas, t, x.shape)
    sqrt_one_minus_t = extract(sqrt_one_minus_alphas_cumprod, t, x.shape)
    sqrt_recip_t = extract(sqrt_recip_alphas, t, x.shape)
    mean = sqrt_recip_t * (x - betas_t * model(x, t) / sqrt_one_minus_t)
    if t_index == 0:
        return mean
    var_t = extract(posterior_variance, t, x.shape)
    return mean + torch.sqrt(var_t) * torch.randn_like(x)


@torch.no_grad()
def sample(model, n, size):
    model.eval()
    img = torch.randn((n, 3, size, size), device=device)
    imgs = []
    for i in reversed(range(args.timesteps)):
        img = p_sample(model, img, torch.full((n,), i, device=device, dtype=torch.long), i)
        imgs.append(img.cpu().numpy())
    model.train()
    return imgs


def save_grid(images, path):
    x = ((images.clip(-1, 1) + 1) * 127.5).astype(np.uint8)
    np.save(path, x.transpose(0, 2, 3, 1))


# ---------------------------------------------------------------- training
def main():
    os.makedirs(args.results, exist_ok=True)
    ckpt_path = os.path.join(args.results, "ddpm.pt")
    dataset = SpriteDataset(args.data)
    dataloader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Unet(args.dim).to(device)
    if args.sample_only:
        model.load_state_dict(torch.load(ckpt_path, map_location=device))
        save_grid(sample(model, args.num_samples, args.image_size)[-1], os.path.join(args.results, "final.npy"))
        return
    ema = EMA(model, args.ema_decay)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print("parameters:", sum(p.numel() for p in model.parameters()), "images:", len(dataset))

    step = 0
    for epoch in range(args.epochs):
        running = []
        for batch in dataloader:
            optimizer.zero_grad()
            batch = batch.to(device)
            t = torch.randint(0, args.timesteps, (batch.shape[0],)).long().to(device)
            noise = torch.randn(batch.shape).to(device)
            x_noisy = q_sample(batch, t, noise)
            loss = F.smooth_l1_loss(model(x_noisy, t), noise)
            loss.backward()
            optimizer.step()
            ema.update(model)
            running.append(loss.item())
            if step % args.log_every == 0:
                print(f"step {step} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} mean loss {sum(running) / len(running):.4f}")
        if (epoch + 1) % args.sample_every == 0 or epoch == args.epochs - 1:
            ema.apply_to(model)
            images = sample(model, args.num_samples, args.image_size)[-1]
            print(f"samples mean {images.mean():.4f} std {images.std():.4f}")
            save_grid(images, os.path.join(args.results, f"sample_{epoch}.npy"))
            torch.save(model.state_dict(), ckpt_path)
            ema.restore(model)


if __name__ == "__main__":
    main()
