import torch
import torch.nn as nn


class LockedDropout(nn.Module):
    """same mask for every time step"""
    def forward(self, x, p):
        if not self.training or p == 0:
            return x
        mask = torch.empty(1, x.size(1), x.size(2)).bernoulli_(1 - p) / (1 - p)
        mask = mask.to(x.device)
        return x * mask


class RNNLM(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.5, tie_weights=False):
        super().__init__()
        self.lockdrop = LockedDropout()
        self.p = dropout
        self.encoder = nn.Embedding(ntoken, ninp)
        self.cells = nn.ModuleList(nn.LSTMCell(ninp if l == 0 else nhid, nhid) for l in range(nlayers))
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            assert nhid == ninp
            self.decoder.weight = self.encoder.weight
        self.nhid = nhid
        self.init_weights()

    def init_weights(self):
        r = 0.1
        nn.init.uniform_(self.encoder.weight, -r, r)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -r, r)
        for c in self.cells:
            # forget gate bias
            c.bias_ih.data[self.nhid_of(c):2 * self.nhid_of(c)].fill_(1.)

    @staticmethod
    def nhid_of(cell):
        return cell.hidden_size

    def init_hidden(self, bsz):
        dev = next(self.parameters()).device
        return [(torch.zeros(bsz, self.nhid).to(dev), torch.zeros(bsz, self.nhid).to(dev))
                for _ in self.cells]

    def forward(self, x, hidden):
        emb = self.lockdrop(self.encoder(x), self.p)
        inp = emb
        new_hidden = []
        for l, cell in enumerate(self.cells):
            h, c = hidden[l]
            outs = []
            for t in range(inp.size(0)):
                h, c = cell(inp[t], (h, c))
                outs.append(h)
            raw = torch.stack(outs)
            new_hidden.append((h, c))
            out = self.lockdrop(raw, self.p)
            inp = out
        return self.decoder(out), new_hidden, raw, out
