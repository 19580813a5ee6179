"""Signs on the quay by night, learned from signs by day: labels for the day alone, a judge of day or night behind a reversed gradient that grows, norms of their own for either, and night answers that must be sure."""
import math

import torch
import torch.nn.functional as F
from torch import nn

SIDE, KINDS, DAY, NIGHT = 12, 4, 0, 1
EPOCHS, BATCH, LR, SURE = 12, 32, 0.03, 0.1


def make_signs(n, night, seed):
    """Cross, frame, slash or bars. By night they are dim on a mottled wall; the lamp beside them gets brighter as the night wears on (rows in order)."""
    g = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (n,), generator=g)
    y, x = torch.meshgrid(torch.arange(SIDE) - 5.5, torch.arange(SIDE) - 5.5, indexing="ij")
    place = 3 * torch.rand(n, 2, 1, 1, generator=g) - 1.5
    u, v = x - place[:, 0], y - place[:, 1]
    inside = (u.abs() < 4) & (v.abs() < 4)
    shapes = torch.stack([(u.abs() < 1) | (v.abs() < 1), torch.maximum(u.abs(), v.abs()) > 2.5, (u - v).abs() < 1.3, v.remainder(3) < 1.2])
    sign = (shapes[kinds, torch.arange(n)] & inside).float()
    if night:
        lamp = torch.linspace(0, 1.5, n).view(-1, 1, 1) * torch.exp(-((x - 4) ** 2 + (y + 4) ** 2) / 12)
        sign = 0.5 * sign + lamp + 0.3 * torch.randn(1, SIDE, SIDE, generator=g)
    return (sign + 0.4 * torch.randn(n, SIDE, SIDE, generator=g)).unsqueeze(1), kinds


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(1, width, 3, padding=1, bias=False), nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)])
        self.norms = nn.ModuleList([nn.ModuleList([nn.BatchNorm2d(w) for w in (width, 2 * width)]) for _ in (DAY, NIGHT)])
        self.neck = nn.Linear(2 * width * 9, 32)
        self.label = nn.Sequential(nn.ReLU(), nn.Linear(32, KINDS))
        self.judge = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 1))

    def features(self, x, time):
        for conv, norm in zip(self.convs, self.norms[time]):
            x = F.max_pool2d(norm(conv(x)).relu(), 2)
        return self.neck(x.flatten(1))

    def forward(self, x, time):
        return self.label(self.features(x, time))


@torch.no_grad()
def evaluate(model, x, kinds, time, batch=50):
    """Accuracy, and the worst kind's."""
    model.eval()
    right = torch.cat([model(part, time).argmax(1) for part in x.split(batch)]) == kinds
    return right.float().mean().item(), min(right[kinds == k].float().mean().item() for k in range(KINDS))


@torch.no_grad()
def day_or_night(model, day, night):
    """How often the judge is right: half the time is what is wanted."""
    model.eval()
    is_day, is_night = (model.judge(model.features(x, time)) > 0 for x, time in ((day, DAY), (night, NIGHT)))
    return 0.5 * (is_day.float().mean() + (~is_night).float().mean()).item()


def main():
    torch.manual_seed(72)
    day, kinds = make_signs(448, False, 1)
    night, _ = make_signs(896, True, 2)
    held_day, held_night = make_signs(200, False, 3), make_signs(400, True, 2 + 2)
    model = Net()
    optimizer = torch.optim.SGD([
        {"params": [*model.convs.parameters(), *model.norms.parameters(), *model.neck.parameters()], "times": 1.0},
        {"params": model.label.parameters(), "times": 2.0},
        {"params": model.judge.parameters(), "times": 2.0, "weight_decay": 0.0},
    ], lr=LR, momentum=0.9, weight_decay=1e-3)
    steps, step = EPOCHS * (len(day) // BATCH), 0
    for epoch in range(EPOCHS):
        model.train()
        sums = {"label": 0.0, "judge": 0.0, "sure": 0.0}
        day_rows, night_rows = torch.randperm(len(day)), torch.randperm(len(night))
        for rows, others in zip(day_rows.split(BATCH), night_rows.split(BATCH)):
            done = step / steps
            strength = 2 / (1 + math.exp(-5 * done)) - 1
            for group in optimizer.param_groups:
                group["lr"] = LR * group["times"] / (1 + 10 * done) ** 0.75
            by_day, by_night = model.features(day[rows], DAY), model.features(night[others], NIGHT)
            label_loss = F.cross_entropy(model.label(by_day), kinds[rows])
            told_day, told_night = model.judge(Reverse.apply(by_day, strength)), model.judge(Reverse.apply(by_night, strength))
            judge_loss = -F.logsigmoid(told_day).mean() - F.logsigmoid(-told_night).mean()
            guess = model.label(by_night).log_softmax(1)
            unsure = -(guess.exp() * guess).sum(1).mean()
            optimizer.zero_grad()
            (label_loss + 0.25 * judge_loss + SURE * strength * unsure).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 3.0)
            optimizer.step()
            step += 1
            sums["label"] += label_loss.item()
            sums["judge"] += judge_loss.item()
            sums["sure"] += unsure.item()
        accuracy, _ = evaluate(model, *held_day, DAY)
        at_night, worst = evaluate(model, *held_night, NIGHT)
        told = " ".join(f"{k} {v / len(day) * BATCH:.5f}" for k, v in sums.items())
        print(f"epoch {epoch} strength {strength:.3f} lr {optimizer.param_groups[0]['lr']:.5f} {told} day {accuracy:.4f} night {at_night:.4f} worst {worst:.4f} told apart {day_or_night(model, held_day[0], held_night[0]):.4f}")
    torch.save({"model": model.state_dict(), "night": at_night}, "quay.pt")


if __name__ == "__main__":
    main()
