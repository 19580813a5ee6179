import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from data import BOS, PAD


class Encoder(nn.Module):
    def __init__(self, vocab, emb, hid, layers, dropout):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hid, layers, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hid, hid)
        self.drop = nn.Dropout(dropout)

    def forward(self, src, src_len):
        x = self.drop(self.emb(src))
        packed = pack_padded_sequence(x, torch.LongTensor(src_len), batch_first=True)
        out, h = self.rnn(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        h = torch.tanh(self.fc(torch.cat([h[-2], h[-1]], 1)))
        return out, h


class Seq2Seq(nn.Module):
    def __init__(self, vocab, emb, hid, layers, dropout):
        super().__init__()
        self.encoder = Encoder(vocab, emb, hid, layers, dropout)
        self.emb = self.encoder.emb
        self.attn = nn.Linear(hid * 3, hid)
        self.v = nn.Linear(hid, 1, bias=False)
        self.cell = nn.GRUCell(emb + 2 * hid, hid)
        self.out = nn.Linear(3 * hid + emb, vocab)
        self.vocab = vocab

    def init_state(self, batch):
        return torch.zeros(batch, dtype=torch.long).fill_(BOS)

    def forward(self, src, src_len, trg=None, teacher_forcing=0.0, max_len=25):
        enc, h = self.encoder(src, src_len)
        mask = src.ne(PAD)
        B, L = src.size()
        T = trg.size(1) if trg is not None else max_len
        outputs = torch.zeros(B, T, self.vocab).to(src.device)
        tok = self.init_state(B).to(src.device)
        for t in range(1, T):
            e = self.emb(tok)
            a = self.v(torch.tanh(self.attn(torch.cat([h.unsqueeze(1).expand(-1, L, -1), enc], 2)))).squeeze(2)
            a = F.softmax(a.masked_fill(~mask, -1e10), 1)
            ctx = torch.bmm(a.unsqueeze(1), enc).squeeze(1)
            h = self.cell(torch.cat([e, ctx], 1), h)
            o = self.out(torch.cat([h, ctx, e], 1))
            outputs[:, t] = o
            use_gold = trg is not None and random.random() < teacher_forcing
            tok = trg[:, t] if use_gold else o.argmax(1)
        return outputs
