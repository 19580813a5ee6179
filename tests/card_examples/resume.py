"""Train in mixed precision, and go on from the last epoch that was saved."""

import os

import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = torch.randn(5, 8, 8)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler()
start = 0
if os.path.exists("last.pt"):
    checkpoint = torch.load("last.pt")
    start = checkpoint["epoch"]
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
for epoch in range(start, 3):
    for x in rows:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
            loss = model(x.to(device)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
    state = {
        "epoch": epoch + 1,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, "last.pt")
