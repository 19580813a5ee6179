import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoding:
    """x -> (x, sin x, cos x, sin 2x, cos 2x, ...)"""

    def __init__(self, n_freq):
        self.fns = [lambda x: x]
        for f in 2.0 ** torch.linspace(0, n_freq - 1, n_freq):
            self.fns.append(lambda x, f=f: torch.sin(x * f))
            self.fns.append(lambda x, f=f: torch.cos(x * f))
        self.out_dim = 3 * len(self.fns)

    def __call__(self, x):
        return torch.cat([fn(x) for fn in self.fns], -1)


class NeRF(nn.Module):
    def __init__(self, depth=8, width=256, skip=4):
        super().__init__()
        self.enc_x, self.enc_d = Encoding(10), Encoding(4)
        self.skip = skip if depth > skip else depth // 2
        dx, dd = self.enc_x.out_dim, self.enc_d.out_dim
        self.layers = nn.ModuleList()
        for i in range(depth):
            self.layers.append(nn.Linear(dx if i == 0 else width + (dx if i == self.skip else 0), width))
        self.sigma = nn.Linear(width, 1)
        self.feature = nn.Linear(width, width)
        self.view = nn.Linear(width + dd, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, x, d):
        e = self.enc_x(x)
        h = e
        for i, layer in enumerate(self.layers):
            if i == self.skip:
                h = torch.cat([e, h], -1)
            h = F.relu(layer(h))
        v = F.relu(self.view(torch.cat([self.feature(h), self.enc_d(d)], -1)))
        return torch.sigmoid(self.rgb(v)), self.sigma(h).squeeze(-1)


def composite(rgb, sigma, z, dirs, noise):
    """Classic volume rendering, white background. rgb (R,S,3), sigma (R,S), z (R,S)."""
    delta = z[:, 1:] - z[:, :-1]
    delta = torch.cat([delta, torch.full((z.shape[0], 1), 1e10).to(z.device)], -1) * dirs.norm(dim=-1, keepdim=True)
    if noise > 0:
        sigma = sigma + torch.randn(sigma.shape).to(sigma.device) * noise
    alpha = 1 - torch.exp(-F.relu(sigma) * delta)
    transmittance = torch.ones(z.shape[0]).to(z.device)
    color = torch.zeros(z.shape[0], 3).to(z.device)
    weights = []
    for s in range(z.shape[1]):
        w = transmittance * alpha[:, s]
        color = color + w.unsqueeze(-1) * rgb[:, s]
        transmittance = transmittance * (1 - alpha[:, s] + 1e-10)
        weights.append(w)
    weights = torch.stack(weights, -1)
    return color + (1 - weights.sum(-1, keepdim=True)), weights


def sample_pdf(bins, weights, n, det):
    """Inverse transform sampling of n depths from the coarse weights."""
    pdf = weights + 1e-5
    pdf = pdf / pdf.sum(-1, keepdim=True)
    cdf = torch.cumsum(pdf, -1)
    cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], -1)
    if det:
        u = torch.linspace(0, 1, n, device=cdf.device).expand(cdf.shape[0], n).contiguous()
    else:
        u = torch.rand(cdf.shape[0], n, device=cdf.device)
    hi = torch.searchsorted(cdf, u, right=True)
    lo = (hi - 1).clamp(min=0)
    hi = hi.clamp(max=cdf.shape[-1] - 1)
    c0, c1 = cdf.gather(1, lo), cdf.gather(1, hi)
    b0, b1 = bins.gather(1, lo), bins.gather(1, hi)
    span = c1 - c0
    span = torch.where(span < 1e-5, torch.ones_like(span), span)
    return b0 + (u - c0) / span * (b1 - b0)
