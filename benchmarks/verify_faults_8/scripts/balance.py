"""Double DQN that balances a pole."""
import collections
import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

SEED = 21
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

Transition = collections.namedtuple("Transition", "state action reward next_state done")


class Pole:
    """The cart and the pole of Barto, Sutton and Anderson. The state is an array of four."""

    limit = 50

    def reset(self):
        self.state = np.random.uniform(-0.05, 0.05, size=4)
        self.t = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, a, w = self.state
        force = 10.0 if action == 1 else -10.0
        temp = (force + 0.05 * w * w * math.sin(a)) / 1.1
        acc = (9.8 * math.sin(a) - math.cos(a) * temp) / (0.5 * (4.0 / 3.0 - 0.1 * math.cos(a) ** 2 / 1.1))
        push = temp - 0.05 * acc * math.cos(a) / 1.1
        self.state = self.state + 0.02 * np.array([v, push, w, acc])
        self.t += 1
        fell = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095)
        return self.state.astype(np.float32), 1.0, fell, self.t >= self.limit


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = collections.deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        state = torch.from_numpy(np.stack(batch.state))
        action = torch.tensor(batch.action)
        reward = torch.tensor(batch.reward)
        next_state = torch.from_numpy(np.stack(batch.next_state))
        done = torch.tensor(batch.done, dtype=torch.float32)
        return state, action, reward, next_state, done

    def __len__(self):
        return len(self.memory)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x):
        return self.net(x)


class Agent:
    gamma = 0.98
    batch_size = 64
    target_every = 150

    def __init__(self):
        self.policy = QNet()
        self.target = copy.deepcopy(self.policy)
        self.optimizer = optim.Adam(self.policy.parameters(), lr=2e-3)
        self.loss_fn = nn.SmoothL1Loss()
        self.buffer = ReplayBuffer(1500)

    def epsilon(self, step):
        return 0.1 + 0.9 * math.exp(-step / 500)

    def act(self, state, step):
        if random.random() < self.epsilon(step):
            return random.randrange(2)
        with torch.no_grad():
            return self.policy(torch.from_numpy(state)[None]).argmax(dim=1).item()

    def learn(self):
        state, action, reward, next_state, done = self.buffer.sample(self.batch_size)
        q = self.policy(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.policy(next_state).argmax(dim=1, keepdim=True)
            future = self.target(next_state).gather(1, best).squeeze(1)
            goal = reward + self.gamma * (1 - done) * future
        loss = self.loss_fn(q, goal)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 5.0)
        self.optimizer.step()
        return loss.item(), q.mean().item()


def evaluate(agent, episodes=8):
    env = Pole()
    total = 0.0
    for _ in range(episodes):
        state, over = env.reset(), False
        while not over:
            with torch.no_grad():
                action = agent.policy(torch.from_numpy(state)[None]).argmax(dim=1).item()
            state, reward, fell, late = env.step(action)
            total += reward
            over = fell or late
    return total / episodes


def main(total_steps=2400, start=200, train_every=3):
    env, agent = Pole(), Agent()
    state = env.reset()
    episode, returns = 0.0, []
    losses, values = [], []
    for step in range(1, total_steps + 1):
        action = agent.act(state, step)
        next_state, reward, fell, late = env.step(action)
        agent.buffer.push(state, action, reward, next_state, fell)
        episode += reward
        state = next_state
        if fell or late:
            returns.append(episode)
            episode = 0.0
            state = env.reset()
        if step >= start and step % train_every == 0:
            loss, value = agent.learn()
            losses.append(loss)
            values.append(value)
        if step % agent.target_every == 0:
            agent.target.load_state_dict(agent.policy.state_dict())
        if step % 400 == 0:
            print(
                f"step {step:5d} | episodes {len(returns):3d} | return {np.mean(returns[-10:]):6.1f} | loss {np.mean(losses[-100:]):.4f}"
                f" | q {np.mean(values[-100:]):.3f} | eps {agent.epsilon(step):.3f}"
            )
    print(f"evaluation: {evaluate(agent):.1f}")
    torch.save(agent.policy.state_dict(), "balance.pth")


if __name__ == "__main__":
    main()
