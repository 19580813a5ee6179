"""Actions that are real numbers: clipped policy updates over minibatches, generalised advantages, a running mean of what is observed."""

import json

import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(63)
PLACES, TIME = 24, 12


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, seen):
        return Normal(self.actor(seen), self.log_std.exp()), self.critic(seen).squeeze(-1)


class Running:
    def __init__(self):
        self.count, self.mean, self.square = 1e-4, torch.zeros(4), torch.ones(4)

    def update(self, rows):
        share = len(rows) / (self.count + len(rows))
        self.mean = self.mean + share * (rows.mean(0) - self.mean)
        self.square = self.square + share * (rows.pow(2).mean(0) - self.square)
        self.count += len(rows)

    def __call__(self, rows):
        return (rows - self.mean) / (self.square - self.mean**2).clamp(min=1e-4).sqrt()


def start(count):
    return torch.cat([torch.rand(count, 2) * 4 - 2, torch.rand(count, 2) * 2 + 1], 1)


def move(state, action):
    place = state[:, :2] + 0.5 * action.clamp(-1, 1)
    state = torch.cat([place, state[:, 2:]], 1)
    far = (place - state[:, 2:]).norm(dim=1)
    return state, -far, far < 0.3


def advantages(rewards, values, ends, last, gamma=0.97, decay=0.9):
    found, running = [], torch.zeros(PLACES)
    for reward, value, end in zip(reversed(rewards), reversed(values), reversed(ends)):
        alive = 1.0 - end.float()
        delta = reward + gamma * last * alive - value
        running = delta + gamma * decay * alive * running
        found.append(running)
        last = value
    return torch.stack(found[::-1])


def main():
    agent, norm = Agent(), Running()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    history = []
    for update in range(8):
        state = start(PLACES)
        seen, actions, chances, rewards, values, ends = [], [], [], [], [], []
        with torch.no_grad():
            for _ in range(TIME):
                norm.update(state)
                view = norm(state)
                choice, value = agent(view)
                action = choice.mean + choice.stddev * torch.randn(PLACES, 2)
                state, reward, end = move(state, action)
                seen.append(view)
                actions.append(action)
                chances.append(choice.log_prob(action).sum(1))
                rewards.append(reward)
                values.append(value)
                ends.append(end)
                state = torch.where(end[:, None], start(PLACES), state)
            _, last = agent(norm(state))
            gain = advantages(rewards, values, ends, last).flatten()
        seen, actions, chances = torch.cat(seen), torch.cat(actions), torch.cat(chances)
        aim = gain + torch.cat(values)
        parts = []
        for _ in range(3):
            for rows in torch.randperm(len(seen)).split(72):
                choice, value = agent(seen[rows])
                ratio = (choice.log_prob(actions[rows]).sum(1) - chances[rows]).exp()
                good = (gain[rows] - gain[rows].mean()) / (gain[rows].std() + 1e-6)
                policy = -torch.min(ratio * good, ratio.clamp(0.8, 1.2) * good).mean()
                critic = (value - aim[rows]).pow(2).mean()
                loss = policy + 0.5 * critic - 0.01 * choice.entropy().sum(1).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                parts.append(critic.item())
        history.append({"update": update, "reward": torch.stack(rewards).mean().item(), "critic": sum(parts) / len(parts)})
        print("update {update} reward {reward:.4f} critic {critic:.4f}".format(**history[-1]))
    torch.save({"agent": agent.state_dict(), "mean": norm.mean, "square": norm.square}, "agent.pt")
    with open("history.json", "w") as file:
        json.dump(history, file)


main()
