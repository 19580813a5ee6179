import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class SpecAugment(nn.Module):
    """masks in place on the batch; numbers from an own CPU generator so that the masks do not depend on the device"""

    def __init__(self, time, freq, seed):
        super().__init__()
        self.time, self.freq = time, freq
        self.g = torch.Generator().manual_seed(seed)

    def _r(self, n):
        return torch.randint(0, n, (1,), generator=self.g).item()

    def forward(self, x, lens):
        if not self.training:
            return x
        for b in range(x.size(0)):
            w = self._r(self.time + 1)
            t = self._r(max(1, int(lens[b]) - w))
            x[b, t:t + w] = 0
            f = self._r(x.size(2) - self.freq)
            x[b, :, f:f + self._r(self.freq + 1)] = 0
        return x


class MaskedNorm(nn.BatchNorm1d):
    """statistics over the real frames only"""

    def forward(self, x, mask):
        y = x.new_zeros(x.shape)
        y[mask] = super().forward(x[mask])
        return y


class ConvGRU(nn.Module):
    def __init__(self, hidden, layers, feats, n_out):
        super().__init__()
        self.conv = nn.Conv1d(feats, hidden, 5, padding=2)
        self.norm = MaskedNorm(hidden)
        self.gru = nn.GRU(hidden, hidden, layers, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, n_out)

    def forward(self, x, lens):
        mask = (torch.arange(x.size(1))[None] < lens[:, None]).to(x.device)
        h = self.conv(x.transpose(1, 2)).transpose(1, 2)
        h = torch.relu(self.norm(h, mask))
        h, _ = self.gru(pack_padded_sequence(h, lens, batch_first=True))
        h, _ = pad_packed_sequence(h, batch_first=True)
        return self.out(h)
