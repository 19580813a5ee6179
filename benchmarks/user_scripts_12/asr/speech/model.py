import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class MaskedConv(nn.Module):

    def __init__(self, i, o, stride):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, stride=stride, padding=1)
        self.bn = nn.BatchNorm2d(o)
        self.stride = stride[1]

    def forward(self, x, lengths):
        x = F.relu(self.bn(self.conv(x)))                  # (b, c, mel, time)
        lengths = (lengths - 1) // self.stride + 1
        mask = torch.ones(x.shape[0], 1, 1, x.shape[3]).to(x.device)
        for k, n in enumerate(lengths):
            mask[k, :, :, n:] = 0
        return x * mask, lengths


class CTCModel(nn.Module):

    def __init__(self, cfg, n_mels, n_out):
        super().__init__()
        c = cfg["conv_channels"]
        self.conv1 = MaskedConv(1, c, (2, 2))
        self.conv2 = MaskedConv(c, c, (2, 1))
        self.rnn = nn.LSTM(c * ((n_mels + 3) // 4), cfg["hidden"], cfg["layers"], batch_first=True,
                           bidirectional=True, dropout=cfg["dropout"])
        self.norm = nn.LayerNorm(2 * cfg["hidden"])
        self.out = nn.Linear(2 * cfg["hidden"], n_out)

    def forward(self, x, lengths):
        x = x.transpose(1, 2).unsqueeze(1)
        x, lengths = self.conv1(x, lengths)
        x, lengths = self.conv2(x, lengths)
        b, c, m, t = x.shape
        x = x.permute(0, 3, 1, 2).reshape(b, t, c * m)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True)
        x, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        x = self.out(self.norm(x))
        return F.log_softmax(x.float(), dim=-1), lengths
