# GRU forecaster over parallel streams, truncated BPTT with carried hidden state, scheduled sampling.
import torch
from torch import nn

SEED = 7
STREAMS, T_TRAIN, T_TEST, WINDOW = 32, 465, 120, 60
EPOCHS = 14
torch.set_num_threads(1)
torch.manual_seed(SEED)


def generate(streams, steps):
    """Seasonal signal whose period switches rarely; a pulse channel announces the new regime once."""
    g = torch.Generator().manual_seed(99)
    periods = torch.tensor([6.0, 9.0, 14.0])
    regime = torch.randint(0, 3, (streams,), generator=g)
    phase = torch.rand(streams, generator=g) * 6.28
    level = torch.randn(streams, generator=g) * 0.5
    xs = []
    for t in range(steps):
        switch = torch.rand(streams, generator=g) < 0.012
        if t == 0:
            switch = torch.ones(streams, dtype=torch.bool)
        new = torch.randint(0, 3, (streams,), generator=g)
        regime = torch.where(switch, new, regime)
        level = torch.where(switch, torch.randn(streams, generator=g) * 0.8, level)
        phase = phase + 6.2832 / periods[regime]
        amp = 0.6 + 0.5 * regime
        value = level + amp * phase.sin() + 0.08 * torch.randn(streams, generator=g)
        pulse = torch.where(switch, regime.float() - 1.0 + 0.5, torch.zeros(()))
        xs.append(torch.stack([value, pulse], -1))
    return torch.stack(xs, 1)


class Forecaster(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.cell = nn.GRUCell(2, hidden)
        self.out = nn.Sequential(nn.Linear(hidden, 32), nn.Tanh(), nn.Linear(32, 1))
        self.hidden = hidden

    def start(self, n):
        return torch.zeros(n, self.hidden)

    def forward(self, x, h, feed_prob=0.0):
        """x: (B, L, 2). With probability feed_prob a stream's value is replaced by the model's own forecast."""
        preds, prev = [], None
        for t in range(x.size(1)):
            inp = x[:, t]
            if prev is not None and feed_prob > 0:
                own = torch.rand(x.size(0)) < feed_prob
                value = torch.where(own, prev.detach(), inp[:, 0])
                inp = torch.stack([value, inp[:, 1]], -1)
            h = self.cell(inp, h)
            prev = self.out(h).squeeze(-1)
            preds.append(prev)
        return torch.stack(preds, 1), h


data = generate(STREAMS, T_TRAIN + T_TEST + 1)
train_x, train_y = data[:, :T_TRAIN], data[:, 1:T_TRAIN + 1, 0]
test_x = data[:, T_TRAIN:T_TRAIN + T_TEST]
test_y = data[:, T_TRAIN + 1:T_TRAIN + T_TEST + 1, 0]
mu, sd = train_x[..., 0].mean(), train_x[..., 0].std()
for part in (train_x, test_x):
    part[..., 0] = (part[..., 0] - mu) / sd
# train_y / test_y are views on the same storage, already scaled except the very last step
test_y = test_y.clone()
test_y[:, -1] = (test_y[:, -1] - mu) / sd

model = Forecaster()
opt = torch.optim.RMSprop(model.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=5, gamma=0.5)


def evaluate(model):
    model.eval()
    with torch.no_grad():
        _, h = model(train_x, model.start(STREAMS))
        pred, _ = model(test_x, h)
        one_step = (pred - test_y).pow(2).mean().item()
        # free-running: 8 steps ahead from the middle of the test part
        _, h = model(test_x[:, :60], h)
        value, err = pred[:, 59], 0.0
        for k in range(8):
            err += (value - test_y[:, 59 + k]).pow(2).mean().item()
            h = model.cell(torch.stack([value, test_x[:, 60 + k, 1]], -1), h)
            value = model.out(h).squeeze(-1)
    model.train()
    return one_step, err / 8


for epoch in range(EPOCHS):
    h = model.start(STREAMS)
    feed_prob = min(0.25, 0.05 * epoch)
    total, steps = 0.0, 0
    for s in range(0, T_TRAIN, WINDOW):
        xb, yb = train_x[:, s:s + WINDOW], train_y[:, s:s + WINDOW]
        h = h.detach()
        pred, h = model(xb, h, feed_prob)
        loss = nn.functional.smooth_l1_loss(pred, yb, beta=0.5)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        opt.step()
        total += loss.item() * xb.size(1)
        steps += xb.size(1)
    sched.step()
    line = f"epoch {epoch:2d}  loss {total / steps:.5f}"
    if epoch % 3 == 2 or epoch == EPOCHS - 1:
        mse1, mse8 = evaluate(model)
        line += f"  test_mse {mse1:.5f}  free_run_mse {mse8:.5f}"
    print(line)

torch.save(model.state_dict(), "gru_forecaster.pt")
