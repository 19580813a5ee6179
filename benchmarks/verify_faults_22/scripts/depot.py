"""Demand of many shops, 12 days ahead: windows scaled by their own mean and spread, dilated causal convolutions, gaps in the records."""
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CONTEXT, HORIZON, SHOPS, DAYS = 48, 12, 40, 420
VAL, TEST = DAYS - 90, DAYS - 45  # days from which on windows are held out
STEPS_PER_EPOCH, BATCH, EPOCHS, PATIENCE = 40, 32, 8, 3
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_demand(seed=4):
    """Shops of very different size with a week, a season, jumps of level and days without a record (NaN)."""
    rng = np.random.default_rng(seed)
    day = np.arange(DAYS)
    size = np.exp(rng.normal(3.0, 1.0, (SHOPS, 1)))
    week = 1 + 0.5 * rng.random((SHOPS, 1)) * np.sin(2 * np.pi * (day / 7 + rng.random((SHOPS, 1))))
    season = 1 + 0.4 * np.sin(2 * np.pi * (day / 180 + rng.random((SHOPS, 1))))
    level = np.exp(np.cumsum((rng.random((SHOPS, DAYS)) < 0.01) * rng.normal(0, 0.5, (SHOPS, DAYS)), 1))
    series = size * week * season * level * np.exp(rng.normal(0, 0.12, (SHOPS, DAYS)))
    series[rng.random((SHOPS, DAYS)) < 0.12] = np.nan
    return torch.tensor(series, dtype=torch.float32)


class CausalConv(nn.Module):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(cin, cout, 3, dilation=dilation)
        self.norm, self.drop = nn.LayerNorm(cout), nn.Dropout(0.1)

    def forward(self, x):
        y = self.conv(F.pad(x, (self.pad, 0)))
        y = self.drop(F.gelu(self.norm(y.transpose(1, 2)))).transpose(1, 2)
        return x + y if x.shape == y.shape else y


class Forecaster(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.shop = nn.Embedding(SHOPS, 6)
        self.tcn = nn.Sequential(*(CausalConv(width if i else 10, width, 2**i) for i in range(4)))
        self.head = nn.Linear(width + 6, HORIZON)
        nn.init.zeros_(self.head.bias)

    def scale(self, values, known):
        count = known.sum(1, keepdim=True).clamp(min=1)
        mean = (values * known).sum(1, keepdim=True) / count
        var = ((values - mean).pow(2) * known).sum(1, keepdim=True) / count
        return mean, (var + 1e-3).sqrt()

    def forward(self, values, known, weekday, shop):
        mean, std = self.scale(values, known)
        x = torch.stack([(values - mean) / std * known, known], 1)
        angle = 2 * np.pi * weekday / 7
        x = torch.cat([x, torch.stack([angle.sin(), angle.cos()], 1), self.shop(shop).unsqueeze(2).expand(-1, -1, x.shape[2])], 1)
        last = self.tcn(x)[:, :, -1]
        return self.head(torch.cat([last, self.shop(shop)], 1)) * std + mean


def cut(series, shop, start):
    """One window: context with zeros at gaps, what is known of it, weekdays, target, what is known of that."""
    window = series[shop, start : start + CONTEXT + HORIZON]
    known = (~window.isnan()).float()
    window = window.nan_to_num()
    weekday = (torch.arange(start, start + CONTEXT) % 7).float()
    return window[:CONTEXT], known[:CONTEXT], weekday, window[CONTEXT:], known[CONTEXT:]


def draw_batch(series):
    """Shops by their logarithmic size, starts anywhere before the held out days."""
    weights = series[:, :VAL].nanmean(1).log1p()
    shops = torch.multinomial(weights, BATCH, replacement=True)
    windows = []
    for shop in shops.tolist():
        start = torch.randint(0, VAL - CONTEXT - HORIZON, (1,)).item()
        windows.append(cut(series, shop, start))
    return shops, [torch.stack(part) for part in zip(*windows)]


def criterion(forecast, target, known):
    """Huber loss of the seen days in units of the original scale, larger shops count a little more."""
    error = F.huber_loss(forecast, target, reduction="none", delta=10.0)
    return (error * known).sum() / known.sum().clamp(min=1)


def evaluate(model, series, begin):
    """Mean symmetric percentage error over all shops, one window a week."""
    model.eval()
    errors, count = 0.0, 0.0
    for start in range(begin - CONTEXT, begin - CONTEXT + 28, 7):
        for shops in torch.arange(SHOPS).split(10):
            values, known, weekday, target, seen = (torch.stack(p) for p in zip(*(cut(series, s, start) for s in shops.tolist())))
            with torch.no_grad():
                forecast = model(values.to(device), known.to(device), weekday.to(device), shops.to(device)).cpu()
            error = 2 * (forecast - target).abs() / (forecast.abs() + target.abs()).clamp(min=1e-3)
            errors += (error * seen).sum().item()
            count += seen.sum().item()
    return errors / count


def main():
    torch.set_num_threads(1)
    torch.manual_seed(21)
    series = make_demand()
    model = Forecaster().to(device)
    no_decay = [p for n, p in model.named_parameters() if n.endswith("bias") or "shop" in n or "norm" in n]
    decay = [p for n, p in model.named_parameters() if not (n.endswith("bias") or "shop" in n or "norm" in n)]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=6e-3, total_steps=EPOCHS * STEPS_PER_EPOCH)
    best, best_state, waited = float("inf"), None, 0
    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for _ in range(STEPS_PER_EPOCH):
            shops, (values, known, weekday, target, seen) = draw_batch(series)
            forecast = model(values.to(device), known.to(device), weekday.to(device), shops.to(device))
            loss = criterion(forecast, target.to(device), seen.to(device))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        smape = evaluate(model, series, VAL)
        print(f"epoch {epoch + 1:2d} loss {np.mean(losses):.4f} val sMAPE {smape:.5f}")
        if smape < best:
            best, best_state, waited = smape, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
            if waited == PATIENCE:
                break
    model.load_state_dict(best_state)
    torch.save(best_state, "depot.pt")
    print(f"test sMAPE {evaluate(model, series, TEST):.5f}")


if __name__ == "__main__":
    main()
