"""Pictures into codes, then a model of the codes. The codebook follows its codes by averages; rows that nobody uses are born anew."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    def __init__(self, n, seed, jitter=True):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
        self.images = torch.zeros(n, 1, 12, 12)
        for i in range(n):
            for _ in range(int(torch.randint(1, 4, (), generator=g))):
                cx, cy = (torch.rand(2, generator=g) * 10 + 1).tolist()
                w = 1 + 1.5 * float(torch.rand((), generator=g))
                self.images[i, 0] += torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * w * w))
        self.jitter = jitter

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i]
        if self.jitter:
            if torch.rand(1).item() < 0.5:
                image = image.flip(2)
            image = image + 0.05 * torch.randn(image.shape)
        return image


class Codebook(nn.Module):
    def __init__(self, count, dim, decay=0.9, eps=1e-5):
        super().__init__()
        self.count, self.decay, self.eps = count, decay, eps
        self.register_buffer("rows", torch.randn(count, dim))
        self.register_buffer("uses", torch.ones(count))
        self.register_buffer("sums", self.rows.clone())

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        distance = (flat[:, None] - self.rows[None]).pow(2).sum(-1)
        index = distance.argmin(1)
        picked = self.rows[index].view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        if self.training:
            self.follow(flat.detach(), index)
        commitment = F.mse_loss(z, picked.detach())
        return z + (picked - z).detach(), index.view(z.shape[0], -1), commitment

    @torch.no_grad()
    def follow(self, flat, index):
        hot = F.one_hot(index, self.count).float()
        self.uses.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
        self.sums.mul_(self.decay).add_(hot.t() @ flat, alpha=1 - self.decay)
        total = self.uses.sum()
        smooth = (self.uses + self.eps) / (total + self.count * self.eps) * total
        self.rows.copy_(self.sums / smooth[:, None])

    @torch.no_grad()
    def revive(self, flat, least=0.5):
        dead = self.uses < least
        born = flat[torch.randperm(len(flat))[: int(dead.sum())]]
        self.rows[dead] = born
        self.sums[dead] = born
        self.uses[dead] = 1.0
        return int(dead.sum())


class Coder(nn.Module):
    def __init__(self, dim=8, count=24):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, dim, 1))
        self.book = Codebook(count, dim)
        self.up = nn.Sequential(nn.ConvTranspose2d(dim, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 1, 4, 2, 1))

    def forward(self, x):
        q, index, commitment = self.book(self.down(x))
        return self.up(q), index, commitment


class Prior(nn.Module):
    """The next code from those before. What goes in and what comes out share their table."""

    def __init__(self, count, width=32):
        super().__init__()
        self.table = nn.Embedding(count + 1, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, count + 1, bias=False)
        self.out.weight = self.table.weight

    def forward(self, codes):
        begin = torch.full_like(codes[:, :1], self.table.num_embeddings - 1)
        hidden, _ = self.rnn(self.table(torch.cat([begin, codes[:, :-1]], 1)))
        return self.out(hidden)


def perplexity(counts):
    p = counts / counts.sum()
    return torch.exp(-(p * (p + 1e-10).log()).sum()).item()


def train_coder(coder, loader, held, epochs=6, beta=0.25):
    optimizer = torch.optim.Adam(coder.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.85)
    step = 0
    for epoch in range(epochs):
        coder.train()
        restored = committed = 0.0
        counts = torch.zeros(coder.book.count)
        for x in loader:
            out, index, commitment = coder(x)
            error = F.mse_loss(out, x)
            (error + beta * commitment).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 10 == 0 and step < 60:
                with torch.no_grad():
                    z = coder.down(x)
                coder.book.revive(z.permute(0, 2, 3, 1).flatten(0, 2))
            counts += torch.bincount(index.flatten(), minlength=coder.book.count)
            restored += error.item()
            committed += commitment.item()
        scheduler.step()
        coder.eval()
        with torch.no_grad():
            wrong = sum(F.mse_loss(coder(x)[0], x, reduction="sum").item() for x in held) / (len(held.dataset) * 144)
        print(f"epoch {epoch}: error {restored / len(loader):.5f} commitment {committed / len(loader):.5f} codes {perplexity(counts):.2f} held out {wrong:.5f}")
    torch.save(coder.state_dict(), "coder.pt")


def train_prior(coder, loader, epochs=4):
    coder.eval()
    prior = Prior(coder.book.count)
    optimizer = torch.optim.AdamW(prior.parameters(), lr=1e-2, weight_decay=0.01)
    for epoch in range(epochs):
        total = 0.0
        for x in loader:
            with torch.no_grad():
                codes = coder(x)[1]
            loss = F.cross_entropy(prior(codes).flatten(0, 1), codes.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(prior.parameters(), 0.05)
            optimizer.step()
            total += loss.item() * len(x)
        print(f"prior {epoch}: {total / len(loader.dataset):.4f} nats a code")
    torch.save(prior.state_dict(), "prior.pt")


if __name__ == "__main__":
    torch.manual_seed(23)
    loader = DataLoader(Blobs(500, 1), batch_size=32, shuffle=True)
    held = DataLoader(Blobs(150, 2, jitter=False), batch_size=60)
    coder = Coder()
    train_coder(coder, loader, held)
    train_prior(coder, loader)
