"""A classifier with what most scripts have: batch norm, accumulation, clipping, a schedule,
evaluation, logging, a checkpoint.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(1)
WINDOW = 2


def make_data(count=210):
    x = torch.randn(count, 12)
    weight = torch.randn(12, 3)
    y = (x @ weight + 0.5 * torch.randn(count, 3)).argmax(1)
    return TensorDataset(x, y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()
        )
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, loader, criterion, optimizer):
    model.train()
    total, count = 0.0, 0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        (loss / WINDOW).backward()
        total += loss.item() * len(x)
        count += len(x)
        if (i + 1) % WINDOW == 0 or i + 1 == len(loader):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return total / count


def evaluate(model, loader, criterion):
    model.eval()
    total, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            total += criterion(out, y).item() * len(x)
            correct += (out.argmax(1) == y).sum().item()
            count += len(x)
    return total / count, correct / count


def main():
    train_set, test_set = random_split(make_data(), [170, 40])
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=16)
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for epoch in range(6):
        loss = train(model, train_loader, criterion, optimizer)
        test_loss, accuracy = evaluate(model, test_loader, criterion)
        scheduler.step()
        print(
            f"epoch {epoch}: train loss {loss:.4f}, test loss {test_loss:.4f}, accuracy {accuracy:.3f}"
        )
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")


main()
