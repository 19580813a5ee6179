"""Small pictures with random flips and noise, a convolutional net, AdamW, dropout."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(2)


class Pictures(Dataset):
    def __init__(self, count=160):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(0, 4, (count,), generator=generator)
        patterns = torch.randn(4, 1, 8, 8, generator=generator)
        self.images = patterns[self.labels] + 0.7 * torch.randn(count, 1, 8, 8, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        image = image + 0.1 * torch.randn(1, 8, 8)
        return image, self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16 * 4 * 4, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(self.drop(x.flatten(1)))


def main():
    loader = DataLoader(Pictures(), batch_size=16, shuffle=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    for epoch in range(6):
        model.train()
        running = 0.0
        for image, label in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch}: loss {running / len(loader):.4f}")
    torch.save(model.state_dict(), "pictures.pt")


main()
