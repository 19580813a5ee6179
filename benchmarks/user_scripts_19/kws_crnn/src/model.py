import torch
import torch.nn as nn


class CRNN(nn.Module):
    def __init__(self, n_classes, n_mels=64, channels=64, hidden=128):
        super().__init__()
        self.bn0 = nn.BatchNorm2d(1)
        self.conv1 = nn.Conv2d(1, channels, 3, stride=(2, 1), padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=(2, 2), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, 2 * channels, 3, stride=(2, 1), padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(2 * channels)
        self.gru = nn.GRU(2 * channels * n_mels // 8, hidden, num_layers=2, batch_first=True,
                          bidirectional=True, dropout=0.2)
        self.att = nn.Linear(2 * hidden, 1)
        self.fc = nn.Linear(2 * hidden, n_classes)

    def forward(self, x):
        x = self.bn0(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        x = torch.relu(self.bn3(self.conv3(x)))
        b, c, f, t = x.shape
        x = x.permute(0, 3, 1, 2).reshape(b, t, c * f)
        h, _ = self.gru(x)
        w = torch.softmax(self.att(h), dim=1)
        return self.fc((w * h).sum(1))
