"""A pendulum is swung up: an actor, two critics, targets that lag behind, returns over three steps and a replay that prefers surprises."""

import argparse
import collections
import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Pendulum:
    def __init__(self, seed, horizon=100):
        self.rng = np.random.RandomState(seed)
        self.horizon = horizon

    def observe(self):
        return np.array([math.cos(self.angle), math.sin(self.angle), self.speed / 8], dtype=np.float32)

    def reset(self):
        self.angle = self.rng.uniform(-math.pi, math.pi)
        self.speed = self.rng.uniform(-1, 1)
        self.clock = 0
        return self.observe()

    def step(self, action):
        torque = 2 * float(np.clip(action, -1, 1))
        off = (self.angle + math.pi) % (2 * math.pi) - math.pi
        cost = off**2 + 0.1 * self.speed**2 + 0.001 * torque**2
        self.speed = float(np.clip(self.speed + (15 * math.sin(self.angle) + 3 * torque) * 0.05, -8, 8))
        self.angle += self.speed * 0.05
        self.clock += 1
        fell = abs(self.speed) >= 8
        return self.observe(), -cost / 4, fell, self.clock >= self.horizon


class Replay:
    def __init__(self, size, alpha=0.6):
        self.size, self.alpha = size, alpha
        self.state = np.zeros((size, 3), dtype=np.float32)
        self.next_state = np.zeros((size, 3), dtype=np.float32)
        self.action = np.zeros((size, 1), dtype=np.float32)
        self.reward = np.zeros((size, 1), dtype=np.float32)
        self.discount = np.zeros((size, 1), dtype=np.float32)
        self.priority = np.zeros(size, dtype=np.float64)
        self.at = self.count = 0

    def add(self, state, action, reward, next_state, discount):
        top = self.priority[: self.count].max() if self.count else 1.0
        self.state[self.at], self.action[self.at], self.reward[self.at] = state, action, reward
        self.next_state[self.at], self.discount[self.at] = next_state, discount
        self.priority[self.at] = top
        self.at = (self.at + 1) % self.size
        self.count = min(self.count + 1, self.size)

    def sample(self, batch, beta):
        p = self.priority[: self.count] ** self.alpha
        p = p / p.sum()
        rows = np.random.choice(self.count, batch, p=p)
        weight = (self.count * p[rows]) ** -beta
        weight = torch.from_numpy((weight / weight.max()).astype(np.float32))[:, None]
        parts = (self.state, self.action, self.reward, self.next_state, self.discount)
        return rows, weight, [torch.from_numpy(part[rows]) for part in parts]

    def update(self, rows, errors):
        self.priority[rows] = np.abs(errors) + 1e-3


def mlp(sizes, last=None):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers, *([last] if last else []))


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = mlp([4, 64, 64, 1]), mlp([4, 64, 64, 1])

    def forward(self, state, action):
        x = torch.cat([state, action], 1)
        return self.one(x), self.two(x)


class Scaler:
    """Running mean and spread of what has been seen."""

    def __init__(self):
        self.n, self.mean, self.m2 = 0, np.zeros(3), np.zeros(3)

    def see(self, x):
        self.n += 1
        d = x - self.mean
        self.mean = self.mean + d / self.n
        self.m2 = self.m2 + d * (x - self.mean)

    def __call__(self, x):
        spread = np.sqrt(self.m2 / max(self.n - 1, 1)) + 1e-2
        if isinstance(x, torch.Tensor):
            return (x - torch.from_numpy(self.mean).float()) / torch.from_numpy(spread).float()
        return ((x - self.mean) / spread).astype(np.float32)


