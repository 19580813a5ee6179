"""Train a small convolutional network on images that are kept as bytes."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
images = torch.randint(0, 256, (48, 3, 8, 8), dtype=torch.uint8)
loader = DataLoader(TensorDataset(images, torch.arange(48) % 3), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for epoch in range(2):
    for images, labels in loader:
        images, labels = images.float().to(device), labels.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
