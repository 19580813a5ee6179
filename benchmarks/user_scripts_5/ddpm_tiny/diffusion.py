import math
from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import einsum, nn

ModelPrediction = namedtuple('ModelPrediction', ['pred_noise', 'pred_x_start'])

# helpers

def exists(x):
    return x is not None

def default(val, d):
    return val if exists(val) else d

def extract(a, t, x_shape):
    out = a.to(t.device).gather(0, t).float()
    return out.reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))

def cosine_beta_schedule(timesteps, s = 0.008):
    steps = timesteps + 1
    x = torch.linspace(0, timesteps, steps, dtype = torch.float64)
    alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    betas = 1 - (alphas_cumprod[1:] / alphas_cumprod[:-1])
    return torch.clip(betas, 0, 0.999)

# modules

class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.tensor([math.exp(-math.log(10000) * i / (half - 1)) for i in range(half)])
        args = t[:, None].float() * freqs.to(t.device)[None]
        return torch.cat((args.sin(), args.cos()), dim = -1)

class Block(nn.Module):
    def __init__(self, dim, dim_out, groups = 8):
        super().__init__()
        self.proj = nn.Conv2d(dim, dim_out, 3, padding = 1)
        self.norm = nn.GroupNorm(groups, dim_out)
        self.act = nn.SiLU()

    def forward(self, x, scale_shift = None):
        x = self.norm(self.proj(x))
        if exists(scale_shift):
            scale, shift = scale_shift
            x = x * (scale + 1) + shift
        return self.act(x)

class ResnetBlock(nn.Module):
    def __init__(self, dim, dim_out, time_dim):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, dim_out * 2))
        self.block1 = Block(dim, dim_out)
        self.block2 = Block(dim_out, dim_out)
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, t):
        te = self.mlp(t)[:, :, None, None]
        h = self.block1(x, scale_shift = te.chunk(2, dim = 1))
        return self.block2(h) + self.res_conv(x)

class Attention(nn.Module):
    def __init__(self, dim, heads = 4, dim_head = 16):
        super().__init__()
        self.scale = dim_head ** -0.5
        self.heads = heads
        self.norm = nn.GroupNorm(1, dim)
        self.to_qkv = nn.Conv2d(dim, heads * dim_head * 3, 1, bias = False)
        self.to_out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim = 1)
        q, k, v = map(lambda z: z.reshape(b, self.heads, -1, h * w), qkv)
        sim = einsum('b h d i, b h d j -> b h i j', q * self.scale, k)
        attn = sim.softmax(dim = -1)
        out = einsum('b h i j, b h d j -> b h i d', attn, v)
        out = out.permute(0, 1, 3, 2).reshape(b, -1, h, w)
        return x + self.to_out(out)

class LinearAttention(nn.Module):
    def __init__(self, dim, heads = 4, dim_head = 16):
        super().__init__()
        self.scale = dim_head ** -0.5
        self.heads = heads
        self.norm = nn.GroupNorm(1, dim)
        self.to_qkv = nn.Conv2d(dim, heads * dim_head * 3, 1, bias = False)
        self.to_out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim = 1)
        q, k, v = map(lambda z: z.reshape(b, self.heads, -1, h * w), qkv)
        q = q.softmax(dim = -2) * self.scale
        k = k.softmax(dim = -1)
        context = einsum('b h d n, b h e n -> b h d e', k, v)
        out = einsum('b h d e, b h d n -> b h e n', context, q)
        return x + self.to_out(out.reshape(b, -1, h, w))

