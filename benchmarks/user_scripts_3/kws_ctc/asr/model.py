import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class CTCNet(nn.Module):
    def __init__(self, n_mels, hidden, n_out):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(n_mels, hidden, 5, stride=2, padding=2), nn.BatchNorm1d(hidden), nn.ReLU())
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, n_out)

    def forward(self, x, lens):
        h = self.front(x.transpose(1, 2)).transpose(1, 2)
        lens = (lens - 1) // 2 + 1
        packed = pack_padded_sequence(h, lens.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).log_softmax(-1), lens
