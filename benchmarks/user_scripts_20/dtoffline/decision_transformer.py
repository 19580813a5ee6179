"""Decision transformer on logged trajectories (one .npz per task).

The archive holds `observations` (N, obs_dim) float32, `actions` (N, act_dim) float32, `rewards` (N,) and
`terminals` (N,) bool, D4RL style.  Everything is in this file on purpose, I copy it to the cluster.

    python decision_transformer.py --dataset hopper-medium.npz --target 3600
"""
import argparse
import math
import random
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


# ----------------------------------------------------------------------------- data

def discount_cumsum(x, gamma):
    out = np.zeros_like(x)
    out[-1] = x[-1]
    for t in reversed(range(len(x) - 1)):
        out[t] = x[t] + gamma * out[t + 1]
    return out


def load_trajectories(path):
    raw = np.load(path)
    trajs, start = [], 0
    ends = np.where(raw["terminals"])[0]
    for end in ends:
        sl = slice(start, end + 1)
        trajs.append({
            "obs": raw["observations"][sl].astype(np.float32),
            "act": raw["actions"][sl].astype(np.float32),
            "rew": raw["rewards"][sl].astype(np.float32),
        })
        start = end + 1
    return trajs


class Sampler:
    """Windows of K steps; long trajectories are drawn more often."""

    def __init__(self, trajs, K, scale, max_ep_len):
        self.trajs = trajs
        self.K = K
        self.scale = scale
        self.max_ep_len = max_ep_len
        lengths = np.array([len(t["rew"]) for t in trajs])
        self.p = lengths / lengths.sum()
        every = np.concatenate([t["obs"] for t in trajs])
        self.mean, self.std = every.mean(0), every.std(0) + 1e-6
        self.obs_dim = every.shape[1]
        self.act_dim = trajs[0]["act"].shape[1]

    def get_batch(self, batch_size):
        ids = np.random.choice(len(self.trajs), size=batch_size, p=self.p)
        s, a, rtg, ts, mask = [], [], [], [], []
        for i in ids:
            t = self.trajs[i]
            si = random.randint(0, len(t["rew"]) - 1)
            obs = t["obs"][si:si + self.K]
            act = t["act"][si:si + self.K]
            n = len(obs)
            pad = self.K - n
            returns = discount_cumsum(t["rew"][si:], 1.0)[:n]
            obs = np.concatenate([np.zeros((pad, self.obs_dim)), (obs - self.mean) / self.std])
            act = np.concatenate([np.ones((pad, self.act_dim)) * -10.0, act])
            returns = np.concatenate([np.zeros(pad), returns]) / self.scale
            steps = np.concatenate([np.zeros(pad), np.arange(si, si + n)])
            steps[steps >= self.max_ep_len] = self.max_ep_len - 1
            s.append(obs)
            a.append(act)
            rtg.append(returns[:, None])
            ts.append(steps)
            mask.append(np.concatenate([np.zeros(pad), np.ones(n)]))
        s = torch.from_numpy(np.array(s)).to(dtype=torch.float32, device=device)
        a = torch.from_numpy(np.array(a)).to(dtype=torch.float32, device=device)
        rtg = torch.from_numpy(np.array(rtg)).to(dtype=torch.float32, device=device)
        ts = torch.from_numpy(np.array(ts)).to(dtype=torch.long, device=device)
        mask = torch.from_numpy(np.array(mask)).to(dtype=torch.bool, device=device)
        return s, a, rtg, ts, mask


# ----------------------------------------------------------------------------- model

class SelfAttention(nn.Module):
    def __init__(self, dim, n_head, dropout):
        super().__init__()
        self.n_head = n_head
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, valid):
        B, T, C = x.shape
        d = C // self.n_head
        q, k, v = self.q(x), self.k(x), self.v(x)
        causal = torch.tril(torch.ones(T, T)).to(x.device)
        heads = []
        for h in range(self.n_head):
            qh, kh, vh = q[..., h * d:(h + 1) * d], k[..., h * d:(h + 1) * d], v[..., h * d:(h + 1) * d]
            att = qh @ kh.transpose(1, 2) / math.sqrt(d)
            att = att.masked_fill(causal == 0, -1e9)
            att = att.masked_fill(~valid[:, None, :], -1e9)   # left padding; such rows attend uniformly, they are not scored
            att = self.drop(torch.softmax(att, dim=-1))
            heads.append(att @ vh)
        return self.proj(torch.cat(heads, dim=-1))


class Block(nn.Module):
    def __init__(self, dim, n_head, dropout):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, n_head, dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))

    def forward(self, x, valid):
        x = x + self.attn(self.ln1(x), valid)
        return x + self.mlp(self.ln2(x))


class DecisionTransformer(nn.Module):
    def __init__(self, obs_dim, act_dim, dim, n_layer, n_head, max_ep_len, dropout=0.1):
        super().__init__()
        self.act_dim = act_dim
        self.time = nn.Embedding(max_ep_len, dim)
        self.emb_r, self.emb_s, self.emb_a = nn.Linear(1, dim), nn.Linear(obs_dim, dim), nn.Linear(act_dim, dim)
        self.ln = nn.LayerNorm(dim)
        self.blocks = nn.ModuleList([Block(dim, n_head, dropout) for _ in range(n_layer)])
        self.head = nn.Sequential(nn.Linear(dim, act_dim), nn.Tanh())

    def forward(self, s, a, rtg, ts, mask):
        B, K = ts.shape
        t = self.time(ts)
        # R1 s1 a1 R2 s2 a2 ...
        x = torch.stack([self.emb_r(rtg) + t, self.emb_s(s) + t, self.emb_a(a) + t], dim=2).reshape(B, 3 * K, -1)
        valid = mask.repeat_interleave(3, dim=1)
        x = self.ln(x)
        for block in self.blocks:
            x = block(x, valid)
        return self.head(x.view(B, K, 3, -1)[:, :, 1])


