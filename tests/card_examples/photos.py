"""Photos in files, which are read as bytes and trained with as floats."""

import os
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Photos(Dataset):
    def __init__(self, folder, transform):
        self.files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self.labels = [i % 3 for i in range(len(self.files))]
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = Image.open(self.files[i]).convert("RGB")
        return self.transform(image), self.labels[i]


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = tempfile.mkdtemp()
    random = np.random.default_rng(0)
    for i in range(8):
        picture = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
        picture.save(os.path.join(folder, f"{i}.png"))
    normalize = transforms.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
    transform = transforms.Compose([transforms.ToTensor(), normalize])
    loader = DataLoader(Photos(folder, transform), batch_size=4, shuffle=True)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
