"""Double DQN that balances poles: eight carts in parallel, replay memory, target network, epsilon that decays."""
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn

NUM_ENVS = 8
LIMIT = 100  # a pole that stands this long is put down again (truncated, not failed)
ITERATIONS = 1200
START = 60
BATCH_SIZE = 64
MEMORY = 5000
GAMMA = 0.97
SYNC_EVERY = 80
LR = 2e-3
EPS_START, EPS_END, EPS_STEPS = 1.0, 0.08, 800


class CartPoles:
    """Vectorized cart poles with automatic reset, after the classic equations."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.state = self.fresh(n)
        self.age = np.zeros(n, dtype=np.int64)

    def fresh(self, n):
        return self.rng.uniform(-0.1, 0.1, (n, 4))

    def observe(self):
        return self.state.astype(np.float32)

    def step(self, actions):
        x, v, angle, spin = self.state.T
        push = np.where(actions == 1, 10.0, -10.0) + self.rng.normal(0, 1.0, self.n)
        sin, cos = np.sin(angle), np.cos(angle)
        temp = (push + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        drive = temp - 0.05 * turn * cos / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * drive, angle + 0.02 * spin, spin + 0.02 * turn], 1)
        self.age += 1
        terminated = (np.abs(self.state[:, 0]) > 1.2) | (np.abs(self.state[:, 2]) > 0.21)
        truncated = ~terminated & (self.age >= LIMIT)
        final, lengths = self.observe(), self.age.copy()
        over = terminated | truncated
        self.state[over] = self.fresh(int(over.sum()))
        self.age[over] = 0
        reward = 1.0 - 0.3 * np.abs(final[:, 0]).astype(np.float32)
        return self.observe(), reward, terminated, truncated, final, lengths[over]


class Replay:
    def __init__(self, capacity):
        self.items = deque(maxlen=capacity)

    def __len__(self):
        return len(self.items)

    def add(self, obs, actions, rewards, next_obs, terminated):
        for item in zip(obs, actions, rewards, next_obs, terminated):
            self.items.append(item)

    def sample(self, k):
        obs, actions, rewards, next_obs, terminated = zip(*random.sample(self.items, k))
        return (
            torch.tensor(np.array(obs)),
            torch.tensor(np.array(actions)),
            torch.tensor(np.array(rewards)),
            torch.tensor(np.array(next_obs)),
            torch.tensor(np.array(terminated), dtype=torch.float32),
        )


class QNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, 2)

    def forward(self, obs):
        h = self.body(obs * torch.tensor([1.0, 0.7, 5.0, 0.7]))
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)


def act(net, obs, epsilon, rng):
    with torch.no_grad():
        greedy = net(torch.from_numpy(obs)).argmax(1).numpy()
    explore = rng.random(len(obs)) < epsilon
    return np.where(explore, rng.integers(0, 2, len(obs)), greedy)


def td_loss(net, target_net, batch):
    obs, actions, rewards, next_obs, terminated = batch
    q = net(obs).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = net(next_obs).argmax(1, keepdim=True)
        next_q = target_net(next_obs).gather(1, best).squeeze(1)
        wanted = rewards + GAMMA * (1 - terminated) * next_q
    error = (q - wanted).abs()
    return torch.where(error < 1, 0.5 * error**2, error - 0.5).mean(), q.detach().mean()


def evaluate(net, episodes=20, seed=99):
    envs, rng, lengths = CartPoles(20, seed), np.random.default_rng(seed), []
    obs = envs.observe()
    while len(lengths) < episodes:
        obs, _, _, _, _, ended = envs.step(act(net, obs, 0.02, rng))
        lengths += ended.tolist()
    return float(np.mean(lengths))


def main():
    random.seed(5)
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    envs = CartPoles(NUM_ENVS, 6)
    net, target_net = QNet(), QNet()
    target_net.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    memory = Replay(MEMORY)
    lengths, losses, qs, updates = deque(maxlen=40), [], [], 0
    obs = envs.observe()
    for iteration in range(ITERATIONS):
        epsilon = max(EPS_END, EPS_START + (EPS_END - EPS_START) * iteration / EPS_STEPS)
        actions = act(net, obs, epsilon, rng)
        next_obs, rewards, terminated, truncated, final, ended = envs.step(actions)
        memory.add(obs, actions, rewards, final, terminated)
        lengths.extend(ended.tolist())
        obs = next_obs
        if iteration >= START:
            loss, mean_q = td_loss(net, target_net, memory.sample(BATCH_SIZE))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            optimizer.step()
            updates += 1
            losses.append(loss.item())
            qs.append(mean_q.item())
            if updates % SYNC_EVERY == 0:
                target_net.load_state_dict(net.state_dict())
        if (iteration + 1) % 200 == 0:
            print(f"iteration {iteration + 1} epsilon {epsilon:.3f} length {np.mean(lengths):.2f} loss {np.mean(losses):.5f} q {np.mean(qs):.4f} test {evaluate(net):.2f}")
            losses, qs = [], []
    torch.save({"net": net.state_dict(), "target": target_net.state_dict(), "updates": updates}, "pole.pt")
    print(f"final test length {evaluate(net, 60, 100):.2f}")


if __name__ == "__main__":
    main()
