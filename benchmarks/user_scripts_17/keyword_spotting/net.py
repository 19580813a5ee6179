import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
        )
        self.skip = nn.Identity()
        if stride != 1 or cin != cout:
            self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride=stride, bias=False), nn.BatchNorm2d(cout))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.body(x) + self.skip(x))


class KeywordNet(nn.Module):
    def __init__(self, n_words, width, blocks):
        super().__init__()
        layers = [nn.Conv2d(1, width, 5, stride=(2, 1), padding=2, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        c = width
        for i in range(blocks):
            stride = 2 if i % 2 else 1
            layers.append(Block(c, c * stride, stride))
            c = c * stride
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(c, n_words)

    def forward(self, x):
        return self.head(torch.mean(self.body(x), dim=(2, 3)))
