"""PPO for the docking capsule. One file + env, no gym.

  python ppo.py --total 3000000
"""
import argparse
import os
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal

from dock import Dock, VecDock


def layer(i, o, gain=np.sqrt(2)):
  l = nn.Linear(i, o)
  nn.init.orthogonal_(l.weight, gain)
  nn.init.zeros_(l.bias)
  return l


class Agent(nn.Module):
  def __init__(self, obs, act, hidden):
    super().__init__()
    self.pi = nn.Sequential(layer(obs, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, act, 0.01))
    self.vf = nn.Sequential(layer(obs, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, 1, 1.0))
    self.log_std = nn.Parameter(torch.full((act,), -0.5))

  def dist(self, obs):
    return Normal(self.pi(obs), self.log_std.exp())

  def value(self, obs):
    return self.vf(obs).squeeze(-1)

  def act(self, obs):
    d = self.dist(obs)
    a = d.sample()
    return a, d.log_prob(a).sum(-1), self.value(obs)

  def evaluate(self, obs, act):
    d = self.dist(obs)
    return d.log_prob(act).sum(-1), d.entropy().sum(-1), self.value(obs)


class RunningNorm:
  """Welford over batches, lives with the environments on the host."""

  def __init__(self, n):
    self.mean, self.var, self.count = np.zeros(n), np.ones(n), 1e-4

  def update(self, x):
    m, v, c = x.mean(0), x.var(0), x.shape[0]
    delta, tot = m - self.mean, self.count + c
    self.mean = self.mean + delta * c / tot
    self.var = (self.var * self.count + v * c + delta ** 2 * self.count * c / tot) / tot
    self.count = tot

  def __call__(self, x):
    return np.clip((np.asarray(x) - self.mean) / np.sqrt(self.var + 1e-8), -10, 10)