class Agent:
    def __init__(self, args):
        self.args = args
        self.actor = mlp([3, 64, 64, 1], nn.Tanh())
        self.critics = Critics()
        self.actor_target = copy.deepcopy(self.actor)
        self.critics_target = copy.deepcopy(self.critics)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=args.actor_lr)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=args.critic_lr)
        self.scaler = Scaler()
        self.updates = 0

    @torch.no_grad()
    def act(self, state, noise=0.0):
        action = self.actor(torch.from_numpy(self.scaler(state))[None]).numpy()[0]
        if noise:
            action = action + noise * np.random.randn(1)
        return np.clip(action, -1, 1)

    def learn(self, replay, beta):
        args = self.args
        rows, weight, (state, action, reward, next_state, discount) = replay.sample(args.batch, beta)
        state, next_state = self.scaler(state), self.scaler(next_state)
        with torch.no_grad():
            noise = (torch.randn_like(action) * args.smooth).clamp(-0.5, 0.5)
            next_action = (self.actor_target(next_state) + noise).clamp(-1, 1)
            target = reward + discount * torch.min(*self.critics_target(next_state, next_action))
        one, two = self.critics(state, action)
        critic_loss = (weight * (F.smooth_l1_loss(one, target, reduction="none") + F.smooth_l1_loss(two, target, reduction="none"))).mean()
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        nn.utils.clip_grad_norm_(self.critics.parameters(), 1.0)
        self.critic_optimizer.step()
        replay.update(rows, (one - target).detach().squeeze(1).numpy())
        self.updates += 1
        if self.updates % args.delay == 0:
            actor_loss = -self.critics.one(torch.cat([state, self.actor(state)], 1)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            for net, lag in ((self.actor, self.actor_target), (self.critics, self.critics_target)):
                for p, t in zip(net.parameters(), lag.parameters()):
                    t.data.mul_(1 - args.tau).add_(args.tau * p.data)
        return critic_loss.item()


def evaluate(agent, episodes=10):
    env = Pendulum(1000)
    total = 0.0
    for _ in range(episodes):
        state, over = env.reset(), False
        while not over:
            state, reward, fell, late = env.step(agent.act(state)[0])
            over = fell or late
            total += reward
    return total / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2200)
    parser.add_argument("--start", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=1500)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--ahead", type=int, default=3)
    parser.add_argument("--tau", type=float, default=0.02)
    parser.add_argument("--delay", type=int, default=2)
    parser.add_argument("--smooth", type=float, default=0.2)
    parser.add_argument("--explore", type=float, default=0.3)
    parser.add_argument("--actor-lr", type=float, default=1e-3)
    parser.add_argument("--critic-lr", type=float, default=2e-3)
    parser.add_argument("--report", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    env = Pendulum(args.seed)
    agent, replay = Agent(args), Replay(args.size)
    recent = collections.deque(maxlen=args.ahead)
    state, best, losses = env.reset(), -math.inf, []
    for step in range(1, args.steps + 1):
        agent.scaler.see(state)
        if step <= args.start:
            action = np.random.uniform(-1, 1, 1)
        else:
            action = agent.act(state, args.explore * (1 - step / args.steps) + 0.05)
        next_state, reward, fell, late = env.step(action[0])
        recent.append((state, action, reward))
        if len(recent) == args.ahead or fell or late:
            while recent:
                gain = sum(args.gamma**k * r for k, (_, _, r) in enumerate(recent))
                replay.add(recent[0][0], recent[0][1], gain, next_state, 0.0 if fell else args.gamma ** len(recent))
                recent.popleft()
                if not (fell or late):
                    break
        state = next_state
        if fell or late:
            state = env.reset()
        if step > args.start:
            losses.append(agent.learn(replay, 0.4 + 0.6 * step / args.steps))
        if step % args.report == 0 and step > args.start:
            found = evaluate(agent)
            print(f"step {step} critic loss {np.mean(losses[-args.report:]):.5f} return {found:.3f} priority {replay.priority[: replay.count].mean():.4f}")
            if found > best:
                best = found
                torch.save({"actor": agent.actor.state_dict(), "critics": agent.critics.state_dict(), "mean": torch.from_numpy(agent.scaler.mean), "m2": torch.from_numpy(agent.scaler.m2), "n": agent.scaler.n, "step": step}, "swing.pt")
    print(f"best return {best:.3f}")


if __name__ == "__main__":
    main()
