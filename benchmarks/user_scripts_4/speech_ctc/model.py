import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class MaskConv(nn.Module):
    """Zeroes the output after each sample's end, so that padding does not leak (deepspeech.pytorch)."""

    def __init__(self, seq):
        super().__init__()
        self.seq_module = seq

    def forward(self, x, lengths):
        for module in self.seq_module:
            x = module(x)
            mask = torch.BoolTensor(x.size()).fill_(0)
            if x.is_cuda:
                mask = mask.cuda()
            for i, length in enumerate(lengths):
                length = length.item()
                if (mask[i].size(2) - length) > 0:
                    mask[i].narrow(2, length, mask[i].size(2) - length).fill_(1)
            x = x.masked_fill(mask, 0)
        return x, lengths


class SpeechModel(nn.Module):
    def __init__(self, n_mels=24, hidden=64, n_chars=10):
        super().__init__()
        self.conv = MaskConv(nn.Sequential(
            nn.Conv2d(1, 16, (5, 5), stride=(2, 2), padding=(2, 2), bias=False), nn.BatchNorm2d(16), nn.Hardtanh(0, 20),
            nn.Conv2d(16, 16, (5, 5), stride=(2, 1), padding=(2, 2), bias=False), nn.BatchNorm2d(16), nn.Hardtanh(0, 20)))
        self.rnn1 = nn.GRU(16 * (n_mels // 4), hidden, bidirectional=True, batch_first=True)
        self.rnn2 = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(hidden, n_chars)

    def forward(self, x, lengths):
        lengths = (lengths + 1) // 2
        x = x.transpose(1, 2).unsqueeze(1)          # B, 1, F, T
        x, lengths = self.conv(x, lengths)
        b, c, f, t = x.size()
        x = x.view(b, c * f, t).transpose(1, 2)
        for rnn in (self.rnn1, self.rnn2):
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True)
            x, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True)
            x = x.view(x.size(0), x.size(1), 2, -1).sum(2)     # sum of both directions
        return self.fc(x), lengths
