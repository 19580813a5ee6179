import torch
import torch.nn.functional as F


class Diffusion:
    """eps-prediction DDPM with the cosine schedule. Schedules stay in float64 on the CPU, the
    products of 1000 alphas lose digits in float32."""

    def __init__(self, T=1000):
        self.T = T
        s = 0.008
        t = torch.linspace(0, T, T + 1, dtype=torch.float64) / T
        f = torch.cos((t + s) / (1 + s) * torch.pi / 2) ** 2
        self.betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.alphas = 1.0 - self.betas
        self.abar = torch.cumprod(self.alphas, dim=0)

    def extract(self, arr, t, like):
        return arr[t.cpu()].float().to(like.device).view(-1, 1, 1, 1)

    def q_sample(self, x0, t, noise):
        abar = self.extract(self.abar, t, x0)
        return abar.sqrt() * x0 + (1 - abar).sqrt() * noise

    def loss(self, net, x0):
        t = torch.randint(0, self.T, (x0.shape[0],)).to(x0.device)
        noise = torch.randn(x0.shape).to(x0.device)
        pred = net(self.q_sample(x0, t, noise), t)
        per_sample = F.mse_loss(pred, noise, reduction="none").mean(dim=(1, 2, 3))
        return per_sample.mean(), per_sample, t

    @torch.no_grad()
    def sample(self, net, n, size, device, seed=0):
        """same seed -> same grid in every epoch, so that one can flip through the pictures"""
        gen = torch.Generator().manual_seed(seed)
        x = torch.randn(n, 3, size, size, generator=gen).to(device)
        for i in reversed(range(self.T)):
            t = torch.full((n,), i, dtype=torch.long, device=device)
            eps = net(x, t)
            beta = self.extract(self.betas, t, x)
            alpha = self.extract(self.alphas, t, x)
            abar = self.extract(self.abar, t, x)
            mean = (x - beta / (1 - abar).sqrt() * eps) / alpha.sqrt()
            if i > 0:
                z = torch.randn(x.shape, generator=gen).to(device)
                x = mean + beta.sqrt() * z
            else:
                x = mean
        return x.clamp(-1, 1)