class PPO:
  def __init__(self, args):
    self.args = args
    self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    torch.set_num_threads(1)  # rollouts are faster that way
    torch.autograd.set_detect_anomaly(True)
    self.envs = VecDock(args.n_envs, args.seed)
    self.norm = RunningNorm(Dock.OBS)
    self.agent = Agent(Dock.OBS, Dock.ACT, args.hidden).to(self.device)
    self.opt = torch.optim.Adam(self.agent.parameters(), lr=args.lr, eps=1e-5)
    self.obs = self.envs.reset()
    self.recent = deque(maxlen=100)
    os.makedirs(args.out, exist_ok=True)
    self.log = os.path.join(args.out, "episodes.csv")

  def tensor(self, x):
    return torch.tensor(np.array(x), dtype=torch.float32).to(self.device)

  def rollout(self):
    a = self.args
    buf = {k: [] for k in ("obs", "act", "logp", "rew", "val", "term", "boot")}
    for t in range(a.n_steps):
      raw = np.array(self.obs)
      self.norm.update(raw)
      obs = self.tensor(self.norm(raw))
      act, logp, val = self.agent.act(obs)
      self.obs, rew, term, trunc, finals, info = self.envs.step(act.cpu().numpy())
      # time limit: the value of the state behind it belongs to the reward
      boot = np.zeros(a.n_envs, dtype=np.float32)
      cut = np.flatnonzero(trunc)
      if len(cut):
        with torch.no_grad():
          boot[cut] = self.agent.value(self.tensor(self.norm([finals[i] for i in cut]))).cpu().numpy()
      buf["obs"].append(obs)
      buf["act"].append(act)
      buf["logp"].append(logp.detach())
      buf["val"].append(val.detach())
      buf["rew"].append(self.tensor(rew))
      buf["term"].append(self.tensor(np.logical_or(term, trunc)))
      buf["boot"].append(self.tensor(boot))
      for ret, length, docked in info:
        self.recent.append((ret, length, docked))
        with open(self.log, "a") as f:
          f.write("%.3f,%d,%d\n" % (ret, length, docked))
    with torch.no_grad():
      last = self.agent.value(self.tensor(self.norm(self.obs)))
    return {k: torch.stack(v) for k, v in buf.items()}, last

  def gae(self, buf, last):
    a = self.args
    adv = torch.zeros_like(buf["rew"])
    run = torch.zeros_like(last)
    for t in reversed(range(a.n_steps)):
      nxt = last if t == a.n_steps - 1 else buf["val"][t + 1]
      live = 1 - buf["term"][t]
      delta = buf["rew"][t] + a.gamma * (nxt * live + buf["boot"][t]) - buf["val"][t]
      run = delta + a.gamma * a.lam * live * run
      adv[t] = run
    return adv, adv + buf["val"]

  def update(self, buf, adv, ret):
    a = self.args
    n = a.n_steps * a.n_envs
    flat = {k: v.reshape(n, *v.shape[2:]) for k, v in buf.items()}
    adv, ret = adv.reshape(n), ret.reshape(n)
    stats, stop = [], False
    for epoch in range(a.epochs):
      order = np.random.permutation(n)
      for s in range(0, n, a.minibatch):
        mb = order[s:s + a.minibatch]
        logp, ent, val = self.agent.evaluate(flat["obs"][mb], flat["act"][mb])
        ratio = (logp - flat["logp"][mb]).exp()
        kl = ((ratio - 1) - (logp - flat["logp"][mb])).mean()
        if kl.item() > 1.5 * a.target_kl:
          stop = True
          break
        A = adv[mb]
        A = (A - A.mean()) / (A.std() + 1e-8)
        pg = torch.max(-A * ratio, -A * ratio.clamp(1 - a.clip, 1 + a.clip)).mean()
        v_clip = flat["val"][mb] + (val - flat["val"][mb]).clamp(-a.clip, a.clip)
        vl = 0.5 * torch.max((val - ret[mb]) ** 2, (v_clip - ret[mb]) ** 2).mean()
        loss = pg + a.vf_coef * vl - a.ent_coef * ent.mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), a.max_grad)
        self.opt.step()
        stats.append([pg.item(), vl.item(), ent.mean().item(), kl.item(),
                      ((ratio - 1).abs() > a.clip).float().mean().item()])
      if stop:
        break
    return np.mean(stats, 0) if stats else np.zeros(5)

  def test(self, episodes=10):
    env, total, hits = Dock(10 ** 6), 0.0, 0
    for _ in range(episodes):
      o, done = env.reset(), False
      while not done:
        mu = self.agent.pi(self.tensor(self.norm([o])))[0]
        o, r, te, tr, docked = env.step(mu.detach().cpu().numpy())
        total += r
        done = te or tr
      hits += docked
    return total / episodes, hits / episodes

  def train(self):
    a = self.args
    per = a.n_steps * a.n_envs
    iters = a.total // per
    for it in range(iters):
      for g in self.opt.param_groups:
        g["lr"] = a.lr * (1 - it / iters)
      t0 = time.time()
      buf, last = self.rollout()
      adv, ret = self.gae(buf, last)
      pg, vl, ent, kl, frac = self.update(buf, adv, ret)
      ev = 1 - np.var((ret - buf["val"]).cpu().numpy()) / (np.var(ret.cpu().numpy()) + 1e-8)
      r = np.array(self.recent) if self.recent else np.zeros((1, 3))
      print("it %4d steps %8d return %7.2f docked %.2f len %5.1f | pg %.4f vf %.4f ent %.3f kl %.4f clip %.2f ev %.2f | %.0f fps"
            % (it, (it + 1) * per, r[:, 0].mean(), r[:, 2].mean(), r[:, 1].mean(), pg, vl, ent, kl, frac, ev, per / (time.time() - t0)))
      if (it + 1) % a.test_every == 0:
        print("  test: return %.2f docked %.2f" % self.test(a.test_episodes))
        torch.save({"agent": self.agent.state_dict(), "opt": self.opt.state_dict(), "it": it,
                    "norm": (self.norm.mean, self.norm.var, self.norm.count)}, os.path.join(a.out, "ppo.pt"))


if __name__ == "__main__":
  p = argparse.ArgumentParser()
  p.add_argument("--total", type=int, default=3000000)
  p.add_argument("--n_envs", type=int, default=64)
  p.add_argument("--n_steps", type=int, default=256)
  p.add_argument("--minibatch", type=int, default=1024)
  p.add_argument("--epochs", type=int, default=10)
  p.add_argument("--hidden", type=int, default=128)
  p.add_argument("--lr", type=float, default=3e-4)
  p.add_argument("--gamma", type=float, default=0.99)
  p.add_argument("--lam", type=float, default=0.95)
  p.add_argument("--clip", type=float, default=0.2)
  p.add_argument("--vf_coef", type=float, default=0.5)
  p.add_argument("--ent_coef", type=float, default=0.001)
  p.add_argument("--max_grad", type=float, default=0.5)
  p.add_argument("--target_kl", type=float, default=0.03)
  p.add_argument("--test_every", type=int, default=10)
  p.add_argument("--test_episodes", type=int, default=10)
  p.add_argument("--seed", type=int, default=1)
  p.add_argument("--out", default="out")
  PPO(p.parse_args()).train()
