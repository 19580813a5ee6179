"""A policy that learns to walk along a line to a goal: REINFORCE with a learned baseline, an entropy bonus, discounts."""

import torch
from torch import nn
from torch.distributions import Categorical


class Line:
    """Many walkers at once; a walk ends at the goal or after twelve steps."""

    def __init__(self, many):
        self.many = many

    def reset(self):
        self.place = torch.randint(-4, 5, (self.many,)).float()
        self.goal = torch.where(torch.rand(self.many) < 0.5, -5.0, 5.0)
        self.done = torch.zeros(self.many, dtype=torch.bool)
        return self.look()

    def look(self):
        return torch.stack([self.place / 5, self.goal / 5, (self.place - self.goal) / 10], 1)

    def move(self, action):
        alive = ~self.done
        wind = (torch.rand(self.many) < 0.1).float()
        self.place = torch.where(alive, (self.place + (action.float() - 1) * (1 - 2 * wind)).clamp(-5, 5), self.place)
        arrived = alive & (self.place == self.goal)
        reward = torch.where(arrived, 5.0, -0.2) * alive
        self.done = self.done | arrived
        return self.look(), reward, alive


class Walker(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 32), nn.Tanh())
        self.policy = nn.Linear(32, 3)
        self.value = nn.Linear(32, 1)

    def forward(self, look):
        h = self.trunk(look)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(1)


def discounted(rewards, gamma):
    total, out = torch.zeros_like(rewards[0]), []
    for reward in reversed(rewards):
        total = reward + gamma * total
        out.insert(0, total)
    return torch.stack(out)


class Learner:
    gamma, bonus, weight = 0.95, 0.02, 0.5

    def __init__(self):
        self.walker = Walker()
        self.optimizer = torch.optim.Adam(self.walker.parameters(), lr=1e-2, eps=1e-5)
        self.world = Line(24)
        self.running = None

    def walk(self):
        look, memory = self.world.reset(), []
        for _ in range(12):
            choice, value = self.walker(look)
            action = choice.sample()
            look, reward, alive = self.world.move(action)
            memory.append((choice.log_prob(action), choice.entropy(), value, reward, alive))
        return zip(*memory)

    def learn(self):
        logs, entropies, values, rewards, alive = self.walk()
        alive = torch.stack(alive).float()
        returns = discounted(rewards, self.gamma)
        values = torch.stack(values)
        gain = (returns - values).detach()
        gain = (gain - gain[alive > 0].mean()) / (gain[alive > 0].std() + 1e-6)
        policy = -(torch.stack(logs) * gain * alive).sum() / alive.sum()
        value = ((values - returns).pow(2) * alive).sum() / alive.sum()
        entropy = (torch.stack(entropies) * alive).sum() / alive.sum()
        loss = policy + self.weight * value - self.bonus * entropy
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.walker.parameters(), 0.7)
        self.optimizer.step()
        score = torch.stack(rewards).sum(0).mean().item()
        self.running = score if self.running is None else 0.9 * self.running + 0.1 * score
        return loss.item(), entropy.item(), score

    @torch.no_grad()
    def greedy(self, walks=3):
        total = 0.0
        for _ in range(walks):
            look = self.world.reset()
            for _ in range(12):
                choice, _ = self.walker(look)
                look, reward, _ = self.world.move(choice.probs.argmax(1))
                total += reward.sum().item()
        return total / (walks * self.world.many)


torch.manual_seed(2)
learner = Learner()
for update in range(1, 61):
    loss, entropy, score = learner.learn()
    for group in learner.optimizer.param_groups:
        group["lr"] = 1e-2 * (1 - update / 75)
    if update % 15 == 0:
        print(f"{update} loss {loss:.4f} entropy {entropy:.4f} score {score:.3f} running {learner.running:.3f} greedy {learner.greedy():.3f}")
        torch.save(learner.walker.state_dict(), f"walker_{update}.pt")
