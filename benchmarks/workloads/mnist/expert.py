"""As train.py, tuned by hand: bytes on the device, compiled, nothing read in a step."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR


class Digits:
    """Grey images of 28 x 28 bytes on the device, ten classes: a noisy pattern for each."""

    def __init__(self, number, seed, device):
        random = torch.Generator().manual_seed(seed)
        patterns = torch.rand(10, 28, 28, generator=torch.Generator().manual_seed(0))
        labels = torch.randint(10, (number,), generator=random)
        noise = torch.rand(number, 28, 28, generator=random)
        images = ((patterns[labels] + noise) * 127).to(torch.uint8)
        self.images, self.labels = images.to(device), labels.to(device)

    def __len__(self):
        return len(self.images)

    def batches(self, size, shuffle):
        place = torch.randperm if shuffle else torch.arange
        for rows in place(len(self), device=self.images.device).split(size):
            images = self.images[rows].unsqueeze(1).float()
            yield images.mul_(1 / (255 * 0.3081)).sub_(0.1307 / 0.3081), self.labels[rows]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def train(args, model, data_set, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(data_set.batches(args.batch_size, True)):
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            done = batch_idx * len(data)
            print(f"epoch {epoch} [{done}/{len(data_set)}] loss: {loss.item():.6f}")


def test(args, model, data_set):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in data_set.batches(args.test_batch_size, False):
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum")
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum()
    test_loss = test_loss.item() / len(data_set)
    print(f"test: average loss {test_loss:.4f}, accuracy {correct}/{len(data_set)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    number = 60_000
    if args.tiny:
        args.batch_size, args.test_batch_size, args.epochs, number = 16, 32, 2, 192

    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    train_set = Digits(number, 1, device)
    test_set = Digits(number // 6, 2, device)
    model = Net().to(device)
    compiled = model
    if device.type == "cuda":
        compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, compiled, train_set, optimizer, epoch)
        test(args, compiled, test_set)
        scheduler.step()
    torch.save(model.state_dict(), "mnist_cnn.pt")


if __name__ == "__main__":
    main()
