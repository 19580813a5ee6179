"""Many small layers: the optimizer is a good part of a step."""

import torch
from torch import nn

torch.manual_seed(0)
features, labels = torch.randn(512, 128), torch.randint(0, 10, (512,))
layers = [layer for _ in range(40) for layer in (nn.Linear(128, 128), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
criterion = nn.CrossEntropyLoss()
for epoch in range(12):
    for start in range(0, 512, 32):
        optimizer.zero_grad()
        loss = criterion(model(features[start : start + 32]), labels[start : start + 32])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
