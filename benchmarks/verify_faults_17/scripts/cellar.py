"""Two-part VAE on rows in memory: weight of the divergence rises, order drawn anew, words dropped."""
import torch
import torch.nn.functional as F
from torch import nn

ROWS, DIM, BATCH, EPOCHS = 512, 12, 32, 6


def make(seed=0):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(ROWS + 128, 3, generator=g)
    w = torch.randn(3, DIM, generator=g)
    return torch.tanh(z @ w) + 0.1 * torch.randn(ROWS + 128, DIM, generator=g)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Dropout(0.1))
        self.shape, self.style = nn.Linear(32, 4), nn.Linear(32, 4)
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, DIM))
        nn.init.orthogonal_(self.dec[0].weight)
        nn.init.normal_(self.dec[2].weight, std=0.1)

    def forward(self, x):
        h = self.enc(x)
        m1, s1 = self.shape(h).chunk(2, 1)
        m2, s2 = self.style(h).chunk(2, 1)
        e1 = torch.randn_like(m1)
        e2 = torch.randn_like(m2)
        z = torch.cat([m1 + e1 * (s1 / 2).exp(), m2 + e2 * (s2 / 2).exp()], 1)
        kl = sum((-0.5 * (1 + s - m**2 - s.exp())).sum(1) for m, s in ((m1, s1), (m2, s2)))
        return self.dec(z), kl


def main():
    torch.manual_seed(1)
    data = make()
    train, test = data[:ROWS], data[ROWS:]
    model = Vae()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        model.train()
        order = torch.randperm(ROWS)
        total = 0.0
        for i in range(0, ROWS, BATCH):
            x = train[order[i : i + BATCH]]
            noise = 0.1 * torch.randn_like(x)
            out, kl = model(x + noise)
            beta = min(1.0, (epoch + 1) / 4)
            loss = F.mse_loss(out, x, reduction="none").sum(1).mean() * 5 + beta * kl.mean() * 0.2
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            out, kl = model(test)
            err = F.mse_loss(out, test).item()
        print(f"epoch {epoch} loss {total / (ROWS // BATCH):.4f} test {err:.4f} kl {kl.mean().item():.4f}")
    torch.save(model.state_dict(), "cellar.pt")


if __name__ == "__main__":
    main()
