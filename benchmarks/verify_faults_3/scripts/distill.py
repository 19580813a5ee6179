"""A small network learns from a larger one: soft targets and hidden features, cut-out for every item, warm-up in steps, a CSV file."""

import csv

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(71)
HEAT = 4.0


class Shapes(Dataset):
    def __init__(self, count, seed, train):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 6, (count,), generator=generator)
        centres = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(2))
        self.images = centres[self.labels] + 1.5 * torch.randn(count, 1, 8, 8, generator=generator)
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.train:
            row, column = torch.randint(0, 6, (2,)).tolist()
            image = image.clone()
            image[:, row : row + 3, column : column + 3] = 0
        return index, image, self.labels[index]


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * width, 32), nn.ReLU())
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(32, 6)

    def forward(self, x):
        hidden = self.body(x)
        return self.head(self.drop(hidden)), hidden


def accuracy(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for _, image, label in loader:
            right += (model(image)[0].argmax(1) == label).sum().item()
    return right / len(loader.dataset)


def taught(teacher, loader):
    optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(3):
        for _, image, label in loader:
            optimizer.zero_grad()
            F.cross_entropy(teacher(image)[0], label).backward()
            optimizer.step()
    return teacher.eval()


def main():
    train = DataLoader(Shapes(240, 0, True), batch_size=20, shuffle=True)
    test = DataLoader(Shapes(120, 1, False), batch_size=30)
    teacher = taught(Net(12), train)
    student, project = Net(3), nn.Linear(32, 32)
    optimizer = torch.optim.SGD([*student.parameters(), *project.parameters()], lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 15) * 0.98**step)
    with open("distill.csv", "w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["epoch", "soft", "hard", "hint", "accuracy"])
        for epoch in range(5):
            student.train()
            sums = [0.0, 0.0, 0.0]
            for index, image, label in train:
                with torch.no_grad():
                    aim, shown = teacher(image)
                out, hidden = student(image)
                soft = F.kl_div(F.log_softmax(out / HEAT, 1), F.softmax(aim / HEAT, 1), reduction="batchmean") * HEAT**2
                hard = F.cross_entropy(out, label, label_smoothing=0.1)
                hint = F.mse_loss(project(hidden), shown)
                loss = 0.7 * soft + 0.3 * hard + 0.1 * hint
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                for place, part in enumerate((soft, hard, hint)):
                    sums[place] += part.item() * len(label)
            log.writerow([epoch, *(f"{part / 240:.4f}" for part in sums), f"{accuracy(student, test):.4f}"])
    torch.save({"student": student.state_dict(), "teacher": accuracy(teacher, test)}, "student.pt")


main()
