import argparse
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

from inventory import ORDER_LEVELS, InventoryEnv


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--total-steps", type=int, default=10_000_000)
    p.add_argument("--n-envs", type=int, default=64)
    p.add_argument("--n-steps", type=int, default=128)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--minibatches", type=int, default=8)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--ent", type=float, default=0.005)
    p.add_argument("--vf", type=float, default=0.5)
    p.add_argument("--max-grad-norm", type=float, default=0.5)
    p.add_argument("--target-kl", type=float, default=0.03)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--products", type=int, default=8)
    p.add_argument("--eval-every", type=int, default=50)
    p.add_argument("--eval-episodes", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--save", default=None)
    return p.parse_args()


class RunningNorm:
    """Mean and variance of the observations (Chan et al.), numpy, float64."""

    def __init__(self, dim):
        self.mean, self.var, self.count = np.zeros(dim), np.ones(dim), 1e-4

    def update(self, x):
        m, v, n = x.mean(0), x.var(0), len(x)
        d = m - self.mean
        total = self.count + n
        self.mean = self.mean + d * n / total
        self.var = (self.var * self.count + v * n + d ** 2 * self.count * n / total) / total
        self.count = total

    def __call__(self, x):
        return np.clip((x - self.mean) / np.sqrt(self.var + 1e-8), -10, 10).astype(np.float32)


def ortho(layer, gain=np.sqrt(2)):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, products, hidden):
        super().__init__()
        self.actor = nn.Sequential(ortho(nn.Linear(obs_dim, hidden)), nn.Tanh(),
                                   ortho(nn.Linear(hidden, hidden)), nn.Tanh())
        self.heads = nn.ModuleList([ortho(nn.Linear(hidden, ORDER_LEVELS), 0.01) for _ in range(products)])
        self.critic = nn.Sequential(ortho(nn.Linear(obs_dim, hidden)), nn.Tanh(),
                                    ortho(nn.Linear(hidden, hidden)), nn.Tanh(),
                                    ortho(nn.Linear(hidden, 1), 1.0))

    def dists(self, obs):
        h = self.actor(obs)
        return [Categorical(logits=head(h)) for head in self.heads]

    def act(self, obs):
        dists = self.dists(obs)
        action = torch.stack([d.sample() for d in dists], dim=-1)
        logp = sum(d.log_prob(action[..., i]) for i, d in enumerate(dists))
        return action, logp, self.critic(obs).squeeze(-1)

    def evaluate(self, obs, action):
        dists = self.dists(obs)
        logp = sum(d.log_prob(action[..., i]) for i, d in enumerate(dists))
        entropy = sum(d.entropy() for d in dists)
        return logp, entropy, self.critic(obs).squeeze(-1)


@torch.no_grad()
def run_eval(net, norm, args, device):
    """Greedy policy on fixed shops, all episodes side by side (they have the same length)."""
    envs = [InventoryEnv(args.products, seed=10_000 + i) for i in range(args.eval_episodes)]
    obs = np.stack([e.reset() for e in envs])
    returns = np.zeros(len(envs))
    done = False
    while not done:
        dists = net.dists(torch.from_numpy(norm(obs)).to(device))
        action = torch.stack([d.logits.argmax(-1) for d in dists], -1).cpu().numpy()
        steps = [e.step(a) for e, a in zip(envs, action)]
        obs = np.stack([s[0] for s in steps])
        returns += np.array([s[1] for s in steps])
        done = steps[0][2]
    return returns.mean()


