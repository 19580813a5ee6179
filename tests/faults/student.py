"""A student that learns from labels and from a moving average of itself: two terms of loss, two
groups of parameters, tied weights.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(16, 24)
        self.first = nn.Linear(24, 24)
        self.second = nn.Linear(24, 24)
        self.second.weight = self.first.weight
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        x = torch.tanh(self.input(x))
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def average(teacher, student):
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
            old.lerp_(new, 0.1)


def main():
    x = torch.randn(192, 16)
    y = (x @ torch.randn(16, 4) + 0.5 * torch.randn(192, 4)).argmax(1)
    data = TensorDataset(x, y)
    student = Net()
    teacher = copy.deepcopy(student).eval()
    head = list(student.head.parameters())
    body = [p for n, p in student.named_parameters() if not n.startswith("head")]
    optimizer = torch.optim.SGD(
        [{"params": body, "lr": 0.05}, {"params": head, "lr": 0.2}], momentum=0.9
    )
    for epoch in range(5):
        loader = DataLoader(data, batch_size=16, shuffle=True)
        running = 0.0
        for image, label in loader:
            image = image + 0.1 * torch.randn_like(image)
            logits = student(image)
            hard = F.cross_entropy(logits, label)
            with torch.no_grad():
                target = teacher(image)
            soft = F.mse_loss(logits, target)
            optimizer.zero_grad()
            (hard + soft).backward()
            nn.utils.clip_grad_value_(student.parameters(), 0.2)
            optimizer.step()
            average(teacher, student)
            running += hard.item()
        print(f"epoch {epoch}: loss {running / len(loader):.4f}")
    torch.save({"student": student.state_dict(), "teacher": teacher.state_dict()}, "student.pt")


main()
