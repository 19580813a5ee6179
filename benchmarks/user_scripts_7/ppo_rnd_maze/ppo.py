import csv
import os
import random
import time
from collections import deque
from dataclasses import dataclass, fields
import argparse

import numpy as np
import torch
import torch.nn as nn

from agent import RND, ActorCritic, RunningMeanStd
from maze import MazeEnv, SyncVec


@dataclass
class Args:
    total_timesteps: int = 2_000_000
    num_envs: int = 32
    num_steps: int = 128
    update_epochs: int = 4
    num_minibatches: int = 8
    hidden: int = 128
    lr: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    int_coef: float = 0.01
    max_grad_norm: float = 0.5
    target_kl: float = 0.03
    eval_every: int = 20
    eval_episodes: int = 20
    seed: int = 1
    logdir: str = "/tmp/ppo_rnd"


class CsvWriter:
    """add_scalar without tensorboard"""

    def __init__(self, d):
        os.makedirs(d, exist_ok=True)
        self.f = open(os.path.join(d, "scalars.csv"), "w", newline="")
        self.w = csv.writer(self.f)

    def add_scalar(self, k, v, step):
        self.w.writerow([step, k, "%.6g" % v])


def evaluate(agent, args, device, seed=10_000):
    wins = 0
    for ep in range(args.eval_episodes):
        env = MazeEnv(seed=seed + ep)
        obs, done = env.reset(), False
        while not done:
            logits = agent.actor(torch.tensor(obs).to(device).unsqueeze(0))
            obs, _, done, info = env.step(logits.argmax(-1).item())
        wins += info["won"]
    return wins / args.eval_episodes


def main(args):
    random.seed(args.seed); np.random.seed(args.seed); torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    writer = CsvWriter(args.logdir)
    envs = SyncVec(args.num_envs, args.seed * 1000)
    agent = ActorCritic(envs.obs_dim, 4, args.hidden).to(device)
    rnd = RND(envs.obs_dim).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    obs_rms, ret_rms = RunningMeanStd((envs.obs_dim,)), RunningMeanStd()

    N, T = args.num_envs, args.num_steps
    batch_size = N * T
    mb_size = batch_size // args.num_minibatches
    obs = torch.zeros(T, N, envs.obs_dim, device=device)
    actions = torch.zeros(T, N, dtype=torch.long, device=device)
    logprobs, rewards, dones, values = (torch.zeros(T, N, device=device) for _ in range(4))

    stats, kl_hist = deque(maxlen=100), []
    next_obs = torch.tensor(envs.reset()).to(device)
    next_done = torch.zeros(N, device=device)
    global_step, t0 = 0, time.time()
    num_updates = args.total_timesteps // batch_size

    for update in range(1, num_updates + 1):
        optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / num_updates) * args.lr

        for step in range(T):
            global_step += N
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.act(next_obs)
            actions[step], logprobs[step], values[step] = action, logprob, value
            o, r, d, infos = envs.step(action.cpu().numpy())
            obs_rms.update(o)
            curious = rnd.error(torch.tensor((o - obs_rms.mean) / np.sqrt(obs_rms.var + 1e-8)).float().clamp(-5, 5).to(device)).detach().cpu().numpy()
            ret_rms.update(curious)
            r = r + args.int_coef * curious / np.sqrt(ret_rms.var + 1e-8)
            rewards[step] = torch.tensor(r).to(device).float()
            next_obs, next_done = torch.tensor(o).to(device), torch.tensor(d).to(device)
            for i in infos:
                if i is not None:
                    stats.append((float(i["won"]), i["length"]))

        next_value = agent.value(next_obs)
        advantages = torch.zeros_like(rewards)
        last = 0
        for t in reversed(range(T)):
            nonterm = 1.0 - (next_done if t == T - 1 else dones[t + 1])
            nv = next_value if t == T - 1 else values[t + 1]
            delta = rewards[t] + args.gamma * nv * nonterm - values[t]
            advantages[t] = last = delta + args.gamma * args.gae_lambda * nonterm * last
        advantages = advantages.detach()
        returns = advantages + values

        b_obs, b_act, b_logp = obs.reshape(-1, envs.obs_dim), actions.reshape(-1), logprobs.reshape(-1)
        b_adv, b_ret, b_val = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
        mean_t = torch.tensor(obs_rms.mean, dtype=torch.float32, device=device)
        std_t = torch.tensor(np.sqrt(obs_rms.var + 1e-8), dtype=torch.float32, device=device)
        inds, clipfracs, losses = np.arange(batch_size), [], []
        for epoch in range(args.update_epochs):
            np.random.shuffle(inds)
            for s in range(0, batch_size, mb_size):
                mb = inds[s:s + mb_size]
                _, newlogp, entropy, newv = agent.act(b_obs[mb], b_act[mb])
                ratio = (newlogp - b_logp[mb]).exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - (newlogp - b_logp[mb])).mean()
                    clipfracs.append(((ratio - 1.0).abs() > args.clip_coef).float().mean().item())
                adv = (b_adv[mb] - b_adv[mb].mean()) / (b_adv[mb].std() + 1e-8)
                pg = torch.max(-adv * ratio, -adv * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)).mean()
                vl = 0.5 * (newv - b_ret[mb]).pow(2).mean()
                loss = pg - args.ent_coef * entropy.mean() + args.vf_coef * vl
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
                pred = rnd.error(((b_obs[mb] - mean_t) / std_t).clamp(-5, 5)).mean()
                rnd.opt.zero_grad()
                pred.backward()
                rnd.opt.step()
                losses.append(loss)
            if approx_kl.item() > args.target_kl:
                break
        kl_hist.append(approx_kl.item())
        writer.add_scalar("loss", torch.stack(losses).mean().item(), global_step)
        writer.add_scalar("clipfrac", float(np.mean(clipfracs)), global_step)
        y_pred, y_true = b_val.cpu().numpy(), b_ret.cpu().numpy()
        writer.add_scalar("explained_var", 1 - np.var(y_true - y_pred) / (np.var(y_true) + 1e-8), global_step)
        if update % 5 == 0 or update == num_updates:
            won = np.mean([w for w, _ in stats]) if stats else 0.0
            print("step %8d  won %.2f  len %.1f  kl %.4f  sps %d" % (global_step, won, np.mean([l for _, l in stats]) if stats else 0,
                                                                     kl_hist[-1], global_step / (time.time() - t0)))
        if update % args.eval_every == 0 or update == num_updates:
            writer.add_scalar("eval_won", evaluate(agent, args, device), global_step)
    torch.save({"agent": agent.state_dict(), "obs_rms": (obs_rms.mean, obs_rms.var)}, os.path.join(args.logdir, "agent.pt"))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    for f in fields(Args):
        p.add_argument("--" + f.name.replace("_", "-"), type=f.type, default=f.default)
    main(Args(**vars(p.parse_args())))
