"""Tells crickets by their chirps with neurons that spike: chirps become spikes afresh at every visit, leaks are learned, gradients go through a stand-in, norms step by step, rates that swing, and an average of the weights at the low points."""
import torch
import torch.nn.functional as F
from torch import nn

TIME, BANDS, KINDS, WIDTH = 20, 16, 5, 40
EPOCHS, BATCH, LOW, HIGH, FROM = 12, 32, 0.01, 0.15, 6
WANTED, RATE, SLOPE = 0.12, 8.0, 5.0


def make_chirps(n, seed):
    """Chance of a spike by time and band (n, TIME, BANDS): a pulse and its overtone that move, with another beat for each kind."""
    g = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (n,), generator=g)
    t, b = torch.arange(TIME).view(1, -1, 1), torch.arange(BANDS).view(1, 1, -1)
    beat = torch.tensor([3.0, 4.0, 8.0, 6.0, 5.0])[kinds].view(-1, 1, 1)
    drift = torch.tensor([0.0, 0.25, 0.0, -0.2, 0.1])[kinds].view(-1, 1, 1)
    over = torch.tensor([4.0, 6.0, 7.0, 5.0, 8.0])[kinds].view(-1, 1, 1)
    base = 4 + 3 * torch.rand(n, 1, 1, generator=g) + drift * t
    on = 0.5 + 0.5 * torch.sin(2 * torch.pi * (t / beat + torch.rand(n, 1, 1, generator=g)))
    chance = on * (0.9 * torch.exp(-((b - base) ** 2) / 3) + 0.6 * torch.exp(-((b - base - over) ** 2) / 3))
    return (chance + 0.04 + 0.05 * torch.rand(n, 1, 1, generator=g)).clamp(0, 0.95), kinds


class Spike(torch.autograd.Function):
    """One above the threshold; backwards as if by a fast sigmoid."""

    @staticmethod
    def forward(ctx, over):
        ctx.save_for_backward(over)
        return (over > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (over,) = ctx.saved_tensors
        return grad / (1 + SLOPE * over.abs()) ** 2


class Layer(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.weight, self.norm = nn.Linear(inputs, WIDTH, bias=False), nn.BatchNorm1d(WIDTH)
        self.leak = nn.Parameter(torch.full((WIDTH,), 1.5))

    def forward(self, spikes):
        """(n, TIME, inputs) to (n, TIME, WIDTH). A neuron that has spiked falls by the threshold."""
        charge, keep, out = torch.zeros(len(spikes), WIDTH), self.leak.sigmoid(), []
        for t in range(TIME):
            current = self.norm(self.weight(spikes[:, t]))
            charge = keep * charge + current
            out.append(Spike.apply(charge - 1))
            charge = charge - out[-1].detach()
        return torch.stack(out, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.read = Layer(BANDS), Layer(WIDTH), nn.Linear(WIDTH, KINDS)

    def forward(self, spikes):
        """Logits: the mean over time of readers that leak; and the spikes of both layers."""
        first = self.first(spikes)
        second = self.second(first)
        level, levels = torch.zeros(len(spikes), KINDS), []
        for t in range(TIME):
            level = 0.9 * level + 0.1 * self.read(second[:, t])
            levels.append(level)
        return 4 * torch.stack(levels).mean(0), (first, second)


@torch.no_grad()
def evaluate(model, chirps, kinds, batch=50):
    """Loss, accuracy and rate with spikes that are the same every time."""
    model.eval()
    g = torch.Generator().manual_seed(4)
    loss, right, rate = 0.0, 0, 0.0
    for x, y in zip(chirps.split(batch), kinds.split(batch)):
        logits, layers = model(torch.bernoulli(x, generator=g))
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
        rate += sum(s.mean().item() for s in layers) / 2 * len(x)
    return loss / len(chirps), right / len(chirps), rate / len(chirps)


def main():
    torch.manual_seed(96)
    chirps, kinds = make_chirps(480, 1)
    held, held_kinds = make_chirps(250, 2)
    model = Net()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LOW, momentum=0.9, weight_decay=1e-4)
    period = 2 * len(chirps) // BATCH
    scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, LOW, HIGH, step_size_up=period // 3, step_size_down=period - period // 3, cycle_momentum=False)
    for epoch in range(EPOCHS):
        model.train()
        total, sum_calm, right = 0.0, 0.0, 0
        for idx in torch.randperm(len(chirps)).split(BATCH):
            spikes = torch.bernoulli(chirps[idx])
            logits, layers = model(spikes)
            loss = F.cross_entropy(logits, kinds[idx])
            calm = sum((s.mean((0, 1)) - WANTED).pow(2).mean() for s in layers)
            optimizer.zero_grad()
            (loss + RATE * calm).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(idx)
            sum_calm += calm.item() * len(idx)
            right += (logits.argmax(1) == kinds[idx]).sum().item()
        if epoch >= FROM - 1 and epoch % 2 == 1:
            averaged.update_parameters(model)
        held_loss, accuracy, rate = evaluate(model, held, held_kinds)
        n = len(chirps)
        print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]:.4f} loss {total / n:.5f} calm {sum_calm / n:.6f} accuracy {right / n:.4f} held {held_loss:.5f} accuracy {accuracy:.4f} rate {rate:.4f}")
    torch.optim.swa_utils.update_bn([torch.bernoulli(part) for part in chirps.split(BATCH)], averaged)
    held_loss, accuracy, rate = evaluate(averaged, held, held_kinds)
    torch.save({"model": averaged.module.state_dict(), "accuracy": accuracy}, "cricket.pt")
    print(f"average of {int(averaged.n_averaged)}: held {held_loss:.5f} accuracy {accuracy:.4f} rate {rate:.4f}")


if __name__ == "__main__":
    main()
