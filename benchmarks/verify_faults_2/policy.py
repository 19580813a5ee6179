"""Policy gradient on a small corridor: returns, a baseline, an entropy bonus; the loss crosses zero."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(17)


class Corridors:
    """Sixteen corridors at once: two to the right is the goal."""

    def __init__(self, count=16, length=9):
        self.count, self.length = count, length

    def reset(self):
        self.place = torch.randint(1, self.length - 1, (self.count,))
        self.goal = torch.randint(1, self.length - 1, (self.count,))
        return self.look()

    def look(self):
        return torch.stack([self.place / self.length, self.goal / self.length, (self.place - self.goal).float()], 1)

    def step(self, action):
        self.place = (self.place + action - 1).clamp(0, self.length - 1)
        reward = (self.place == self.goal).float() - 0.05
        return self.look(), reward


def returns(rewards, gamma=0.9):
    out, running = [], torch.zeros_like(rewards[0])
    for reward in reversed(rewards):
        running = reward + gamma * running
        out.append(running)
    return torch.stack(out[::-1])


def main():
    game = Corridors()
    actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3))
    critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    mean = 0.0
    for episode in range(40):
        seen, chances, rewards, entropies = [], [], [], []
        view = game.reset()
        for _ in range(10):
            choice = Categorical(logits=actor(view))
            action = choice.sample()
            seen.append(view)
            chances.append(choice.log_prob(action))
            entropies.append(choice.entropy())
            view, reward = game.step(action)
            rewards.append(reward)
        gain = returns(rewards)
        value = critic(torch.stack(seen)).squeeze(-1)
        advantage = gain - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        policy = -(torch.stack(chances) * advantage).mean()
        loss = policy + 0.5 * (value - gain).pow(2).mean() - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        mean = 0.9 * mean + 0.1 * torch.stack(rewards).sum(0).mean().item()
        if episode % 10 == 9:
            print(f"episode {episode}: reward {mean:.3f}")
    torch.save(actor.state_dict(), "actor.pt")


main()
