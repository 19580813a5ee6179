"""A learned simulator of a swarm: the net guesses accelerations from a few noisy places, and is rolled out to be judged."""
import math

import torch
import torch.nn as nn

BODIES, PAST, FRAMES, RUNS = 8, 4, 50, 40
HIDDEN, BATCH, EPOCHS, LR = 32, 32, 6, 2e-3
STEP_NOISE, ROLL = 0.004, 20
FORCE = 0.02


def swarm(runs, seed):
    """Places of bodies (runs, frames, bodies, 2): all fall to the middle, and those that are near push each other off."""
    g = torch.Generator().manual_seed(seed)
    at = torch.randn(runs, BODIES, 2, generator=g)
    v = 0.05 * torch.randn(runs, BODIES, 2, generator=g)
    frames = []
    for _ in range(FRAMES):
        between = at[:, :, None] - at[:, None]
        near = torch.exp(-between.square().sum(-1, keepdim=True) / 0.5)
        v = 0.99 * v + FORCE * ((between * near).sum(2) * 2 - 0.6 * at) + 0.004 * torch.tensor([1.0, 0.0])
        at = at + v
        frames.append(at)
    return torch.stack(frames, 1)


def mlp(into, out):
    return nn.Sequential(nn.Linear(into, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, out))


class Simulator(nn.Module):
    """Messages between all pairs of bodies."""

    def __init__(self):
        super().__init__()
        self.body = mlp(2 * PAST, HIDDEN)
        self.message = mlp(2 * HIDDEN + 3, HIDDEN)
        self.update = mlp(2 * HIDDEN, 2)

    def forward(self, past):
        """past: (batch, PAST, bodies, 2); the acceleration of each body, in units of its usual size."""
        last = past[:, -1]
        speeds = past.diff(dim=1).transpose(1, 2).flatten(2) / 0.05
        h = self.body(torch.cat([speeds, last], -1))
        between = last[:, :, None] - last[:, None]
        far = between.square().sum(-1, keepdim=True)
        n = h.shape[1]
        pairs = torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), between, far], -1)
        heard = self.message(pairs).mean(2)
        return self.update(torch.cat([h, heard], -1))


def turned(places, angles):
    """Each sample by its angle about the middle."""
    c, s = angles.cos(), angles.sin()
    turn = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    return torch.einsum("bij,btnj->btni", turn, places)


def walk(shape):
    """Noise of places that adds up from frame to frame."""
    return STEP_NOISE * torch.randn(shape).cumsum(1)


def batches(data, starts):
    """Windows of PAST places and the one that follows, in random order."""
    order = torch.randperm(len(starts))
    for first in range(0, len(order) - BATCH + 1, BATCH):
        picked = starts[order[first : first + BATCH]]
        frames = picked[:, 1:] + torch.arange(PAST + 1)
        windows = data[picked[:, :1], frames]
        yield prepared(windows)


def prepared(windows):
    noise = walk((len(windows), PAST, BODIES, 2))
    angles = 2 * math.pi * torch.rand(len(windows))
    windows = turned(windows, angles)
    past = windows[:, :PAST] + noise
    speed = past[:, -1] - past[:, -2]
    target = (windows[:, -1] + noise[:, -1]) - past[:, -1] - speed
    return past, target / FORCE


@torch.no_grad()
def rollout(model, data):
    """Mean squared error of places when the net follows itself."""
    model.eval()
    past = data[:, :PAST].clone()
    errors = []
    for t in range(PAST, PAST + ROLL):
        speed = past[:, -1] - past[:, -2]
        new = past[:, -1] + speed + FORCE * model(past)
        errors.append((new - data[:, t]).square().mean().item())
        past = torch.cat([past[:, 1:], new[:, None]], 1)
    return sum(errors) / len(errors), errors[-1]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(17)
    train, val = swarm(RUNS, 1), swarm(16, 2)
    starts = torch.cartesian_prod(torch.arange(RUNS), torch.arange(FRAMES - PAST))
    model = Simulator()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    steps = EPOCHS * (len(starts) // BATCH)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2 * LR, total_steps=steps)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        losses = []
        for past, target in batches(train, starts):
            loss = (model(past) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        mean, last = rollout(model, val)
        print(f"epoch {epoch}/{EPOCHS} loss {sum(losses) / len(losses):.5f} rollout {mean:.6f} at the end {last:.6f}")
    torch.save(model.state_dict(), "swarm.pt")


if __name__ == "__main__":
    main()
