"""PPO on a vectorised 'catch the fruit' game.  Everything in one file, no gym.

The env is plain numpy: `obs` is ONE buffer that step() overwrites in place (saves an allocation,
and it made the profiler happy in 2019).
"""
import argparse
import collections
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class VecCatch:
    """n boards of h x w; a fruit falls (and drifts), a paddle of width 3 moves at the bottom."""

    def __init__(self, n, h=10, w=9, seed=0):
        self.n, self.h, self.w = n, h, w
        self.rng = np.random.RandomState(seed)
        self.obs = np.zeros((n, 2, h, w), dtype=np.float32)
        self.fy = np.zeros(n, dtype=np.int64)
        self.fx = self.rng.randint(0, w, n)
        self.px = np.full(n, w // 2)
        self.ep_ret = np.zeros(n)

    def _render(self):
        self.obs[:] = 0
        idx = np.arange(self.n)
        self.obs[idx, 0, self.fy, self.fx] = 1
        for d in (-1, 0, 1):
            self.obs[idx, 1, self.h - 1, np.clip(self.px + d, 0, self.w - 1)] = 1
        return self.obs

    def reset(self):
        return self._render()

    def step(self, a):
        self.px = np.clip(self.px + (a - 1), 0, self.w - 1)
        self.fy += 1
        drift = self.rng.randint(-1, 2, self.n) * (self.rng.rand(self.n) < 0.3)
        self.fx = np.clip(self.fx + drift, 0, self.w - 1)
        done = self.fy >= self.h - 1
        hit = np.abs(self.fx - self.px) <= 1
        rew = np.where(done, np.where(hit, 1.0, -1.0), 0.0) - 0.01 * (a != 1)
        self.ep_ret += rew
        finished = self.ep_ret[done].tolist()
        self.ep_ret[done] = 0
        self.fy[done] = 0
        self.fx[done] = self.rng.randint(0, self.w, done.sum())
        return self._render(), rew.astype(np.float32), done.astype(np.float32), finished


def layer_init(layer, std=np.sqrt(2)):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    def __init__(self, h, w, n_act=3):
        super().__init__()
        self.net = nn.Sequential(
            layer_init(nn.Conv2d(2, 16, 3, padding=1)), nn.ReLU(),
            layer_init(nn.Conv2d(16, 16, 3, stride=2, padding=1)), nn.ReLU(),
            nn.Flatten(), layer_init(nn.Linear(16 * ((h + 1) // 2) * ((w + 1) // 2), 64)), nn.Tanh())
        self.pi = layer_init(nn.Linear(64, n_act), 0.01)
        self.v = layer_init(nn.Linear(64, 1), 1.0)

    def get_value(self, x):
        return self.v(self.net(x)).squeeze(-1)

    def act(self, x, action=None):
        z = self.net(x)
        dist = Categorical(logits=self.pi(z))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.v(z).squeeze(-1)


class RunningNorm:
    """Return normaliser, updated during the rollout (its state must follow the steps)."""

    def __init__(self, device):
        self.mean = torch.zeros((), device=device)
        self.var = torch.ones((), device=device)
        self.count = 1e-4

    def update(self, x):
        m, v, n = x.mean(), x.var(unbiased=False), x.numel()
        d = m - self.mean
        tot = self.count + n
        self.mean = self.mean + d * n / tot
        self.var = (self.var * self.count + v * n + d * d * self.count * n / tot) / tot
        self.count = tot


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--envs", type=int, default=16)
    p.add_argument("--steps", type=int, default=64)
    p.add_argument("--updates", type=int, default=25)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--minibatches", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--gamma", type=float, default=0.97)
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--ent", type=float, default=0.01)
    p.add_argument("--target-kl", type=float, default=0.03)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    env = VecCatch(args.envs, seed=args.seed)
    agent = Agent(env.h, env.w).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    ret_norm = RunningNorm(device)
    recent = collections.deque(maxlen=100)

    obs_buf = torch.zeros((args.steps, args.envs, 2, env.h, env.w)).to(device)
    act_buf = torch.zeros((args.steps, args.envs), dtype=torch.long).to(device)
    logp_buf = torch.zeros((args.steps, args.envs)).to(device)
    rew_buf = torch.zeros((args.steps, args.envs)).to(device)
    done_buf = torch.zeros((args.steps, args.envs)).to(device)
    val_buf = torch.zeros((args.steps, args.envs)).to(device)

    batch = args.envs * args.steps
    mb = batch // args.minibatches
    next_obs = torch.from_numpy(env.reset()).to(device)      # on CPU this IS the env's buffer
    next_done = torch.zeros(args.envs).to(device)

    for update in range(1, args.updates + 1):
        optimizer.param_groups[0]["lr"] = args.lr * (1.0 - (update - 1) / args.updates)
        for t in range(args.steps):
            obs_buf[t] = next_obs
            done_buf[t] = next_done
            with torch.no_grad():
                action, logp, _, value = agent.act(next_obs)
            act_buf[t] = action
            logp_buf[t] = logp
            val_buf[t] = value
            o, r, d, finished = env.step(action.cpu().numpy())
            recent.extend(finished)
            rew_buf[t] = torch.tensor(r).to(device)
            next_obs = torch.from_numpy(o).to(device)
            next_done = torch.Tensor(d).to(device)

        # GAE
        with torch.no_grad():
            next_value = agent.get_value(next_obs)
            adv = torch.zeros_like(rew_buf).to(device)
            last = 0
            for t in reversed(range(args.steps)):
                if t == args.steps - 1:
                    nonterm, nextval = 1.0 - next_done, next_value
                else:
                    nonterm, nextval = 1.0 - done_buf[t + 1], val_buf[t + 1]
                delta = rew_buf[t] + args.gamma * nextval * nonterm - val_buf[t]
                adv[t] = last = delta + args.gamma * args.lam * nonterm * last
            ret = adv + val_buf
        ret_norm.update(ret)

        b_obs = obs_buf.reshape(batch, 2, env.h, env.w)
        b_act, b_logp = act_buf.reshape(-1), logp_buf.reshape(-1)
        b_adv, b_ret = adv.reshape(-1), ret.reshape(-1)

        inds = np.arange(batch)
        clipfracs, stop = [], False
        for epoch in range(args.epochs):
            np.random.shuffle(inds)
            for s in range(0, batch, mb):
                mb_inds = inds[s:s + mb]
                _, newlogp, entropy, newval = agent.act(b_obs[mb_inds], b_act[mb_inds])
                logratio = newlogp - b_logp[mb_inds]
                ratio = logratio.exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs += [((ratio - 1.0).abs() > args.clip).float().mean().item()]
                mb_adv = b_adv[mb_inds]
                mb_adv = (mb_adv - mb_adv.mean()) / (mb_adv.std() + 1e-8)
                pg = torch.max(-mb_adv * ratio, -mb_adv * torch.clamp(ratio, 1 - args.clip, 1 + args.clip)).mean()
                v_loss = 0.5 * ((newval - b_ret[mb_inds]) ** 2).mean() / (ret_norm.var + 1e-3)
                loss = pg - args.ent * entropy.mean() + 0.5 * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
            if approx_kl.item() > args.target_kl:
                stop = True
                break

        y_pred, y_true = val_buf.reshape(-1).cpu().numpy(), b_ret.cpu().numpy()
        ev = 1 - np.var(y_true - y_pred) / max(np.var(y_true), 1e-8)
        print("upd %3d  ret %+.3f  pg %+.4f  v %.4f  ent %.3f  kl %.4f  clip %.3f  ev %.3f%s" % (
            update, np.mean(recent) if recent else 0, pg.item(), v_loss.item(), entropy.mean().item(),
            approx_kl.item(), np.mean(clipfracs), ev, "  (early stop)" if stop else ""))


if __name__ == "__main__":
    main()
