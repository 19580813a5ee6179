import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from alphabet import CHARS


class Block(nn.Module):
    def __init__(self, cin: int, cout: int, pool: tuple[int, int] | None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel_size=3, padding=1)
        self.bn = nn.BatchNorm2d(cout)
        self.pool = nn.MaxPool2d(pool) if pool else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(torch.relu(self.bn(self.conv(x))))


class CRNN(nn.Module):
    """Gray lines of height 48 and any width -> (T, B, classes) log probabilities, T = width / 4."""

    def __init__(self, hidden: int = 320, layers: int = 2, dropout: float = 0.2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                Block(1, 64, (2, 2)),
                Block(64, 128, (2, 2)),
                Block(128, 256, None),
                Block(256, 256, (2, 1)),
                Block(256, 512, None),
                Block(512, 512, (3, 1)),
            ]
        )
        self.squeeze = nn.Linear(512 * 2, hidden)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=layers, bidirectional=True, dropout=dropout)
        self.classify = nn.Linear(2 * hidden, len(CHARS) + 1)

    def forward(self, images: torch.Tensor, widths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = images
        for block in self.blocks:
            x = block(x)
        b, c, h, w = x.shape
        x = x.permute(3, 0, 1, 2).reshape(w, b, c * h)
        x = self.squeeze(x)
        steps = torch.div(widths, 4, rounding_mode="floor")
        packed = pack_padded_sequence(x, steps.cpu(), enforce_sorted=False)
        y, _ = self.lstm(packed)
        y, _ = pad_packed_sequence(y, total_length=w)
        # CTC sums many small probabilities; must stay in float32
        return self.classify(y).float().log_softmax(-1), steps
