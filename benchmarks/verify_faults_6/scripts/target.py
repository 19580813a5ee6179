"""Values of states by temporal differences: rows drawn from memory, a target network that is copied every ten steps."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(23)


def memory(count):
    generator = torch.Generator().manual_seed(3)
    state = torch.randn(count, 6, generator=generator)
    action = torch.randint(0, 3, (count,), generator=generator)
    after = 0.8 * state + 0.3 * torch.randn(count, 6, generator=generator)
    reward = state[:, 0] - (action - 1) * state[:, 1] + 2
    done = torch.rand(count, generator=generator) < 0.1
    return state, action, reward, after, done.float()


def main():
    state, action, reward, after, done = memory(512)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    target = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    total = 0.0
    for step in range(120):
        rows = torch.randint(0, len(state), (32,))
        with torch.no_grad():
            best = model(after[rows]).argmax(1, keepdim=True)
            wanted = reward[rows] + 0.9 * (1 - done[rows]) * target(after[rows]).gather(1, best)[:, 0]
        found = model(state[rows]).gather(1, action[rows][:, None])[:, 0]
        loss = F.smooth_l1_loss(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        total += loss.item()
        if (step + 1) % 10 == 0:
            target.load_state_dict(model.state_dict())
        if (step + 1) % 40 == 0:
            print(f"step {step + 1} loss {total / 40:.4f}")
            total = 0.0
    torch.save({"model": model.state_dict(), "target": target.state_dict()}, "target.pt")


main()
