"""Double DQN for a heron that wades after fish: replay, returns of three steps, dueling heads, target network copied now and then, epsilon that falls, Huber loss, greedy trips for evaluation."""
import copy
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

STEPS, START, EVERY, COPY = 2400, 200, 2, 120
GAMMA, N_STEP, BATCH, LR = 0.95, 3, 32, 2e-3
CAPACITY = 1500


class Marsh:
    """A heron at a place in [-1, 1]^2 takes steps in four directions or strikes; a strike near the fish ends the trip well, elsewhere it drives the fish away."""

    LIMIT = 25
    MOVES = torch.tensor([[0.2, 0.0], [-0.2, 0.0], [0.0, 0.2], [0.0, -0.2], [0.0, 0.0]])

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def observe(self):
        return torch.cat([self.pos, self.fish - self.pos, torch.tensor([self.t / self.LIMIT])])

    def reset(self):
        self.pos, self.fish = 2 * torch.rand(2, 2, generator=self.g) - 1
        self.t = 0
        return self.observe()

    def step(self, action):
        before = (self.fish - self.pos).norm().item()
        self.pos = (self.pos + self.MOVES[action]).clamp(-1, 1)
        self.fish = (self.fish + 0.05 * torch.randn(2, generator=self.g)).clamp(-1, 1)
        self.t += 1
        dist = (self.fish - self.pos).norm().item()
        caught = action == 4 and dist < 0.35
        reward = before - dist + (2.0 if caught else -0.5 if action == 4 else 0.0)
        if action == 4 and not caught:
            self.fish = 2 * torch.rand(2, generator=self.g) - 1
        return self.observe(), reward, caught, self.t >= self.LIMIT and not caught


class Dueling(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.gain = nn.Linear(width, 1), nn.Linear(width, 5)

    def forward(self, x):
        h = self.body(x)
        gain = self.gain(h)
        return self.value(h) + gain - gain.mean(-1, keepdim=True)


class Replay:
    """A ring of rows: observation, action, return of up to N_STEP rewards, observation after them, discount (nought after an end)."""

    def __init__(self):
        self.obs, self.after = torch.zeros(CAPACITY, 5), torch.zeros(CAPACITY, 5)
        self.action = torch.zeros(CAPACITY, dtype=torch.long)
        self.ret, self.discount = torch.zeros(CAPACITY), torch.zeros(CAPACITY)
        self.at, self.size = 0, 0

    def add(self, obs, action, ret, after, discount):
        i = self.at
        self.obs[i], self.action[i], self.ret[i], self.after[i], self.discount[i] = obs, action, ret, after, discount
        self.at = (i + 1) % CAPACITY
        self.size = min(self.size + 1, CAPACITY)

    def sample(self):
        idx = torch.randint(0, self.size, (BATCH,))
        return self.obs[idx], self.action[idx], self.ret[idx], self.after[idx], self.discount[idx]


def store(replay, window, after, ended):
    """The oldest row of the window, with all the rewards in it."""
    obs, action, _ = window[0]
    ret = sum(GAMMA**k * r for k, (_, _, r) in enumerate(window))
    replay.add(obs, action, ret, after, 0.0 if ended else GAMMA ** len(window))


@torch.no_grad()
def evaluate(q, trips=10):
    marsh, total, caught = Marsh(1000), 0.0, 0
    for _ in range(trips):
        obs, over = marsh.reset(), False
        while not over:
            obs, reward, hit, cut = marsh.step(q(obs).argmax().item())
            total, caught, over = total + reward, caught + hit, hit or cut
    return total / trips, caught / trips


def main():
    torch.manual_seed(8)
    marsh, replay, window = Marsh(0), Replay(), deque()
    q = Dueling()
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 500, gamma=0.6)
    obs, losses, guesses = marsh.reset(), [], []
    for step in range(STEPS):
        epsilon = max(0.1, 1.0 - step / 1200)
        if torch.rand(1).item() < epsilon:
            action = torch.randint(0, 5, (1,)).item()
        else:
            with torch.no_grad():
                action = q(obs).argmax().item()
        after, reward, ended, cut = marsh.step(action)
        window.append((obs, action, reward))
        if len(window) == N_STEP:
            store(replay, window, after, ended)
            window.popleft()
        if ended or cut:
            while window:
                store(replay, window, after, ended)
                window.popleft()
            after = marsh.reset()
        obs = after
        if step >= START and step % EVERY == 0:
            o, a, ret, nxt, discount = replay.sample()
            with torch.no_grad():
                choice = q(nxt).argmax(1, keepdim=True)
                goal = ret + discount * target(nxt).gather(1, choice).squeeze(1)
            guess = q(o).gather(1, a.unsqueeze(1)).squeeze(1)
            loss = F.smooth_l1_loss(guess, goal)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(q.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            guesses.append(guess.mean().item())
        if (step + 1) % COPY == 0:
            target.load_state_dict(q.state_dict())
        if (step + 1) % 600 == 0:
            gain, caught = evaluate(q)
            print(f"step {step + 1} loss {sum(losses) / len(losses):.5f} guess {sum(guesses) / len(guesses):.4f} epsilon {epsilon:.3f} gain {gain:.4f} caught {caught:.2f}")
            losses, guesses = [], []
    torch.save({"q": q.state_dict(), "target": target.state_dict(), "optimizer": optimizer.state_dict()}, "heron.pt")
    gain, caught = evaluate(q, trips=25)
    print(f"final gain {gain:.4f} caught {caught:.3f} lr {scheduler.get_last_lr()[0]:.6f}")


if __name__ == "__main__":
    main()
