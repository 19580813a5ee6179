import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class EncoderRNN(nn.Module):
    def __init__(self, n_symbols, hidden_size, n_layers=2, dropout=0.1):
        super(EncoderRNN, self).__init__()
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(n_symbols, hidden_size)
        self.rnn = nn.LSTM(hidden_size, hidden_size, n_layers,
                           dropout=(0 if n_layers == 1 else dropout), bidirectional=True)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.embedding(src), lengths)
        outputs, (h, c) = self.rnn(packed)
        outputs, _ = pad_packed_sequence(outputs)
        outputs = outputs[:, :, :self.hidden_size] + outputs[:, :, self.hidden_size:]
        return outputs, (h[0::2] + h[1::2], c[0::2] + c[1::2])


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super(BahdanauAttention, self).__init__()
        self.query = nn.Linear(hidden_size, hidden_size)
        self.keys = nn.Linear(hidden_size, hidden_size, bias=False)
        self.v = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, hidden, encoder_outputs, src_mask):
        # hidden (B, H), encoder_outputs (S, B, H), src_mask (S, B)
        e = self.v(torch.tanh(self.query(hidden).unsqueeze(0) + self.keys(encoder_outputs)))
        e = e.squeeze(2).masked_fill(~src_mask, -1e9)
        a = F.softmax(e.t(), dim=1)
        return torch.bmm(a.unsqueeze(1), encoder_outputs.transpose(0, 1)).squeeze(1)


class AttnDecoderRNN(nn.Module):
    """One step. The output layer shares its weights with the embedding."""

    def __init__(self, n_symbols, hidden_size, n_layers=2, dropout=0.1):
        super(AttnDecoderRNN, self).__init__()
        self.n_layers = n_layers
        self.embedding = nn.Embedding(n_symbols, hidden_size)
        self.drop = nn.Dropout(dropout)
        self.attn = BahdanauAttention(hidden_size)
        self.rnn = nn.LSTM(2 * hidden_size, hidden_size, n_layers,
                           dropout=(0 if n_layers == 1 else dropout))
        self.concat = nn.Linear(2 * hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, n_symbols)
        nn.init.normal_(self.embedding.weight, std=hidden_size ** -0.5)
        self.out.weight = self.embedding.weight

    def forward(self, inp, state, encoder_outputs, src_mask):
        emb = self.drop(self.embedding(inp))                        # (B, H)
        context = self.attn(state[0][-1], encoder_outputs, src_mask)
        y, state = self.rnn(torch.cat((emb, context), 1).unsqueeze(0), state)
        y = torch.tanh(self.concat(torch.cat((y.squeeze(0), context), 1)))
        return F.softmax(self.out(y), dim=1), state
