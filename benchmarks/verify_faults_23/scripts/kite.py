"""A controller that is trained through the simulator: it holds a pole upright while masses, winds and sensors vary."""
import math

import torch
import torch.nn as nn

HORIZON, BATCH, EPOCHS, ITERATIONS, LR = 30, 48, 5, 18, 3e-3
STEP, PULL, SENSOR, GUST, CALM, DISCOUNT = 0.05, 9.8, 0.04, 0.8, 0.9, 0.98
LIGHT, HEAVY, SHORT, LONG = 0.7, 1.3, 0.8, 1.2


class Controller(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, seen):
        return 12 * torch.tanh(self.net(seen).squeeze(-1))


class World:
    """Poles of their own mass and length, with a wind that comes in gusts."""

    def __init__(self, count, generator=None):
        self.count, self.generator = count, generator
        self.mass = LIGHT + (HEAVY - LIGHT) * torch.rand(count, generator=generator)
        self.length = SHORT + (LONG - SHORT) * torch.rand(count, generator=generator)
        self.angle = 0.5 * math.pi * (2 * torch.rand(count, generator=generator) - 1)
        self.speed = 0.5 * torch.randn(count, generator=generator)
        self.wind = GUST * torch.randn(count, generator=generator)

    def seen(self, noisy):
        """What the controller sees: sine, cosine and speed, and the wind of now."""
        seen = torch.stack([self.angle.sin(), self.angle.cos(), self.speed / 4, self.wind], -1)
        if noisy:
            seen = seen + SENSOR * torch.randn(self.count, 4, generator=self.generator)
        return seen

    def move(self, push):
        fresh = torch.randn(self.count, generator=self.generator)
        self.wind = CALM * self.wind + math.sqrt(1 - CALM**2) * GUST * fresh
        turning = PULL / self.length * self.angle.sin() + (push + self.wind) / (self.mass * self.length**2)
        self.speed = self.speed + STEP * (turning - 0.1 * self.speed)
        self.angle = self.angle + STEP * self.speed

    def cost(self, push):
        return (1 - self.angle.cos()) + 0.02 * self.speed.square() + 0.001 * push.square()


def flight(controller, world, noisy=True):
    """The discounted cost of each pole, and how many stand at the end."""
    total, weight = torch.zeros(world.count), 1.0
    for _ in range(HORIZON):
        push = controller(world.seen(noisy))
        world.move(push)
        total = total + weight * world.cost(push)
        weight *= DISCOUNT
    return total / HORIZON, (world.angle.cos() > 0.95).float()


@torch.no_grad()
def judge(controller):
    """Over poles that are always the same."""
    controller.eval()
    g = torch.Generator().manual_seed(99)
    cost, standing = flight(controller, World(200, g), noisy=False)
    return cost.mean().item(), standing.mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    controller = Controller()
    optimizer = torch.optim.AdamW(controller.parameters(), lr=LR, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    history = []
    for epoch in range(1, EPOCHS + 1):
        controller.train()
        costs = []
        for _ in range(ITERATIONS):
            cost, _ = flight(controller, World(BATCH))
            loss = cost.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(controller.parameters(), 1.0)
            optimizer.step()
            costs.append(loss.item())
        scheduler.step()
        cost, standing = judge(controller)
        history.append(cost)
        print(f"epoch {epoch}: training cost {sum(costs) / len(costs):.4f} cost {cost:.4f} standing {standing:.3f}")
    torch.save(controller.state_dict(), "kite.pt")
    print(f"best cost {min(history):.4f}")


if __name__ == "__main__":
    main()
