"""
Deep RL, homework 3.
  Part 1: double DQN with a replay buffer and a soft target update
  Part 2: advantage actor-critic with GAE
Usage: python hw3.py --episodes 300 --updates 200
"""
import argparse
import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from gridworld import KeyDoor

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


# ------------------------------------------------------------------ Part 1
class QNetwork(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=128):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, 1)
        self.adv = nn.Linear(hidden, n_actions)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        a = self.adv(x)
        return self.value(x) + a - a.mean(dim=1, keepdim=True)


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def push(self, *transition):
        self.buffer.append(transition)

    def sample(self, batch_size):
        batch = random.sample(self.buffer, batch_size)
        states, actions, rewards, next_states, dones = zip(*batch)
        states = torch.tensor(states, dtype=torch.float32).to(device)
        actions = torch.tensor(actions).to(device)
        next_states = torch.tensor(next_states, dtype=torch.float32).to(device)
        return states, actions, rewards, next_states, dones

    def __len__(self):
        return len(self.buffer)


class DQNAgent:
    def __init__(self, env, args):
        self.args = args
        self.n_actions = env.n_actions
        self.q = QNetwork(env.obs_dim, env.n_actions).to(device)
        self.target = QNetwork(env.obs_dim, env.n_actions).to(device)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = optim.Adam(self.q.parameters(), lr=args.lr)
        self.memory = ReplayBuffer(args.capacity)
        self.losses = []

    def act(self, state, eps):
        if random.random() < eps:
            return random.randrange(self.n_actions)
        s = torch.from_numpy(state).unsqueeze(0).to(device)
        return self.q(s).argmax(dim=1).item()

    def learn(self):
        states, actions, rewards, next_states, dones = self.memory.sample(self.args.batch_size)
        q_values = self.q(states).gather(1, actions.unsqueeze(1)).squeeze(1)

        # double DQN target
        next_actions = self.q(next_states).argmax(dim=1)
        next_q = self.target(next_states).detach()
        targets = []
        for i in range(len(rewards)):
            if dones[i]:
                targets.append(rewards[i])
            else:
                targets.append(rewards[i] + self.args.gamma * next_q[i, next_actions[i]].item())
        targets = torch.tensor(targets, dtype=torch.float32).to(device)

        loss = F.smooth_l1_loss(q_values, targets)
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.q.parameters():
            p.grad.data.clamp_(-1, 1)
        self.optimizer.step()

        # soft update
        for tp, p in zip(self.target.parameters(), self.q.parameters()):
            tp.data.copy_(self.args.tau * p.data + (1.0 - self.args.tau) * tp.data)
        self.losses.append(loss.item())


def run_dqn(args):
    env = KeyDoor(seed=args.seed)
    agent = DQNAgent(env, args)
    eps, scores, steps = 1.0, deque(maxlen=20), 0
    t0 = time.time()
    for ep in range(1, args.episodes + 1):
        state, score, done = env.reset(), 0.0, False
        while not done:
            action = agent.act(state, eps)
            next_state, reward, done = env.step(action)
            agent.memory.push(state, action, reward, next_state, done)
            state = next_state
            score += reward
            steps += 1
            if len(agent.memory) >= args.learn_start:
                agent.learn()
        eps = max(0.05, eps * args.eps_decay)
        scores.append(score)
        if ep % 10 == 0:
            print('episode %3d  steps %5d  eps %.2f  score %.3f  loss %.5f' % (
                ep, steps, eps, np.mean(scores), np.mean(agent.losses[-100:]) if agent.losses else 0.0))
    print('time DQN %.1fs' % (time.time() - t0))
    torch.save(agent.q.state_dict(), 'dqn.pt')
    return agent


def evaluate_dqn(agent, n=30):
    env = KeyDoor(seed=999)
    total = 0.0
    for _ in range(n):
        s, done = env.reset(), False
        while not done:
            s, r, done = env.step(agent.act(s, 0.05))
            total += r
    return total / n


# ------------------------------------------------------------------ Part 2
class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, n_actions))
        self.critic = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.actor(x), self.critic(x).squeeze(-1)


def compute_gae(rewards, values, dones, last_value, gamma, lam):
    rewards = torch.tensor(rewards).to(device)
    dones = torch.tensor(dones, dtype=torch.float32).to(device)
    advantages = torch.zeros(len(rewards)).to(device)
    gae = 0.0
    for t in reversed(range(len(rewards))):
        next_value = last_value if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + gamma * next_value * (1 - dones[t]) - values[t]
        gae = delta + gamma * lam * (1 - dones[t]) * gae
        advantages[t] = gae
    return advantages, advantages + values


def run_a2c(args):
    env = KeyDoor(seed=args.seed + 1)
    net = ActorCritic(env.obs_dim, env.n_actions).to(device)
    optimizer = optim.RMSprop(net.parameters(), lr=args.lr_a2c)
    scores, score = deque(maxlen=50), 0.0
    state = env.reset()
    t0 = time.time()
    for update in range(1, args.updates + 1):
        obs, acts, rewards, dones, values = [], [], [], [], []
        for _ in range(args.horizon):
            x = torch.from_numpy(state).unsqueeze(0).to(device)
            logits, value = net(x)
            dist = torch.distributions.Categorical(logits=logits)
            action = dist.sample()
            obs.append(state)
            acts.append(action.item())
            values.append(value.detach())
            state, reward, done = env.step(acts[-1])
            rewards.append(reward)
            dones.append(done)
            score += reward
            if done:
                scores.append(score)
                score, state = 0.0, env.reset()

        with torch.no_grad():
            last_value = net(torch.from_numpy(state).unsqueeze(0).to(device))[1]
        values = torch.cat(values)
        advantages, returns = compute_gae(rewards, values, dones, last_value[0], args.gamma, args.lam)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

        obs_t = torch.from_numpy(np.array(obs)).to(device)
        acts_t = torch.tensor(acts).to(device)
        logits, v = net(obs_t)
        dist = torch.distributions.Categorical(logits=logits)
        policy_loss = -(dist.log_prob(acts_t) * advantages).mean()
        value_loss = F.mse_loss(v, returns)
        entropy = dist.entropy().mean()
        loss = policy_loss + 0.5 * value_loss - args.entropy * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        if update % 10 == 0:
            print('update %3d  score %.3f  policy %.4f  value %.4f  entropy %.4f' % (
                update, np.mean(scores), policy_loss.item(), value_loss.item(), entropy.item()))
    print('time A2C %.1fs' % (time.time() - t0))
    torch.save(net.state_dict(), 'a2c.pt')


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--episodes', type=int, default=300)
    p.add_argument('--updates', type=int, default=200)
    p.add_argument('--batch_size', type=int, default=64)
    p.add_argument('--capacity', type=int, default=10000)
    p.add_argument('--learn_start', type=int, default=200)
    p.add_argument('--gamma', type=float, default=0.98)
    p.add_argument('--tau', type=float, default=0.01)
    p.add_argument('--lr', type=float, default=1e-3)
    p.add_argument('--eps_decay', type=float, default=0.96)
    p.add_argument('--horizon', type=int, default=256)
    p.add_argument('--lam', type=float, default=0.95)
    p.add_argument('--lr_a2c', type=float, default=2e-3)
    p.add_argument('--entropy', type=float, default=0.01)
    p.add_argument('--seed', type=int, default=0)
    args = p.parse_args()

    set_seed(args.seed)
    print('== Part 1: double DQN ==')
    agent = run_dqn(args)
    print('evaluation: mean return %.3f' % evaluate_dqn(agent))
    print('== Part 2: A2C ==')
    run_a2c(args)