# ----------------------------------------------------------------------------- a toy env, gym is not on the cluster

class PointMass:
    """Action pushes a point towards the origin. Same dims as the data set; only to see that the policy does something."""

    def __init__(self, obs_dim, act_dim, seed, horizon):
        self.rng = np.random.default_rng(seed)
        self.B = self.rng.normal(size=(obs_dim, act_dim)) * 0.1
        self.horizon = horizon

    def reset(self):
        self.t = 0
        self.x = self.rng.normal(size=self.B.shape[0])
        return self.x.astype(np.float32)

    def step(self, act):
        self.x = 0.99 * self.x + self.B @ np.clip(act, -1, 1)
        self.t += 1
        return self.x.astype(np.float32), float(1.0 - np.tanh(np.abs(self.x).mean())), self.t >= self.horizon


def rollout(model, env, sampler, target, args):
    K = args.K
    model.eval()
    mean = torch.from_numpy(sampler.mean).to(device)
    std = torch.from_numpy(sampler.std).to(device)
    obs = env.reset()
    S = torch.from_numpy(obs).to(device).reshape(1, -1)
    A = torch.zeros((0, sampler.act_dim), device=device)
    R = torch.tensor([[target / args.scale]], device=device, dtype=torch.float32)
    T = torch.zeros(1, dtype=torch.long, device=device)
    total, done = 0.0, False
    while not done:
        A = torch.cat([A, torch.zeros((1, sampler.act_dim), device=device)])
        s, a, r, t = S[-K:], A[-K:], R[-K:], T[-K:]
        m = torch.ones(1, len(s), dtype=torch.bool, device=device)
        pred = model(((s - mean) / std)[None], a[None], r[None], t[None], m)
        A[-1] = pred[0, -1]
        A = A.detach()
        obs, reward, done = env.step(A[-1].detach().cpu().numpy())
        S = torch.cat([S, torch.from_numpy(obs).to(device)[None]])
        R = torch.cat([R, (R[-1] - reward / args.scale)[None]])
        T = torch.cat([T, torch.clamp(T[-1:] + 1, max=args.max_ep_len - 1)])
        total += reward
    return total


# ----------------------------------------------------------------------------- training

def train(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    sampler = Sampler(load_trajectories(args.dataset), args.K, args.scale, args.max_ep_len)
    print("%d trajectories, obs %d, act %d" % (len(sampler.trajs), sampler.obs_dim, sampler.act_dim))
    model = DecisionTransformer(sampler.obs_dim, sampler.act_dim, args.dim, args.layers, args.heads, args.max_ep_len)
    model = model.to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min((k + 1) / args.warmup, 1))
    history = defaultdict(list)

    for it in range(args.iters):
        t0 = time.time()
        model.train()
        losses, errs, per_dim = [], [], np.zeros(sampler.act_dim)
        for _ in range(args.steps):
            s, a, rtg, ts, mask = sampler.get_batch(args.batch_size)
            pred = model(s, a, rtg, ts, mask)
            pred = pred.reshape(-1, sampler.act_dim)[mask.reshape(-1)]
            real = a.reshape(-1, sampler.act_dim)[mask.reshape(-1)]
            loss = F.mse_loss(pred, real)
            opt.zero_grad(set_to_none=False)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            opt.step()
            sched.step()
            losses.append(loss.detach().cpu().item())
            with torch.no_grad():
                errs.append(torch.mean((pred - real).abs()).detach().cpu().item())
                per_dim += ((pred - real) ** 2).mean(0).cpu().numpy()
        train_time = time.time() - t0

        returns = []
        for ep in range(args.eval_episodes):
            env = PointMass(sampler.obs_dim, sampler.act_dim, seed=1000 + ep, horizon=args.horizon)
            returns.append(rollout(model, env, sampler, args.target, args))
        history["loss"].append(np.mean(losses))
        history["return"].append(np.mean(returns))
        print("iter %d  loss %.5f +- %.5f  abs err %.4f  worst dim %d  return %.1f +- %.1f  train %.1fs  eval %.1fs" % (
            it, np.mean(losses), np.std(losses), np.mean(errs), per_dim.argmax(), np.mean(returns), np.std(returns),
            train_time, time.time() - t0 - train_time))
        torch.save({"model": model.state_dict(), "mean": sampler.mean, "std": sampler.std, "history": dict(history)}, args.save)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--dataset", required=True)
    p.add_argument("--target", type=float, default=3600)
    p.add_argument("--scale", type=float, default=1000)
    p.add_argument("--K", type=int, default=20)
    p.add_argument("--max_ep_len", type=int, default=1000)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--batch_size", type=int, default=256)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--warmup", type=int, default=10000)
    p.add_argument("--iters", type=int, default=10)
    p.add_argument("--steps", type=int, default=10000)
    p.add_argument("--eval_episodes", type=int, default=20)
    p.add_argument("--horizon", type=int, default=500)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--save", default="dt.pt")
    train(p.parse_args())