def main():
    args = parse()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = [InventoryEnv(args.products, seed=args.seed * 1000 + i) for i in range(args.n_envs)]
    net = ActorCritic(envs[0].obs_dim, args.products, args.hidden).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr, eps=1e-5)
    norm = RunningNorm(envs[0].obs_dim)
    batch = args.n_envs * args.n_steps
    mb = batch // args.minibatches
    updates = args.total_steps // batch
    recent = deque(maxlen=100)
    ep_return = [0.0] * args.n_envs
    obs = np.stack([e.reset() for e in envs])
    norm.update(obs)
    start = time.time()

    for update in range(1, updates + 1):
        for group in opt.param_groups:
            group["lr"] = args.lr * (1 - (update - 1) / updates)

        # ---- rollout
        b_obs, b_act, b_logp, b_val, b_rew, b_done = [], [], [], [], [], []
        for _ in range(args.n_steps):
            x = torch.tensor(norm(obs), device=device)
            action, logp, value = net.act(x)
            b_obs.append(norm(obs))
            b_act.append(action.cpu().numpy())
            b_logp.append(logp.detach().cpu().numpy())
            b_val.append(value.detach().cpu().numpy())
            nxt, rew, done = [], [], []
            for i, env in enumerate(envs):
                o, r, d = env.step(action[i].tolist())
                ep_return[i] += r
                if d:
                    recent.append(ep_return[i])
                    ep_return[i] = 0.0
                    o = env.reset()
                nxt.append(o)
                rew.append(r)
                done.append(float(d))
            obs = np.stack(nxt)
            norm.update(obs)
            b_rew.append(rew)
            b_done.append(done)

        obs_t = torch.tensor(b_obs, dtype=torch.float32).to(device)
        act_t = torch.tensor(b_act).to(device)
        logp_t = torch.tensor(b_logp).to(device)
        val_t = torch.tensor(b_val).to(device)
        rew_t = torch.tensor(b_rew, dtype=torch.float32).to(device)
        done_t = torch.tensor(b_done, dtype=torch.float32).to(device)

        # ---- generalised advantage estimation (the time limit counts as terminal here)
        with torch.no_grad():
            next_value = net.critic(torch.from_numpy(norm(obs)).to(device)).squeeze(-1)
            adv_t = torch.zeros_like(rew_t)
            last = torch.zeros(args.n_envs, device=device)
            for t in reversed(range(args.n_steps)):
                following = next_value if t == args.n_steps - 1 else val_t[t + 1]
                delta = rew_t[t] + args.gamma * following * (1 - done_t[t]) - val_t[t]
                last = delta + args.gamma * args.lam * (1 - done_t[t]) * last
                adv_t[t] = last
            ret_t = adv_t + val_t

        f_obs, f_act = obs_t.flatten(0, 1), act_t.flatten(0, 1)
        f_logp, f_val = logp_t.flatten(), val_t.flatten()
        f_adv, f_ret = adv_t.flatten(), ret_t.flatten()

        # ---- optimisation
        pg_losses, v_losses, entropies, kls, clipfracs = [], [], [], [], []
        stop = False
        for epoch in range(args.epochs):
            order = np.random.permutation(batch)
            for s in range(0, batch, mb):
                idx = torch.as_tensor(order[s:s + mb]).to(device)
                new_logp, entropy, value = net.evaluate(f_obs[idx], f_act[idx])
                log_ratio = new_logp - f_logp[idx]
                ratio = log_ratio.exp()
                adv = f_adv[idx]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg = -torch.min(adv * ratio, adv * ratio.clamp(1 - args.clip, 1 + args.clip)).mean()
                v_clip = f_val[idx] + (value - f_val[idx]).clamp(-args.clip, args.clip)
                v_loss = 0.5 * torch.max((value - f_ret[idx]) ** 2, (v_clip - f_ret[idx]) ** 2).mean()
                loss = pg - args.ent * entropy.mean() + args.vf * v_loss
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), args.max_grad_norm)
                opt.step()

                kl = ((ratio - 1) - log_ratio).mean().item()
                pg_losses.append(pg.item())
                v_losses.append(v_loss.item())
                entropies.append(entropy.mean().item())
                kls.append(kl)
                clipfracs.append(((ratio - 1).abs() > args.clip).float().mean().item())
            if np.mean(kls[-args.minibatches:]) > args.target_kl:
                stop = True
                break

        explained = 1 - (f_ret - f_val).var().item() / (f_ret.var().item() + 1e-8)
        print(f"update {update:4d} steps {update * batch:8d} return {np.mean(recent) if recent else 0:8.4f} "
              f"pg {np.mean(pg_losses):+.5f} v {np.mean(v_losses):.5f} ent {np.mean(entropies):.4f} "
              f"kl {kls[-1]:.5f} clip {np.mean(clipfracs):.3f} ev {explained:.3f}{' early stop' if stop else ''}")
        if update % args.eval_every == 0 or update == updates:
            print(f"  eval {run_eval(net, norm, args, device):.4f}   "
                  f"({update * batch / (time.time() - start):.0f} steps/s)")
            if args.save:
                torch.save({"net": net.state_dict(), "mean": norm.mean, "var": norm.var}, args.save)


if __name__ == "__main__":
    main()
