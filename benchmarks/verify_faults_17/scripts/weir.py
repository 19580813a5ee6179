"""Double deep Q on a small chain of weirs: replay, coins for every boat, target net, loss of Huber."""
import torch
import torch.nn.functional as F
from torch import nn

BOATS, LONG, CAP, BATCH, STEPS = 8, 12, 2000, 64, 260


class Weirs:
    def __init__(self, n):
        self.n, self.at, self.t = n, torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long)

    def see(self):
        return torch.cat([F.one_hot(self.at, LONG).float(), self.t[:, None] / 30], 1)

    def step(self, a):
        slip = torch.rand(self.n) < 0.1
        move = torch.where(slip, -1, 2 * a - 1)
        self.at = (self.at + move).clamp(0, LONG - 1)
        self.t = self.t + 1
        done = self.at == LONG - 1
        reward = torch.where(done, 1.0, torch.where((a == 0) & (self.at == 0), 0.05, -0.01))
        over = done | (self.t >= 30)
        after = self.see()
        self.at = torch.where(over, 0, self.at)
        self.t = torch.where(over, 0, self.t)
        return after, reward, done.float()


def net():
    return nn.Sequential(nn.Linear(LONG + 1, 48), nn.ReLU(), nn.Linear(48, 2))


def main():
    torch.manual_seed(4)
    env, q, slow = Weirs(BOATS), net(), net()
    slow.load_state_dict(q.state_dict())
    opt = torch.optim.AdamW(q.parameters(), lr=2e-3)
    store = [torch.zeros(CAP, LONG + 1), torch.zeros(CAP, dtype=torch.long), torch.zeros(CAP), torch.zeros(CAP, LONG + 1), torch.zeros(CAP)]
    place, full = 0, 0
    gained = lost = 0.0
    for step in range(STEPS):
        eps = max(0.1, 1 - step / 150)
        obs = env.see()
        with torch.no_grad():
            act = q(obs).argmax(1)
        coin = torch.rand(BOATS) < eps
        act = torch.where(coin, torch.randint(0, 2, (BOATS,)), act)
        after, reward, done = env.step(act)
        rows = (torch.arange(BOATS) + place) % CAP
        for kept, new in zip(store, (obs, act, reward, after, done)):
            kept[rows] = new
        place, full = (place + BOATS) % CAP, min(CAP, full + BOATS)
        gained += reward.sum().item()
        if full < 256:
            continue
        idx = torch.randint(0, full, (BATCH,))
        s, a, r, s2, d = (kept[idx] for kept in store)
        with torch.no_grad():
            nxt = q(s2).argmax(1, keepdim=True)
            goal = r + 0.97 * (1 - d) * slow(s2).gather(1, nxt).squeeze(1)
        guess = q(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(guess, goal)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 5.0)
        opt.step()
        lost += loss.item()
        if step % 20 == 0:
            slow.load_state_dict(q.state_dict())
        if step % 40 == 39:
            print(f"step {step + 1} gained {gained / 40 / BOATS:.4f} loss {lost / 40:.5f}")
            gained = lost = 0.0
    torch.save(q.state_dict(), "weir.pt")


if __name__ == "__main__":
    main()
