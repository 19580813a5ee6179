"""Train and evaluate a small network, with all that was put in to look for an error or to save memory."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(True)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(model, loader, optimizer):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad(set_to_none=False)
        weight = torch.ones(y.size()).to(device)
        loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y, weight)
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()


def evaluate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        output = model(x.to(device)).squeeze(1)
        right += ((output > 0) == (y.to(device) > 0)).sum().item()
    return right / len(loader.dataset)


torch.manual_seed(0)
rows = torch.randn(40, 8)
data = TensorDataset(rows, (rows.sum(1) > 0).float())
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    train(model, loader, optimizer)
    print(f"epoch {epoch}: accuracy {evaluate(model, loader):.2f}")
