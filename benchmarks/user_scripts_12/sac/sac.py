# Soft actor-critic, single file (after CleanRL's sac_continuous_action.py)
import argparse
import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Normal

from envs import ReacherEnv


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=300000)
    parser.add_argument("--learning-starts", type=int, default=5000)
    parser.add_argument("--buffer-size", type=int, default=int(1e6))
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--policy-lr", type=float, default=3e-4)
    parser.add_argument("--q-lr", type=float, default=1e-3)
    parser.add_argument("--policy-frequency", type=int, default=2)
    parser.add_argument("--eval-every", type=int, default=10000)
    parser.add_argument("--eval-episodes", type=int, default=10)
    parser.add_argument("--log-every", type=int, default=1000)
    return parser.parse_args()


class ReplayBuffer:
    def __init__(self, size, device):
        self.storage = deque(maxlen=size)
        self.device = device

    def add(self, *transition):
        self.storage.append(transition)

    def sample(self, n):
        batch = random.sample(self.storage, n)
        obs, next_obs, actions, rewards, dones = zip(*batch)
        return (torch.FloatTensor(np.array(obs)).to(self.device),
                torch.FloatTensor(np.array(next_obs)).to(self.device),
                torch.FloatTensor(np.array(actions)).to(self.device),
                torch.FloatTensor(rewards).to(self.device),
                torch.FloatTensor(dones).to(self.device))


class SoftQ(nn.Module):
    def __init__(self, env, hidden):
        super().__init__()
        self.fc1 = nn.Linear(env.obs_dim + env.act_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 1)

    def forward(self, x, a):
        x = torch.cat([x, a], 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


LOG_STD_MAX, LOG_STD_MIN = 2, -5


class Actor(nn.Module):
    def __init__(self, env, hidden):
        super().__init__()
        self.fc1 = nn.Linear(env.obs_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.mean = nn.Linear(hidden, env.act_dim)
        self.log_std = nn.Linear(hidden, env.act_dim)

    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        log_std = torch.tanh(self.log_std(x))
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        return self.mean(x), log_std

    def get_action(self, x):
        scale = torch.tensor([1.0, 1.0]).to(x.device)
        bias = torch.tensor([0.0, 0.0]).to(x.device)
        mean, log_std = self(x)
        normal = Normal(mean, log_std.exp())
        u = normal.rsample()
        y = torch.tanh(u)
        log_prob = normal.log_prob(u) - torch.log(scale * (1 - y.pow(2)) + 1e-6)
        return y * scale + bias, log_prob.sum(1, keepdim=True), torch.tanh(mean) * scale + bias


def evaluate(actor, device, episodes, seed):
    env = ReacherEnv(seed)
    returns, lengths = [], []
    for _ in range(episodes):
        obs, total, done = env.reset(), 0.0, False
        while not done:
            _, _, action = actor.get_action(torch.Tensor(obs[None]).to(device))
            obs, reward, terminated, truncated = env.step(action.detach().cpu().numpy()[0])
            total += reward
            done = terminated or truncated
        returns.append(total)
    return np.mean(returns), np.std(returns)


def main():
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    env = ReacherEnv(args.seed)
    actor = Actor(env, args.hidden).to(device)
    qf1, qf2 = SoftQ(env, args.hidden).to(device), SoftQ(env, args.hidden).to(device)
    qf1_target, qf2_target = SoftQ(env, args.hidden).to(device), SoftQ(env, args.hidden).to(device)
    qf1_target.load_state_dict(qf1.state_dict())
    qf2_target.load_state_dict(qf2.state_dict())
    q_optimizer = optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=args.q_lr)
    actor_optimizer = optim.Adam(list(actor.parameters()), lr=args.policy_lr)

    target_entropy = -float(env.act_dim)
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    alpha = log_alpha.exp().item()
    a_optimizer = optim.Adam([log_alpha], lr=args.q_lr)

    rb = ReplayBuffer(args.buffer_size, device)
    start_time = time.time()
    episode_returns, episode_return = [], 0.0
    stats = {"qf1": [], "qf2": [], "q": [], "actor": [], "alpha": []}
    best = -np.inf
    obs = env.reset()
    for global_step in range(1, args.total_timesteps + 1):
        if global_step < args.learning_starts:
            action = env.rng.uniform(-1, 1, env.act_dim)
        else:
            action, _, _ = actor.get_action(torch.Tensor(obs[None]).to(device))
            action = action.detach().cpu().numpy()[0]
        next_obs, reward, terminated, truncated = env.step(action)
        episode_return += reward
        # a time limit is not a terminal state
        rb.add(obs, next_obs, action, reward, float(terminated))
        obs = next_obs
        if terminated or truncated:
            episode_returns.append(episode_return)
            obs, episode_return = env.reset(), 0.0

        if global_step >= args.learning_starts:
            b_obs, b_next, b_act, b_rew, b_done = rb.sample(args.batch_size)
            with torch.no_grad():
                next_act, next_logp, _ = actor.get_action(b_next)
                q_next = torch.min(qf1_target(b_next, next_act), qf2_target(b_next, next_act)) - alpha * next_logp
                target = b_rew + (1 - b_done) * args.gamma * q_next.view(-1)

            q1, q2 = qf1(b_obs, b_act).view(-1), qf2(b_obs, b_act).view(-1)
            qf1_loss, qf2_loss = F.mse_loss(q1, target), F.mse_loss(q2, target)
            q_optimizer.zero_grad()
            (qf1_loss + qf2_loss).backward()
            q_optimizer.step()
            stats["qf1"].append(qf1_loss.item())
            stats["qf2"].append(qf2_loss.item())
            stats["q"].append(q1.mean().item())

            if global_step % args.policy_frequency == 0:
                for _ in range(args.policy_frequency):
                    pi, logp, _ = actor.get_action(b_obs)
                    q_pi = torch.min(qf1(b_obs, pi), qf2(b_obs, pi))
                    actor_loss = (alpha * logp - q_pi).mean()
                    actor_optimizer.zero_grad()
                    actor_loss.backward()
                    actor_optimizer.step()
                    stats["actor"].append(actor_loss.item())

                    with torch.no_grad():
                        _, logp, _ = actor.get_action(b_obs)
                    alpha_loss = (-log_alpha.exp() * (logp + target_entropy)).mean()
                    a_optimizer.zero_grad()
                    alpha_loss.backward()
                    a_optimizer.step()
                    alpha = log_alpha.exp().item()
                    stats["alpha"].append(alpha)

            for net, net_target in ((qf1, qf1_target), (qf2, qf2_target)):
                for p, tp in zip(net.parameters(), net_target.parameters()):
                    tp.data.copy_(args.tau * p.data + (1 - args.tau) * tp.data)

        if global_step % args.log_every == 0 and stats["q"]:
            means = {k: float(np.mean(v[-args.log_every:])) for k, v in stats.items()}
            print("step %7d  return %8.2f  qf1 %.4f  qf2 %.4f  q %.3f  actor %.3f  alpha %.4f  SPS %d" % (
                global_step, np.mean(episode_returns[-10:]), means["qf1"], means["qf2"], means["q"], means["actor"],
                means["alpha"], int(global_step / (time.time() - start_time))))
        if global_step % args.eval_every == 0:
            mean, std = evaluate(actor, device, args.eval_episodes, args.seed + 100)
            print("eval at %d: %.2f +- %.2f" % (global_step, mean, std))
            if mean > best:
                best = mean
                torch.save(actor.state_dict(), "actor.pt")
    print("best %.2f" % best)


if __name__ == "__main__":
    main()
