# SAC after CleanRL's single-file version, for our crane
import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from crane import CraneEnv
from memory import ReplayBuffer, RunningNorm


def parse_args():
    # fmt: off
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--torch-deterministic", type=lambda x: x == "True", default=True)
    parser.add_argument("--cuda", type=lambda x: x == "True", default=True)
    parser.add_argument("--total-timesteps", type=int, default=1000000)
    parser.add_argument("--buffer-size", type=int, default=int(1e6))
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-starts", type=int, default=5000)
    parser.add_argument("--policy-lr", type=float, default=3e-4)
    parser.add_argument("--q-lr", type=float, default=1e-3)
    parser.add_argument("--policy-frequency", type=int, default=2)
    parser.add_argument("--target-network-frequency", type=int, default=1)
    parser.add_argument("--eval-frequency", type=int, default=20000)
    parser.add_argument("--eval-episodes", type=int, default=10)
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--log-frequency", type=int, default=1000)
    # fmt: on
    return parser.parse_args()


class SoftQNetwork(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim + act_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 1)

    def forward(self, x, a):
        x = torch.cat([x, a], 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


LOG_STD_MAX = 2
LOG_STD_MIN = -5


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc_mean = nn.Linear(hidden, act_dim)
        self.fc_logstd = nn.Linear(hidden, act_dim)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        mean = self.fc_mean(x)
        log_std = torch.tanh(self.fc_logstd(x))
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        return mean, log_std

    def get_action(self, x):
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(1 - y_t.pow(2) + 1e-6)
        return y_t, log_prob.sum(1, keepdim=True), torch.tanh(mean)


def evaluate(actor, norm, args, device):
    """episodes from fixed seeds with the mean action; `norm` must not learn from them"""
    returns = []
    for k in range(args.eval_episodes):
        env = CraneEnv(10_000 + k, args.max_steps)
        obs, total, done = env.reset(), 0.0, False
        while not done:
            _, _, mean = actor.get_action(torch.Tensor(norm(obs)).unsqueeze(0).to(device))
            obs, r, term, trunc = env.step(mean[0].detach().cpu().numpy())
            total += r
            done = term or trunc
        returns.append(total)
    return float(np.mean(returns))


if __name__ == "__main__":
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")

    env = CraneEnv(args.seed, args.max_steps)
    norm = RunningNorm(env.obs_dim)
    rb = ReplayBuffer(args.buffer_size, env.obs_dim, env.act_dim)
    rng = np.random.default_rng(args.seed + 7)

    actor = Actor(env.obs_dim, env.act_dim, args.hidden).to(device)
    qf1 = SoftQNetwork(env.obs_dim, env.act_dim, args.hidden).to(device)
    qf2 = SoftQNetwork(env.obs_dim, env.act_dim, args.hidden).to(device)
    qf1_target = SoftQNetwork(env.obs_dim, env.act_dim, args.hidden).to(device)
    qf2_target = SoftQNetwork(env.obs_dim, env.act_dim, args.hidden).to(device)
    qf1_target.load_state_dict(qf1.state_dict())
    qf2_target.load_state_dict(qf2.state_dict())
    q_optimizer = optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=args.q_lr)
    actor_optimizer = optim.Adam(list(actor.parameters()), lr=args.policy_lr)

    target_entropy = -float(env.act_dim)
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    alpha = log_alpha.exp().item()
    a_optimizer = optim.Adam([log_alpha], lr=args.q_lr)

    obs = env.reset()
    norm.update(obs)
    ep_return, finished = 0.0, []
    start_time = time.time()
    for global_step in range(args.total_timesteps):
        if global_step < args.learning_starts:
            action = rng.uniform(-1, 1, env.act_dim).astype(np.float32)
        else:
            action, _, _ = actor.get_action(torch.Tensor(norm(obs)).unsqueeze(0).to(device))
            action = action[0].detach().cpu().numpy()

        next_obs, reward, terminated, truncated = env.step(action)
        norm.update(next_obs)
        # a truncated episode goes on as far as the value is concerned
        rb.add(obs, next_obs, action, reward, float(terminated))
        ep_return += reward
        obs = next_obs
        if terminated or truncated:
            finished.append(ep_return)
            ep_return = 0.0
            obs = env.reset()

        if global_step > args.learning_starts:
            b_obs, b_next, b_act, b_rew, b_done = rb.sample(args.batch_size, rng)
            b_obs = torch.tensor(norm(b_obs)).to(device)
            b_next = torch.tensor(norm(b_next)).to(device)
            b_act = torch.tensor(b_act).to(device)
            b_rew = torch.tensor(b_rew).to(device)
            b_done = torch.tensor(b_done).to(device)

            next_act, next_log_pi, _ = actor.get_action(b_next)
            q1_next = qf1_target(b_next, next_act)
            q2_next = qf2_target(b_next, next_act)
            min_q_next = torch.min(q1_next, q2_next) - alpha * next_log_pi
            next_q = (b_rew + (1 - b_done) * args.gamma * min_q_next.view(-1)).detach()

            q1_a = qf1(b_obs, b_act).view(-1)
            q2_a = qf2(b_obs, b_act).view(-1)
            qf1_loss = F.mse_loss(q1_a, next_q)
            qf2_loss = F.mse_loss(q2_a, next_q)
            qf_loss = qf1_loss + qf2_loss
            q_optimizer.zero_grad()
            qf_loss.backward()
            q_optimizer.step()

            if global_step % args.policy_frequency == 0:
                for _ in range(args.policy_frequency):      # make up for the delay
                    pi, log_pi, _ = actor.get_action(b_obs)
                    min_q_pi = torch.min(qf1(b_obs, pi), qf2(b_obs, pi))
                    actor_loss = ((alpha * log_pi) - min_q_pi).mean()
                    actor_optimizer.zero_grad()
                    actor_loss.backward()
                    actor_optimizer.step()

                    with torch.no_grad():
                        _, log_pi, _ = actor.get_action(b_obs)
                    alpha_loss = (-log_alpha.exp() * (log_pi + target_entropy)).mean()
                    a_optimizer.zero_grad()
                    alpha_loss.backward()
                    a_optimizer.step()
                    alpha = log_alpha.exp().item()

            if global_step % args.target_network_frequency == 0:
                for param, target_param in zip(qf1.parameters(), qf1_target.parameters()):
                    target_param.data.copy_(args.tau * param.data + (1 - args.tau) * target_param.data)
                for param, target_param in zip(qf2.parameters(), qf2_target.parameters()):
                    target_param.data.copy_(args.tau * param.data + (1 - args.tau) * target_param.data)

            if global_step % args.log_frequency == 0:
                print(f"{global_step} qf1 {qf1_loss.item():.6f} qf2 {qf2_loss.item():.6f} "
                      f"q {q1_a.mean().item():.5f} actor {actor_loss.item():.6f} alpha {alpha:.6f} "
                      f"return {np.mean(finished[-20:]):.4f}")
            if global_step % args.eval_frequency == 0:
                print(f"{global_step} eval return {evaluate(actor, norm, args, device):.5f}")
                torch.save({"actor": actor.state_dict(), "mean": norm.mean, "var": norm.var}, "crane_actor.pt")
