"""A field of colour and density in a box is learned from the rays of some cameras, first coarsely, then where it counts, and seen from other places."""
import math

import torch
from torch import nn

NEAR, FAR = 1.0, 4.0
MIDDLES = torch.tensor([[0.0, 0.0, 0.0], [0.6, 0.3, -0.2], [-0.5, 0.2, 0.4]])
SIZES = torch.tensor([0.35, 0.25, 0.2])
COLOURS = torch.tensor([[0.9, 0.2, 0.1], [0.1, 0.8, 0.3], [0.2, 0.3, 0.9]])


def truth(at):
    near = torch.exp(-((at[..., None, :] - MIDDLES) ** 2).sum(-1) / (2 * SIZES**2))
    return 8 * near.sum(-1), (near[..., None] * COLOURS).sum(-2) / (near.sum(-1, keepdim=True) + 1e-6)


def camera(turn, height, side=22):
    """Rays of a picture from around the box; they are not of length one."""
    place = torch.tensor([2.5 * math.cos(turn), height, 2.5 * math.sin(turn)])
    ahead = -place / place.norm()
    right = torch.linalg.cross(ahead, torch.tensor([0.0, 1.0, 0.0]))
    right = right / right.norm()
    up = torch.linalg.cross(right, ahead)
    v, u = torch.meshgrid(torch.linspace(0.5, -0.5, side), torch.linspace(-0.5, 0.5, side), indexing="ij")
    rays = ahead + u.reshape(-1, 1) * right + v.reshape(-1, 1) * up
    return place.expand_as(rays), rays


def composite(density, colour, depth, rays):
    """What is seen along the rays before a white wall, and the weight of each place."""
    gaps = torch.cat([depth[:, 1:] - depth[:, :-1], FAR - depth[:, -1:]], 1) * rays.norm(dim=-1, keepdim=True)
    alpha = 1 - torch.exp(-density * gaps)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    weight = alpha * through
    seen = (weight[..., None] * colour).sum(1) + (1 - weight.sum(1, keepdim=True))
    return seen, weight


def shots(turns):
    places, rays, colours = [], [], []
    for k, turn in enumerate(turns):
        o, d = camera(turn, 0.6 * math.sin(2.1 * k))
        depth = torch.linspace(NEAR, FAR, 97)[:-1].expand(len(d), -1)
        density, colour = truth(o[:, None] + depth[..., None] * d[:, None])
        places.append(o)
        rays.append(d)
        colours.append(composite(density, colour, depth, d)[0])
    return torch.cat(places), torch.cat(rays), torch.cat(colours)


class Field(nn.Module):
    def __init__(self, width=48, waves=4):
        super().__init__()
        self.waves = waves
        self.body = nn.Sequential(nn.Linear(3 + 6 * waves, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, at):
        waves = 2.0 ** torch.arange(self.waves, device=at.device)
        turned = (at[..., None] * waves).flatten(-2)
        h = self.body(torch.cat([at, turned.sin(), turned.cos()], -1))
        return nn.functional.softplus(self.density(h).squeeze(-1)), self.colour(h).sigmoid()


def coarse(count, places, jitter):
    edges = torch.linspace(NEAR, FAR, count + 1)
    low, high = edges[:-1], edges[1:]
    share = torch.rand(places, count) if jitter else torch.full((places, count), 0.5)
    return low + (high - low) * share


def finer(depth, weight, count, jitter):
    """Depths drawn where the weight is."""
    middle = 0.5 * (depth[:, 1:] + depth[:, :-1])
    share = weight[:, 1:-1] + 1e-4
    share = share / share.sum(1, keepdim=True)
    ladder = torch.cat([torch.zeros_like(share[:, :1]), share.cumsum(1)], 1)
    draw = torch.rand(len(depth), count) if jitter else torch.linspace(0.02, 0.98, count).expand(len(depth), count)
    above = torch.searchsorted(ladder.detach(), draw.contiguous(), right=True).clamp(1, ladder.shape[1] - 1)
    low, high = ladder.gather(1, above - 1), ladder.gather(1, above)
    left, right = middle.gather(1, above - 1), middle.gather(1, above)
    return left + (draw - low) / (high - low).clamp(min=1e-5) * (right - left)


def render(field, places, rays, jitter, few=18, more=18):
    depth = coarse(few, len(rays), jitter)
    density, colour = field(places[:, None] + depth[..., None] * rays[:, None])
    rough, weight = composite(density, colour, depth, rays)
    new = finer(depth, weight.detach(), more, jitter)
    depth = torch.cat([depth, new], 1).sort(1).values
    density, colour = field(places[:, None] + depth[..., None] * rays[:, None])
    fine, _ = composite(density, colour, depth, rays)
    return rough, fine


@torch.no_grad()
def judge(field, views):
    """Mean square over all, of which the ratio of peak and noise."""
    places, rays, colours = views
    total = 0.0
    for at in torch.arange(len(rays)).split(300):
        _, fine = render(field, places[at], rays[at], jitter=False)
        total += ((fine - colours[at]) ** 2).sum().item()
    return -10 * math.log10(total / colours.numel())


def main():
    torch.manual_seed(13)
    places, rays, colours = shots([k * math.pi / 3 for k in range(6)])
    views = shots([0.4, 2.0, 4.1])
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=6e-3)
    batch, epochs = 120, 11
    steps = epochs * math.ceil(len(rays) / batch)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.1 ** (k / steps))
    best = 0.0
    for epoch in range(epochs):
        total, rough_total = 0.0, 0.0
        order = torch.randperm(len(rays))
        for at in order.split(batch):
            rough, fine = render(field, places[at], rays[at], jitter=True)
            first, second = ((rough - colours[at]) ** 2).mean(), ((fine - colours[at]) ** 2).mean()
            loss = first + second
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += second.item() * len(at)
            rough_total += first.item() * len(at)
        clear = judge(field, views)
        print(f"epoch {epoch + 1} rough {rough_total / len(rays):.5f} fine {total / len(rays):.5f} clear {clear:.3f} lr {scheduler.get_last_lr()[0]:.5f}")
        if clear > best:
            best = clear
            torch.save({"field": field.state_dict(), "epoch": epoch}, "best.pt")
    torch.save({"field": field.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
    print(f"best {best:.3f}")


if __name__ == "__main__":
    main()
