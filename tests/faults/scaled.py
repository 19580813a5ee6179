"""Regression in half precision with a GradScaler, as a rewritten script has it; the scaler works on
the CPU too.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)


def main():
    x = torch.randn(256, 10)
    y = torch.tanh(x @ torch.randn(10, 1)) + 0.05 * torch.randn(256, 1)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for epoch in range(5):
        running = 0.0
        for features, target in loader:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.mse_loss(model(features), target)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            running += loss.item()
        print(f"epoch {epoch}: loss {running / len(loader):.4f}")
    torch.save(model.state_dict(), "scaled.pt")


main()
