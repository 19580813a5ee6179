import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class DecayCell(nn.Module):
    """GRU-D style cell: hidden state decays with the time since the last observation."""

    def __init__(self, n_feat, hidden):
        super().__init__()
        self.hidden = hidden
        self.decay_x = nn.Parameter(torch.zeros(n_feat))
        self.decay_h = nn.Linear(n_feat, hidden)
        self.cell = nn.GRUCell(2 * n_feat, hidden)

    def forward(self, x, delta, mask):
        bsz, t_len, n_feat = x.shape
        h = torch.zeros(bsz, self.hidden).to(x.device)
        outputs = []
        for t in range(t_len):
            gamma_x = torch.exp(-F.relu(self.decay_x) * delta[:, t])
            gamma_h = torch.exp(-F.relu(self.decay_h(delta[:, t])))
            x_t = mask[:, t] * x[:, t] + (1 - mask[:, t]) * gamma_x * x[:, t]
            h = self.cell(torch.cat([x_t, mask[:, t]], dim=-1), gamma_h * h)
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class DeteriorationModel(nn.Module):
    def __init__(self, n_feat, cfg):
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(n, 4) for n in cfg.static_dims])
        self.decay = DecayCell(n_feat, cfg.hidden)
        self.rnn = nn.GRU(cfg.hidden + 4 * len(cfg.static_dims), cfg.hidden, num_layers=cfg.num_layers,
                          batch_first=True, dropout=cfg.dropout)
        self.attn = nn.Linear(cfg.hidden, 1)
        self.head = nn.Sequential(nn.Linear(2 * cfg.hidden, cfg.hidden), nn.ReLU(), nn.Dropout(cfg.dropout), nn.Linear(cfg.hidden, 1))
        self.aux = nn.Linear(cfg.hidden, n_feat)

    @staticmethod
    def padding_mask(lengths, max_len, device):
        mask = torch.zeros(len(lengths), max_len).to(device)
        for i, n in enumerate(lengths):
            mask[i, :n] = 1.0
        return mask

    def forward(self, batch):
        x = batch["x"]
        valid = self.padding_mask(batch["lengths"], x.size(1), x.device)
        h = self.decay(x, batch["delta"], batch["mask"])
        static = torch.cat([emb(batch["static"][:, i]) for i, emb in enumerate(self.embeds)], dim=-1)
        h = torch.cat([h, static.unsqueeze(1).expand(-1, h.size(1), -1)], dim=-1)
        packed = pack_padded_sequence(h, batch["lengths"].cpu(), batch_first=True)
        out, _ = self.rnn(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        # causal attention pooling: context at hour t sees hours <= t only
        score = self.attn(out).squeeze(-1).masked_fill(valid == 0, -1e4)
        contexts = []
        for t in range(out.size(1)):
            w = torch.softmax(score[:, :t + 1], dim=1)
            contexts.append((w.unsqueeze(-1) * out[:, :t + 1]).sum(dim=1))
        context = torch.stack(contexts, dim=1)
        logits = self.head(torch.cat([out, context], dim=-1)).squeeze(-1)
        return logits, self.aux(out), valid
