import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from crf import CRF


class CharCNN(nn.Module):
    def __init__(self, n_chars, dim, channels, width=3):
        super().__init__()
        self.embed = nn.Embedding(n_chars, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, channels, width, padding=1)

    def forward(self, chars):
        # one position of the sentence after the other, (B, W) -> (B, C)
        out = []
        for t in range(chars.shape[1]):
            e = self.embed(chars[:, t]).transpose(1, 2)
            out.append(torch.relu(self.conv(e)).max(dim=2)[0])
        return torch.stack(out, dim=1)


class Tagger(nn.Module):
    def __init__(self, n_words, n_chars, n_tags, word_dim=200, char_dim=30, char_channels=50,
                 hidden=256, layers=2, dropout=0.4):
        super().__init__()
        self.words = nn.Embedding(n_words, word_dim, padding_idx=0)
        self.chars = CharCNN(n_chars, char_dim, char_channels)
        self.drop = nn.Dropout(dropout)
        self.lstm = nn.LSTM(word_dim + char_channels, hidden // 2, layers, batch_first=True,
                            bidirectional=True, dropout=dropout)
        self.out = nn.Linear(hidden, n_tags)
        self.crf = CRF(n_tags)

    def emissions(self, words, chars, mask):
        x = self.drop(torch.cat([self.words(words), self.chars(chars)], dim=-1))
        lengths = mask.sum(1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = self.lstm(packed)
        h, _ = pad_packed_sequence(h, batch_first=True, total_length=words.shape[1])
        return self.out(self.drop(h))

    def loss(self, words, chars, tags, mask):
        return self.crf(self.emissions(words, chars, mask), tags, mask)

    def predict(self, words, chars, mask):
        return self.crf.decode(self.emissions(words, chars, mask), mask)
