# Double dueling DQN with n-step returns, prioritised replay and noisy layers
import argparse
import collections
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from battery_env import BatteryHouses
from replay import PrioritizedReplay

parser = argparse.ArgumentParser()
parser.add_argument("--houses", type=int, default=32)
parser.add_argument("--window", type=int, default=48)
parser.add_argument("--steps", type=int, default=100000, help="environment steps of all houses together count as one")
parser.add_argument("--learn-start", type=int, default=1000)
parser.add_argument("--updates", type=int, default=2, help="gradient steps per environment step")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--capacity", type=int, default=2 ** 19)
parser.add_argument("--n-step", type=int, default=3)
parser.add_argument("--gamma", type=float, default=0.995)
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--lr", type=float, default=2.5e-4)
parser.add_argument("--tau", type=float, default=0.005)
parser.add_argument("--log-every", type=int, default=500)
parser.add_argument("--eval-every", type=int, default=5000)
parser.add_argument("--eval-houses", type=int, default=64)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--seed", type=int, default=3)
parser.add_argument("--out", default="dqn_out")
args = parser.parse_args()

if args.threads:
    torch.set_num_threads(args.threads)
random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class NoisyLinear(nn.Module):
    """Factorised Gaussian noise (Fortunato et al.)"""

    def __init__(self, n_in, n_out, sigma=0.5):
        super().__init__()
        self.n_in, self.n_out = n_in, n_out
        bound = 1 / math.sqrt(n_in)
        self.mu_w = nn.Parameter(torch.empty(n_out, n_in).uniform_(-bound, bound))
        self.mu_b = nn.Parameter(torch.empty(n_out).uniform_(-bound, bound))
        self.sigma_w = nn.Parameter(torch.full((n_out, n_in), sigma * bound))
        self.sigma_b = nn.Parameter(torch.full((n_out,), sigma * bound))
        self.register_buffer("eps_in", torch.zeros(n_in))
        self.register_buffer("eps_out", torch.zeros(n_out))

    @staticmethod
    def f(x):
        return x.sign() * x.abs().sqrt()

    def resample(self):
        self.eps_in.copy_(self.f(torch.randn(self.n_in)))
        self.eps_out.copy_(self.f(torch.randn(self.n_out)))

    def forward(self, x):
        if not self.training:
            return F.linear(x, self.mu_w, self.mu_b)
        w = self.mu_w + self.sigma_w * torch.outer(self.eps_out, self.eps_in)
        return F.linear(x, w, self.mu_b + self.sigma_b * self.eps_out)


class DuelingNet(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.adv = nn.Sequential(NoisyLinear(hidden, hidden), nn.ReLU(), NoisyLinear(hidden, n_actions))
        self.val = nn.Sequential(NoisyLinear(hidden, hidden), nn.ReLU(), NoisyLinear(hidden, 1))

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.val(h) + a - a.mean(1, keepdim=True)

    def resample(self):
        for m in self.modules():
            if isinstance(m, NoisyLinear):
                m.resample()


def soft_update(target, source, tau):
    for tp, sp in zip(target.parameters(), source.parameters()):
        tp.data.copy_(tau * sp.data + (1.0 - tau) * tp.data)


def act(net, obs):
    net.resample()
    with torch.no_grad():
        q = net(torch.from_numpy(obs).to(device))
    return q.argmax(1).cpu().numpy()


def learn(online, target, optimizer, memory, beta):
    idx, items, w = memory.sample(args.batch, beta)
    s, a, r, s2, d = zip(*items)
    s = torch.tensor(np.array(s)).to(device)
    a = torch.tensor(a).to(device)
    r = torch.tensor(r).to(device)
    s2 = torch.tensor(np.array(s2)).to(device)
    d = torch.tensor(d, dtype=torch.float32).to(device)
    w = torch.from_numpy(w).to(device)

    online.resample()
    target.resample()
    q = online(s).gather(1, a.unsqueeze(1)).squeeze(1)
    best = online(s2).argmax(1, keepdim=True)
    q2 = target(s2).gather(1, best).squeeze(1)
    y = r + args.gamma ** args.n_step * (1 - d) * q2.detach()
    err = y - q
    loss = (w * F.smooth_l1_loss(q, y, reduction="none")).mean()

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    soft_update(target, online, args.tau)
    memory.update(idx, err.detach().cpu().numpy())
    return loss.item(), q.mean().item()


def evaluate(online):
    env = BatteryHouses(args.eval_houses, args.window, seed=1000)
    online.eval()
    obs, total = env.reset(), np.zeros(args.eval_houses)
    for _ in range(env.horizon):
        q = online(torch.from_numpy(obs).to(device))
        obs, r, _ = env.step(q.argmax(1).cpu().numpy())
        total += r
    online.train()
    return total.mean() / 2          # per day


def idle_cost():
    env = BatteryHouses(args.eval_houses, args.window, seed=1000)
    env.reset()
    return sum(env.step(np.zeros(args.eval_houses, np.int64))[1] for _ in range(env.horizon)).mean() / 2


def main():
    os.makedirs(args.out, exist_ok=True)
    env = BatteryHouses(args.houses, args.window, seed=args.seed)
    online = DuelingNet(env.obs_dim, env.n_actions, args.hidden).to(device)
    target = DuelingNet(env.obs_dim, env.n_actions, args.hidden).to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=args.lr, eps=1.5e-4)
    memory = PrioritizedReplay(args.capacity)
    pending = collections.deque(maxlen=args.n_step)
    print("idle battery: %.3f per day" % idle_cost())

    obs = env.reset()
    losses, qs, rewards, best, t0 = [], [], collections.deque(maxlen=2000), -1e9, time.time()
    for step in range(1, args.steps + 1):
        action = act(online, obs)
        obs2, reward, done = env.step(action)
        rewards.append(reward.mean())
        pending.append((obs, action, reward))
        if len(pending) == args.n_step:
            ret = sum(args.gamma ** k * pending[k][2] for k in range(args.n_step))
            o, a, _ = pending[0]
            for i in range(args.houses):
                memory.push(o[i], a[i], ret[i], obs2[i], done[i])
        obs = obs2
        if done.any():                      # all houses have the same age
            obs = env.reset()
            pending.clear()

        if step >= args.learn_start:
            beta = min(1.0, 0.4 + 0.6 * step / args.steps)
            for _ in range(args.updates):
                l, q = learn(online, target, optimizer, memory, beta)
                losses.append(l)
                qs.append(q)

        if step % args.log_every == 0 and losses:
            print("step %6d  loss %.5f  q %.3f  reward/day %.3f  %.0f steps/s"
                  % (step, np.mean(losses[-1000:]), np.mean(qs[-1000:]), 96 * np.mean(rewards), step / (time.time() - t0)))
        if step % args.eval_every == 0 or step == args.steps:
            score = evaluate(online)
            print("step %6d  evaluation %.3f per day" % (step, score))
            if score > best:
                best = score
                torch.save(online.state_dict(), os.path.join(args.out, "policy.pt"))


if __name__ == "__main__":
    main()
