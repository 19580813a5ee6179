# -*- coding: utf-8 -*-
"""
Double DQN on a slippery grid world (no gym needed).
Mostly follows the "REINFORCEMENT LEARNING (DQN) TUTORIAL", plus dueling heads,
double-q targets and polyak averaging of the target net.
"""
import math
import random
from collections import namedtuple, deque
from itertools import count

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

SEED = 42
BATCH_SIZE = 64
GAMMA = 0.97
EPS_START, EPS_END, EPS_DECAY = 0.95, 0.05, 350
TAU = 0.02
LR = 1e-3
MEMORY = 5000
WARMUP = 200
NUM_EPISODES = 24
EVAL_EVERY = 12
MAX_T = 60

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward'))


class GridWorld:
    """7x7, walls, one goal, two pits. Observation: agent one-hot + wall map + goal distance."""
    N = 7
    MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.walls = {(1, 1), (1, 2), (3, 3), (4, 3), (5, 5), (2, 5)}
        self.pits = {(3, 5), (5, 1)}
        self.goal = (6, 6)

    def reset(self):
        while True:
            self.pos = tuple(self.rng.randint(0, 4, 2))
            if self.pos not in self.walls:
                break
        self.t = 0
        return self.obs()

    def obs(self):
        a = np.zeros((self.N, self.N), dtype=np.float32)
        a[self.pos] = 1.
        w = np.zeros((self.N, self.N), dtype=np.float32)
        for p in self.walls:
            w[p] = 1.
        for p in self.pits:
            w[p] = -1.
        d = [(self.goal[0] - self.pos[0]) / self.N, (self.goal[1] - self.pos[1]) / self.N]
        return np.concatenate([a.ravel(), w.ravel(), np.array(d, dtype=np.float32)])

    def step(self, action):
        self.t += 1
        if self.rng.rand() < 0.1:
            action = self.rng.randint(4)
        dy, dx = self.MOVES[action]
        new = (self.pos[0] + dy, self.pos[1] + dx)
        if 0 <= new[0] < self.N and 0 <= new[1] < self.N and new not in self.walls:
            self.pos = new
        if self.pos == self.goal:
            return self.obs(), 1.0, True
        if self.pos in self.pits:
            return self.obs(), -1.0, True
        return self.obs(), -0.02, self.t >= MAX_T


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DuelingDQN(nn.Module):
    def __init__(self, n_obs, n_actions, hidden=128):
        super(DuelingDQN, self).__init__()
        self.layer1 = nn.Linear(n_obs, hidden)
        self.norm1 = nn.LayerNorm(hidden)
        self.layer2 = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, 1)
        self.adv = nn.Linear(hidden, n_actions)

    def forward(self, x):
        x = F.relu(self.norm1(self.layer1(x)))
        x = F.relu(self.layer2(x))
        v, a = self.value(x), self.adv(x)
        return v + a - a.mean(dim=1, keepdim=True)


class Agent:
    def __init__(self, n_obs, n_actions):
        self.n_actions = n_actions
        self.policy_net = DuelingDQN(n_obs, n_actions).to(device)
        self.target_net = DuelingDQN(n_obs, n_actions).to(device)
        self.target_net.load_state_dict(self.policy_net.state_dict())
        self.target_net.eval()
        self.optimizer = optim.AdamW(self.policy_net.parameters(), lr=LR, amsgrad=True)
        self.memory = ReplayMemory(MEMORY)
        self.steps_done = 0
        self.losses = []
        self.q_trace = []

    def select_action(self, state):
        sample = random.random()
        eps = EPS_END + (EPS_START - EPS_END) * math.exp(-1. * self.steps_done / EPS_DECAY)
        self.steps_done += 1
        q = self.policy_net(state)
        if sample > eps:
            return q.max(1)[1].view(1, 1)
        return torch.tensor([[random.randrange(self.n_actions)]], device=device, dtype=torch.long)

    def optimize_model(self):
        if len(self.memory) < WARMUP:
            return
        transitions = self.memory.sample(BATCH_SIZE)
        # Transpose the batch: converts batch-array of Transitions to Transition of batch-arrays.
        batch = Transition(*zip(*transitions))

        non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)),
                                      device=device, dtype=torch.bool)
        non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
        state_batch = torch.cat(batch.state)
        action_batch = torch.cat(batch.action)
        reward_batch = torch.cat(batch.reward)

        state_action_values = self.policy_net(state_batch).gather(1, action_batch)

        # double DQN: argmax from the online net, value from the target net
        next_state_values = torch.zeros(BATCH_SIZE, device=device)
        best = self.policy_net(non_final_next_states).max(1)[1].detach()
        next_q = self.target_net(non_final_next_states).detach()
        next_state_values[non_final_mask] = next_q.gather(1, best.unsqueeze(1)).squeeze(1)
        expected = (next_state_values * GAMMA) + reward_batch

        loss = F.smooth_l1_loss(state_action_values, expected.unsqueeze(1))
        self.optimizer.zero_grad()
        loss.backward()
        for param in self.policy_net.parameters():
            param.grad.data.clamp_(-1, 1)
        self.optimizer.step()

        self.losses.append(loss)
        self.q_trace.append(state_action_values.mean().item())

    def soft_update(self):
        target_sd = self.target_net.state_dict()
        policy_sd = self.policy_net.state_dict()
        for key in policy_sd:
            target_sd[key] = policy_sd[key] * TAU + target_sd[key] * (1 - TAU)
        self.target_net.load_state_dict(target_sd)


def to_state(obs):
    return torch.from_numpy(obs).unsqueeze(0).to(device)


def evaluate(agent, episodes=6):
    total, lengths = 0.0, 0
    for k in range(episodes):
        env = GridWorld(seed=900 + k)
        obs = env.reset()
        done = False
        while not done:
            q = agent.policy_net(to_state(obs))
            obs, r, done = env.step(q.argmax(1).item())
            total += r
        lengths += env.t
    return total / episodes, lengths / episodes


def main():
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)

    env = GridWorld(SEED)
    agent = Agent(len(env.reset()), 4)
    returns = []

    for ep in range(1, NUM_EPISODES + 1):
        state = to_state(env.reset())
        ret = 0.0
        for t in count():
            action = agent.select_action(state)
            obs, reward, terminated = env.step(action.item())
            ret += reward
            reward = torch.tensor([reward], device=device)
            # time-outs are not terminal states
            timeout = terminated and env.t >= MAX_T
            next_state = None if (terminated and not timeout) else to_state(obs)
            agent.memory.push(state, action, next_state, reward)
            state = next_state
            agent.optimize_model()
            agent.soft_update()
            if terminated:
                break
        returns.append(ret)
        if ep % 6 == 0 and agent.losses:
            recent = torch.stack(agent.losses[-100:]).mean()
            print(f"episode {ep:3d}  steps {agent.steps_done:5d}  return {np.mean(returns[-6:]):8.5f}  "
                  f"loss {recent.item():.7f}  q {np.mean(agent.q_trace[-100:]):.6f}")
        if ep % EVAL_EVERY == 0:
            r, n = evaluate(agent)
            print(f"   eval return {r:.5f}  length {n:.3f}")
            torch.save(agent.policy_net.state_dict(), "/tmp/dqn_gridworld.pt")

    print("final loss %.8f" % torch.stack(agent.losses).mean().item())


if __name__ == '__main__':
    main()
