"""Mean teacher on tide gauges: few labelled curves and many without, a teacher that follows the student, weak and strong views, consistency with a ramp and a threshold, balanced accuracy."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

KINDS, LENGTH = 4, 48
EPOCHS, LABELLED, FREE = 9, 12, 36
DECAY, SURE, RAMP, SHARP = 0.97, 0.6, 60, 0.7


def make_curves(n, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.multinomial(torch.tensor([0.4, 0.3, 0.2, 0.1]), n, replacement=True, generator=g)
    t = torch.arange(LENGTH) / LENGTH
    phase, speed = torch.rand(n, 1, generator=g) * 2 * math.pi, torch.tensor([2.0, 3.0, 4.0, 3.0])[kind, None] + 0.2 * torch.randn(n, 1, generator=g)
    wave = torch.sin(2 * math.pi * speed * t + phase)
    wave = torch.where(kind[:, None] == 3, wave.sign() * wave.abs().sqrt(), wave)
    second = torch.cos(2 * math.pi * speed * t + phase) * (0.5 + 0.2 * kind[:, None])
    return torch.stack([wave, second], 1) + 0.6 * torch.randn(n, 2, LENGTH, generator=g), kind


def weak(x):
    """Turns each curve by up to four places."""
    shift = torch.randint(-4, 5, (len(x), 1))
    where = (torch.arange(LENGTH) - shift) % LENGTH
    return x.gather(2, where[:, None].expand(-1, x.size(1), -1))


def strong(x):
    """Besides, scaled, noisy and with a gap."""
    x = weak(x) * (0.6 + 0.8 * torch.rand(len(x), 1, 1)) + 0.3 * torch.randn(x.shape)
    start = torch.randint(0, LENGTH - 8, (len(x), 1, 1))
    t = torch.arange(LENGTH)
    return x.masked_fill((t >= start) & (t < start + 8), 0.0)


class Net(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv1d(2, width, 7, padding=3, bias=False), nn.BatchNorm1d(width)
        self.conv2, self.norm2 = nn.Conv1d(width, 2 * width, 5, stride=2, padding=2, bias=False), nn.BatchNorm1d(2 * width)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(4 * width, KINDS)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.head(self.drop(torch.cat([x.mean(2), x.amax(2)], 1)))


@torch.no_grad()
def follow(teacher, student):
    for a, p in zip(teacher.parameters(), student.parameters()):
        a.mul_(DECAY).add_(p, alpha=1 - DECAY)
    for a, b in zip(teacher.buffers(), student.buffers()):
        a.copy_(b)


def evaluate(model, x, y, batch=90):
    """Loss, and the mean of the recalls of the kinds."""
    model.eval()
    loss, hits, counts = 0.0, torch.zeros(KINDS), torch.zeros(KINDS)
    with torch.no_grad():
        for xb, yb in zip(x.split(batch), y.split(batch)):
            logits = model(xb)
            loss += F.cross_entropy(logits, yb, reduction="sum").item()
            counts += torch.bincount(yb, minlength=KINDS)
            hits += torch.bincount(yb[logits.argmax(1) == yb], minlength=KINDS)
    model.train()
    return loss / len(x), (hits / counts).mean().item()


def main():
    torch.manual_seed(606)
    x, y = make_curves(100, 0)
    free, _ = make_curves(700, 1)
    test_x, test_y = make_curves(400, 2)
    mean, std = free.mean((0, 2), keepdim=True), free.std((0, 2), keepdim=True)
    x, free, test_x = (x - mean) / std, (free - mean) / std, (test_x - mean) / std
    student = Net()
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.04, momentum=0.9, nesterov=True, weight_decay=1e-3)
    per_epoch = math.ceil(len(free) / FREE)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * per_epoch)
    prior, step = torch.full((KINDS,), 1 / KINDS), 0
    for epoch in range(EPOCHS):
        sums, taken, seen = torch.zeros(2), 0.0, 0
        for idx in torch.randperm(len(free)).split(FREE):
            known = torch.randint(0, len(x), (LABELLED,))
            xl, xs, xw = weak(x[known]), strong(free[idx]), weak(free[idx])
            logits = student(torch.cat([xl, xs]))
            told, blind = logits[:LABELLED], logits[LABELLED:]
            teacher.eval()
            with torch.no_grad():
                guess = teacher(xw).softmax(1)
                prior = 0.95 * prior + 0.05 * guess.mean(0)
                guess = (guess / prior * prior.mean()) ** (1 / SHARP)
                guess = guess / guess.sum(1, keepdim=True)
            sure = (guess.amax(1) >= SURE).to(guess.dtype)
            weight = math.exp(-5 * (1 - min(step / RAMP, 1)) ** 2)
            loss_told = F.cross_entropy(told, y[known])
            loss_free = (F.cross_entropy(blind, guess, reduction="none") * sure).mean()
            loss = loss_told + weight * loss_free
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            follow(teacher, student)
            step += 1
            sums += torch.stack([loss_told, loss_free]).detach() * len(idx)
            taken += sure.sum().item()
            seen += len(idx)
        loss, balanced = evaluate(student, test_x, test_y)
        t_loss, t_balanced = evaluate(teacher, test_x, test_y)
        print(f"epoch {epoch + 1} told {sums[0] / seen:.4f} free {sums[1] / seen:.4f} sure {taken / seen:.4f} student {loss:.4f} {balanced:.4f} teacher {t_loss:.4f} {t_balanced:.4f}")
    torch.save({"student": student.state_dict(), "teacher": teacher.state_dict(), "prior": prior}, "tide.pt")
    print(f"final teacher {t_loss:.4f} balanced {t_balanced:.4f}")


if __name__ == "__main__":
    main()
