"""GradScaler: a real one on the CPU with two infinite losses, or a disabled one, or one that scales
a list.
"""

import sys

import torch
from torch import nn

kind, fused = sys.argv[1], "fused" in sys.argv
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01, fused=fused)
scaler = (
    torch.cuda.amp.GradScaler()
    if kind == "off"
    else torch.amp.GradScaler("cpu", init_scale=2.0**15)
)
for step in range(6):
    optimizer.zero_grad()
    output = model(torch.randn(4, 8))
    loss = output.square().mean() * (float("inf") if kind == "inf" and step in (1, 3) else 1)
    if kind == "list":
        first, second = scaler.scale([loss, output.abs().mean()])
        first.backward(retain_graph=True)
        second.backward()
    elif kind == "sum":
        (scaler.scale(loss) + scaler.scale(output.abs().mean())).backward()
        loss = loss + output.abs().mean()
    else:
        scaler.scale(loss).backward()
    if "unscale" in sys.argv:
        scaler.unscale_(optimizer)
    gradients = [
        p.grad / (1 if "unscale" in sys.argv else scaler.get_scale()) for p in model.parameters()
    ]
    print("norm", torch.cat([g.flatten() for g in gradients]).double().norm().item())
    scaler.step(optimizer)
    scaler.update()
    print("loss", loss.item())
