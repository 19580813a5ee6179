"""Advantage actor-critic (GAE) on several copies of a cart-pole, with a time limit."""
import argparse
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class CartPole:
    """Classic cart-pole; `step` returns obs, reward, terminated, truncated."""
    G, MC, MP, L, F, DT = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, rng, limit=100):
        self.rng, self.limit = rng, limit

    def reset(self):
        self.s = self.rng.uniform(-0.08, 0.08, size=4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.s
        f = self.F if action == 1 else -self.F
        c, s = math.cos(th), math.sin(th)
        m = self.MC + self.MP
        tmp = (f + self.MP * self.L * w * w * s) / m
        acc_th = (self.G * s - c * tmp) / (self.L * (4.0 / 3.0 - self.MP * c * c / m))
        acc_x = tmp - self.MP * self.L * acc_th * c / m
        self.s = np.array([x + self.DT * v, v + self.DT * acc_x, th + self.DT * w, w + self.DT * acc_th])
        self.t += 1
        terminated = bool(abs(self.s[0]) > 1.2 or abs(self.s[2]) > 0.2095)
        truncated = self.t >= self.limit and not terminated
        return self.s.astype(np.float32), 1.0, terminated, truncated


class VecEnv:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.envs = [CartPole(rng) for _ in range(n)]
        self.ret = np.zeros(n)
        self.finished = []

    def reset(self):
        return torch.from_numpy(np.stack([e.reset() for e in self.envs]))

    def step(self, actions):
        """Returns obs (after auto-reset), scaled reward, terminated, truncated, obs before the reset."""
        obs, rew, term, trunc, last = [], [], [], [], []
        for k, (e, a) in enumerate(zip(self.envs, actions.tolist())):
            o, r, d, tr = e.step(a)
            self.ret[k] += r
            last.append(o)
            if d or tr:
                self.finished.append(self.ret[k])
                self.ret[k] = 0.0
                o = e.reset()
            obs.append(o); rew.append(0.1 * r); term.append(d); trunc.append(tr)
        return (torch.from_numpy(np.stack(obs)), torch.tensor(rew), torch.tensor(term),
                torch.tensor(trunc), torch.from_numpy(np.stack(last)))


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, 2)
        self.v = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=220)
    ap.add_argument("--envs", type=int, default=16)
    ap.add_argument("--steps", type=int, default=16)
    ap.add_argument("--gamma", type=float, default=0.97)
    ap.add_argument("--lam", type=float, default=0.95)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--ent", type=float, default=0.01)
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--out", default=".")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr, eps=1e-5)
    env = VecEnv(args.envs, args.seed)
    obs = env.reset()
    for update in range(args.updates):
        for g in opt.param_groups:
            g["lr"] = args.lr * (1 - update / args.updates)
        logps, ents, values, nexts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            with torch.no_grad():
                nexts.append(net(last)[1])
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc)
        adv, gae = [None] * args.steps, torch.zeros(args.envs)
        for t in reversed(range(args.steps)):
            v = values[t].detach()
            delta = rewards[t] + args.gamma * nexts[t] * (~terms[t]) - v
            gae = delta + args.gamma * args.lam * gae * (~(terms[t] | truncs[t]))
            adv[t] = gae
        adv, values, logps = torch.stack(adv), torch.stack(values), torch.stack(logps)
        returns = adv + values.detach()
        norm = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = -(norm * logps).mean()
        vf = 0.5 * (values - returns).pow(2).mean()
        entropy = torch.stack(ents).mean()
        loss = pg + 0.5 * vf - args.ent * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        if update % 20 == 19:
            ret = np.mean(env.finished[-50:]) if env.finished else float("nan")
            print(f"update {update + 1} return {ret:.2f} value loss {vf.item():.4f} "
                  f"entropy {entropy.item():.4f}", flush=True)

    test = VecEnv(20, 999)
    obs = test.reset()
    with torch.no_grad():
        while len(test.finished) < 40:
            obs = test.step(net(obs)[0].argmax(-1))[0]
    print(f"greedy return {np.mean(test.finished):.2f}")
    os.makedirs(args.out, exist_ok=True)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, os.path.join(args.out, "a2c.pt"))


if __name__ == "__main__":
    main()