class Unet(nn.Module):
    def __init__(self, dim = 32, channels = 1):
        super().__init__()
        time_dim = dim * 4
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, time_dim), nn.GELU(), nn.Linear(time_dim, time_dim))
        self.init_conv = nn.Conv2d(channels, dim, 3, padding = 1)
        self.down1 = ResnetBlock(dim, dim, time_dim)
        self.lin_attn = LinearAttention(dim)
        self.pool1 = nn.Conv2d(dim, dim * 2, 4, 2, 1)
        self.mid1 = ResnetBlock(dim * 2, dim * 2, time_dim)
        self.mid_attn = Attention(dim * 2)
        self.mid2 = ResnetBlock(dim * 2, dim * 2, time_dim)
        self.up = nn.Sequential(nn.Upsample(scale_factor = 2, mode = 'nearest'), nn.Conv2d(dim * 2, dim, 3, padding = 1))
        self.up1 = ResnetBlock(dim * 2, dim, time_dim)
        self.final = nn.Conv2d(dim, channels, 1)

    def forward(self, x, time):
        t = self.time_mlp(time)
        x = self.init_conv(x)
        x = self.lin_attn(self.down1(x, t))
        skip = x
        x = self.pool1(x)
        x = self.mid2(self.mid_attn(self.mid1(x, t)), t)
        x = self.up(x)
        x = self.up1(torch.cat((x, skip), dim = 1), t)
        return self.final(x)

class GaussianDiffusion(nn.Module):
    def __init__(self, model, *, image_size, timesteps = 200, min_snr_gamma = 5):
        super().__init__()
        self.model = model
        self.image_size = image_size
        betas = cosine_beta_schedule(timesteps)
        alphas = 1. - betas
        ac = torch.cumprod(alphas, dim = 0)
        ac_prev = F.pad(ac[:-1], (1, 0), value = 1.)
        self.num_timesteps = timesteps
        # float64 tables
        self.sqrt_ac = ac.sqrt()
        self.sqrt_om_ac = (1. - ac).sqrt()
        self.sqrt_recip_ac = (1. / ac).sqrt()
        self.sqrt_recipm1_ac = (1. / ac - 1).sqrt()
        var = betas * (1. - ac_prev) / (1. - ac)
        self.post_logvar = var.clamp(min = 1e-20).log()
        self.coef1 = betas * ac_prev.sqrt() / (1. - ac)
        self.coef2 = (1. - ac_prev) * alphas.sqrt() / (1. - ac)
        snr = ac / (1 - ac)
        self.loss_weight = snr.clamp(max = min_snr_gamma) / snr

    def q_sample(self, x_start, t, noise = None):
        noise = default(noise, torch.randn_like(x_start))
        return extract(self.sqrt_ac, t, x_start.shape) * x_start + extract(self.sqrt_om_ac, t, x_start.shape) * noise

    def model_predictions(self, x, t):
        eps = self.model(x, t)
        x0 = extract(self.sqrt_recip_ac, t, x.shape) * x - extract(self.sqrt_recipm1_ac, t, x.shape) * eps
        return ModelPrediction(eps, x0.clamp(-1., 1.))

    @torch.no_grad()
    def sample(self, batch_size):
        device = next(self.model.parameters()).device
        img = torch.randn(batch_size, 1, self.image_size, self.image_size, device = device)
        for time in reversed(range(self.num_timesteps)):
            t = torch.full((batch_size,), time, device = device, dtype = torch.long)
            pred = self.model_predictions(img, t)
            mean = extract(self.coef1, t, img.shape) * pred.pred_x_start + extract(self.coef2, t, img.shape) * img
            noise = torch.randn_like(img) if time > 0 else 0.
            img = mean + (0.5 * extract(self.post_logvar, t, img.shape)).exp() * noise
        return (img + 1) * 0.5

    def forward(self, img):
        b = img.shape[0]
        t = torch.randint(0, self.num_timesteps, (b,)).long().to(img.device)
        img = img * 2 - 1
        noise = torch.randn_like(img)
        out = self.model(self.q_sample(img, t, noise), t)
        loss = F.mse_loss(out, noise, reduction = 'none').mean(dim = (1, 2, 3))
        loss = loss * extract(self.loss_weight, t, loss.shape)
        return loss.mean()
