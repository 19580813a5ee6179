"""Items that take two milliseconds each, as from a slow disk: the main process waits."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Slow(Dataset):
    def __init__(self):
        self.features = torch.randn(192, 32)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        time.sleep(0.002)
        return self.features[index], self.features[index].mean()


def main():
    loader = DataLoader(Slow(), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(6):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
