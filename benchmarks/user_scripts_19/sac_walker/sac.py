#!/usr/bin/env python3
# Soft Actor-Critic, Walker2d-v5. Follows the 2019 paper (automatic temperature).
#   python sac.py --env Walker2d-v5 --seed 3
import argparse, copy, csv, os, random, time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

LOG_STD_MIN, LOG_STD_MAX = -20, 2


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def push(self, s, a, r, s2, d):
        self.buffer.append((s, a, r, s2, d))

    def sample(self, n):
        batch = random.sample(self.buffer, n)
        s, a, r, s2, d = zip(*batch)
        return s, a, r, s2, d

    def __len__(self):
        return len(self.buffer)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden, limit):
        super().__init__()
        self.net = mlp(obs_dim, hidden, 2 * act_dim)
        self.limit = limit

    def forward(self, s, deterministic=False):
        mu, log_std = self.net(s).chunk(2, dim=-1)
        std = torch.clamp(log_std, LOG_STD_MIN, LOG_STD_MAX).exp()
        dist = torch.distributions.Normal(mu, std)
        u = mu if deterministic else dist.rsample()
        a = torch.tanh(u)
        logp = dist.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)
        return a * self.limit, logp.sum(-1, keepdim=True)


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.q1 = mlp(obs_dim + act_dim, hidden, 1)
        self.q2 = mlp(obs_dim + act_dim, hidden, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return self.q1(x), self.q2(x)


class SAC:
    def __init__(self, obs_dim, act_dim, limit, args, device):
        self.device = device
        self.gamma, self.tau = args.gamma, args.tau
        self.actor = Actor(obs_dim, act_dim, args.hidden, limit).to(device)
        self.critic = Critic(obs_dim, act_dim, args.hidden).to(device)
        self.critic_target = copy.deepcopy(self.critic)
        self.log_alpha = torch.zeros(1, requires_grad=True, device=device)
        self.target_entropy = -float(act_dim)
        self.opt_actor = torch.optim.Adam(self.actor.parameters(), lr=args.lr)
        self.opt_critic = torch.optim.Adam(self.critic.parameters(), lr=args.lr)
        self.opt_alpha = torch.optim.Adam([self.log_alpha], lr=args.lr)

    def act(self, obs, deterministic=False):
        s = torch.FloatTensor(obs).unsqueeze(0).to(self.device)
        a, _ = self.actor(s, deterministic)
        return a.detach().cpu().numpy()[0]

    def update(self, buffer, batch_size):
        s, a, r, s2, d = buffer.sample(batch_size)
        s = torch.FloatTensor(s).to(self.device)
        a = torch.FloatTensor(a).to(self.device)
        r = torch.FloatTensor(r).unsqueeze(1).to(self.device)
        s2 = torch.FloatTensor(s2).to(self.device)
        d = torch.FloatTensor(d).unsqueeze(1).to(self.device)

        alpha = self.log_alpha.exp().item()
        # the target is detached below
        a2, logp2 = self.actor(s2)
        tq1, tq2 = self.critic_target(s2, a2)
        target = r + self.gamma * (1 - d) * (torch.min(tq1, tq2) - alpha * logp2)

        q1, q2 = self.critic(s, a)
        critic_loss = F.mse_loss(q1, target.detach()) + F.mse_loss(q2, target.detach())
        self.opt_critic.zero_grad()
        critic_loss.backward()
        self.opt_critic.step()

        pi, logp = self.actor(s)
        actor_loss = (alpha * logp - torch.min(*self.critic(s, pi))).mean()
        self.opt_actor.zero_grad()
        actor_loss.backward()
        self.opt_actor.step()

        alpha_loss = -(self.log_alpha.exp() * (logp + self.target_entropy).detach()).mean()
        self.opt_alpha.zero_grad()
        alpha_loss.backward()
        self.opt_alpha.step()

        for p, tp in zip(self.critic.parameters(), self.critic_target.parameters()):
            tp.data.copy_(self.tau * p.data + (1 - self.tau) * tp.data)

        return critic_loss.item(), actor_loss.item(), alpha_loss.item(), self.log_alpha.exp().item(), q1.mean().item()


def evaluate(agent, env_name, seed, episodes):
    env = gym.make(env_name)
    returns = []
    for ep in range(episodes):
        obs, _ = env.reset(seed=seed + 100 + ep)
        done, total = False, 0.0
        while not done:
            obs, r, term, trunc, _ = env.step(agent.act(obs, deterministic=True))
            total += float(r)
            done = term or trunc
        returns.append(total)
    env.close()
    return float(np.mean(returns)), float(np.std(returns))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--env', default='Walker2d-v5')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--steps', type=int, default=1_000_000)
    p.add_argument('--start-steps', type=int, default=10_000)
    p.add_argument('--buffer', type=int, default=1_000_000)
    p.add_argument('--batch-size', type=int, default=256)
    p.add_argument('--hidden', type=int, default=256)
    p.add_argument('--lr', type=float, default=3e-4)
    p.add_argument('--gamma', type=float, default=0.99)
    p.add_argument('--tau', type=float, default=0.005)
    p.add_argument('--eval-every', type=int, default=5000)
    p.add_argument('--eval-episodes', type=int, default=10)
    p.add_argument('--out', default='results')
    args = p.parse_args()

    random.seed(args.seed); np.random.seed(args.seed); torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    env = gym.make(args.env)
    env.action_space.seed(args.seed)
    agent = SAC(env.observation_space.shape[0], env.action_space.shape[0], float(env.action_space.high[0]), args, device)
    buffer = ReplayBuffer(args.buffer)

    os.makedirs(args.out, exist_ok=True)
    f = open(os.path.join(args.out, f'{args.env}_s{args.seed}.csv'), 'w', newline='')
    w = csv.writer(f)
    w.writerow(['step', 'return', 'std', 'q_loss', 'pi_loss', 'alpha_loss', 'alpha', 'q', 'sps'])

    obs, _ = env.reset(seed=args.seed)
    stats = np.zeros(5)
    t0 = time.time()
    for step in range(1, args.steps + 1):
        a = env.action_space.sample() if step < args.start_steps else agent.act(obs)
        obs2, r, term, trunc, _ = env.step(a)
        buffer.push(obs, a, r, obs2, float(term))  # time limits are no terminal states
        obs = obs2
        if term or trunc:
            obs, _ = env.reset()
        if step >= args.start_steps:
            stats = 0.99 * stats + 0.01 * np.array(agent.update(buffer, args.batch_size))
        if step % args.eval_every == 0:
            mean, std = evaluate(agent, args.env, args.seed, args.eval_episodes)
            sps = step / (time.time() - t0)
            w.writerow([step, mean, std, *stats.tolist(), sps])
            f.flush()
            print(f'{step:8d} return {mean:8.1f} +- {std:6.1f} alpha {stats[3]:.3f} q {stats[4]:7.2f} {sps:.0f} steps/s')
            torch.save({'actor': agent.actor.state_dict(), 'critic': agent.critic.state_dict()},
                       os.path.join(args.out, f'{args.env}_s{args.seed}.pt'))
    f.close()


if __name__ == '__main__':
    main()
