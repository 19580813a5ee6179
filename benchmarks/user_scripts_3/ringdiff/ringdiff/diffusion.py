import torch


class GaussianDiffusion:
    def __init__(self, steps, beta_start, beta_end):
        self.steps = steps
        self.betas = torch.linspace(beta_start, beta_end, steps)
        self.alphas = 1.0 - self.betas
        self.abar = torch.cumprod(self.alphas, dim=0)

    def q_sample(self, x0, t, noise):
        a = self.abar.to(x0.device)[t].view(-1, 1, 1, 1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def loss(self, model, x0, y, p_uncond):
        t = torch.randint(0, self.steps, (x0.size(0),)).to(x0.device)
        noise = torch.randn_like(x0)
        # classifier-free guidance: drop the label of some samples
        drop = torch.rand(y.shape, device=y.device) < p_uncond
        y = torch.where(drop, torch.full_like(y, model.null), y)
        pred = model(self.q_sample(x0, t, noise), t, y)
        per_sample = (pred - noise).pow(2).flatten(1).mean(1)
        return per_sample.mean(), per_sample.detach(), t

    def sample(self, model, y, size, guidance=1.5, seed=0):
        g = torch.Generator().manual_seed(seed)      # CPU generator: same pictures on any machine
        device = y.device
        x = torch.randn(y.size(0), 1, size, size, generator=g).to(device)
        null = torch.full_like(y, model.null)
        for i in reversed(range(self.steps)):
            t = torch.full((y.size(0),), i, device=device, dtype=torch.long)
            e_c = model(x, t, y)
            e_u = model(x, t, null)
            eps = (1 + guidance) * e_c - guidance * e_u
            a, ab, b = self.alphas[i], self.abar[i], self.betas[i]
            x = (x - b / (1 - ab).sqrt() * eps) / a.sqrt()
            if i > 0:
                x = x + b.sqrt() * torch.randn(x.shape, generator=g).to(device)
        return x
