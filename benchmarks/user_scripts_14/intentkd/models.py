import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from text import PAD


class Teacher(nn.Module):
    """BERT-shaped, trained from scratch on our queries."""

    def __init__(self, vocab, n_classes, dim=512, heads=8, layers=6, max_len=48, dropout=0.1):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, dim)
        self.norm = nn.LayerNorm(dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, n_classes)

    def forward(self, ids):
        pos = torch.arange(ids.size(1)).to(ids.device)
        x = self.norm(self.tok(ids) + self.pos(pos))
        x = self.encoder(x, src_key_padding_mask=ids == PAD)
        return self.out(x[:, 0]), x[:, 0]


class Student(nn.Module):
    """Small enough for the phone: BiGRU with attention pooling."""

    def __init__(self, vocab, n_classes, dim=128, hidden=128, teacher_dim=512, dropout=0.2):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)
        self.gru = nn.GRU(dim, hidden, num_layers=2, batch_first=True, bidirectional=True, dropout=dropout)
        self.query = nn.Linear(2 * hidden, 1)
        self.out = nn.Linear(2 * hidden, n_classes)
        self.to_teacher = nn.Linear(2 * hidden, teacher_dim)

    def forward(self, ids, lengths):
        x = self.drop(self.tok(ids))
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=ids.size(1))
        score = self.query(h).squeeze(-1).masked_fill(ids == PAD, -1e4)
        w = F.softmax(score, dim=1)
        v = torch.bmm(w.unsqueeze(1), h).squeeze(1)
        return self.out(self.drop(v)), self.to_teacher(v)
