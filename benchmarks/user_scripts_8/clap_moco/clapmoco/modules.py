import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.h, self.dk = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, pad):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, self.dk).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-2, -1) / math.sqrt(self.dk)
        att = att.masked_fill(pad[:, None, None, :], float("-inf"))
        att = self.drop(torch.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, D)
        return self.out(y)


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.att = SelfAttention(dim, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))

    def forward(self, x, pad):
        x = x + self.att(self.ln1(x), pad)
        return x + self.mlp(self.ln2(x))


class TextEncoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads, embed_dim, max_len=16, dropout=0.1):
        super().__init__()
        self.tok, self.dim = nn.Embedding(vocab, dim, padding_idx=0), dim
        self.blocks = nn.ModuleList([Block(dim, heads, dropout) for _ in range(depth)])
        self.ln, self.proj = nn.LayerNorm(dim), nn.Linear(dim, embed_dim)

    def positions(self, T, device):
        pe = torch.zeros(T, self.dim)
        pos = torch.arange(0, T).unsqueeze(1).float()
        div = torch.exp(torch.arange(0, self.dim, 2).float() * -(math.log(10000.0) / self.dim))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        return pe.to(device)

    def forward(self, tokens, lengths):
        B, T = tokens.shape
        pad = torch.zeros(B, T, dtype=torch.bool, device=tokens.device)
        for i in range(B):
            pad[i, lengths[i].item():] = True
        x = self.tok(tokens) * math.sqrt(self.dim) + self.positions(T, tokens.device)
        for blk in self.blocks:
            x = blk(x, pad)
        return self.proj(self.ln(x[:, 0]))


class AudioEncoder(nn.Module):
    def __init__(self, width, embed_dim):
        super().__init__()
        chans, layers = [1, width, 2 * width, 4 * width, 8 * width], []
        for cin, cout in zip(chans[:-1], chans[1:]):
            layers += [nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.proj = nn.Sequential(nn.Linear(8 * width * 16, 256), nn.ReLU(), nn.Linear(256, embed_dim))

    def forward(self, mel):
        f = self.features(mel)
        return self.proj(f.view(f.size(0), -1))


class ClapMoco(nn.Module):
    """Two encoders, their momentum copies, and one queue of negatives per modality."""

    def __init__(self, cfg, vocab):
        super().__init__()
        self.m, self.K = cfg["momentum"], cfg["queue"]
        self.audio = AudioEncoder(cfg["width"], cfg["embed"])
        self.text = TextEncoder(vocab, cfg["text_dim"], cfg["text_depth"], cfg["heads"], cfg["embed"])
        self.audio_m, self.text_m = copy.deepcopy(self.audio), copy.deepcopy(self.text)
        for p in list(self.audio_m.parameters()) + list(self.text_m.parameters()):
            p.requires_grad = False
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.register_buffer("queue_a", F.normalize(torch.randn(cfg["embed"], self.K), dim=0))
        self.register_buffer("queue_t", F.normalize(torch.randn(cfg["embed"], self.K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def momentum_update(self):
        for q, k in ((self.audio, self.audio_m), (self.text, self.text_m)):
            for pq, pk in zip(q.parameters(), k.parameters()):
                pk.data = pk.data * self.m + pq.data * (1.0 - self.m)

    @torch.no_grad()
    def enqueue(self, a, t):
        ptr = int(self.queue_ptr)
        n = a.shape[0]
        assert self.K % n == 0
        self.queue_a[:, ptr:ptr + n] = a.T
        self.queue_t[:, ptr:ptr + n] = t.T
        self.queue_ptr[0] = (ptr + n) % self.K

    def contrast(self, q, k, queue):
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) * self.logit_scale.exp()
        labels = torch.zeros(logits.shape[0], dtype=torch.long).to(q.device)
        return F.cross_entropy(logits, labels), logits

    def forward(self, mel, tokens, lengths):
        a = F.normalize(self.audio(mel), dim=1)
        t = F.normalize(self.text(tokens, lengths), dim=1)
        with torch.no_grad():
            self.momentum_update()
            a_k = F.normalize(self.audio_m(mel), dim=1)
            t_k = F.normalize(self.text_m(tokens, lengths), dim=1)
        loss_a, logits = self.contrast(a, t_k, self.queue_t)
        loss_t, _ = self.contrast(t, a_k, self.queue_a)
        self.enqueue(a_k, t_k)
        return (loss_a + loss_t) / 2, logits
