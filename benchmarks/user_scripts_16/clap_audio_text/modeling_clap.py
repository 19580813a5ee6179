import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def mel_filter_bank(n_mels, n_fft, sr):
    def mel(f):
        return 2595 * np.log10(1 + f / 700)
    pts = 700 * (10 ** (np.linspace(mel(40), mel(sr / 2), n_mels + 2) / 2595) - 1)
    bins = np.linspace(0, sr / 2, n_fft // 2 + 1)
    fb = np.zeros((n_mels, len(bins)), np.float32)
    for m in range(n_mels):
        lo, mid, hi = pts[m:m + 3]
        fb[m] = np.maximum(0, np.minimum((bins - lo) / (mid - lo), (hi - bins) / (hi - mid)))
    return torch.from_numpy(fb)


class LogMel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_mels, self.sr = config.n_mels, config.sampling_rate
        self.n_fft, self.hop = config.n_fft, config.hop

    def forward(self, wav):
        window = torch.hann_window(self.n_fft).to(wav.device)
        spec = torch.stft(wav, self.n_fft, self.hop, window=window, return_complex=True).abs() ** 2
        fb = mel_filter_bank(self.n_mels, self.n_fft, self.sr).to(wav.device)
        mel = torch.log(fb @ spec + 1e-5)
        return (mel + 4.0) / 5.0


def spec_augment(mel, n_time=2, n_freq=2, max_time=60, max_freq=8):
    """One pair of masks per clip; mel is (B, n_mels, frames)."""
    b, f, t = mel.shape
    for i in range(b):
        for _ in range(n_time):
            w = random.randint(0, min(max_time, t // 4))
            s = random.randint(0, t - w)
            mel[i, :, s:s + w] = 0.0
        for _ in range(n_freq):
            w = random.randint(0, min(max_freq, f // 4))
            s = random.randint(0, f - w)
            mel[i, s:s + w] = 0.0
    return mel


class SelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, dropout):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def transpose_for_scores(self, x):
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(0, 2, 1, 3)

    def forward(self, hidden, attention_mask=None):
        q = self.transpose_for_scores(self.query(hidden))
        k = self.transpose_for_scores(self.key(hidden))
        v = self.transpose_for_scores(self.value(hidden))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        if attention_mask is not None:
            scores = scores + attention_mask
        probs = self.dropout(F.softmax(scores, dim=-1))
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return self.out(context.view(hidden.shape))


class Layer(nn.Module):
    def __init__(self, hidden_size, num_heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden_size)
        self.attention = SelfAttention(hidden_size, num_heads, dropout)
        self.norm2 = nn.LayerNorm(hidden_size)
        self.mlp = nn.Sequential(nn.Linear(hidden_size, 4 * hidden_size), nn.GELU(),
                                 nn.Linear(4 * hidden_size, hidden_size), nn.Dropout(dropout))

    def forward(self, x, attention_mask=None):
        x = x + self.attention(self.norm1(x), attention_mask)
        return x + self.mlp(self.norm2(x))


class TextModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        h = config.text_hidden_size
        self.word = nn.Embedding(config.vocab_size, h, padding_idx=0)
        self.position = nn.Embedding(config.max_length, h)
        self.layers = nn.ModuleList([Layer(h, config.text_heads, config.dropout) for _ in range(config.text_layers)])
        self.norm = nn.LayerNorm(h)

    def forward(self, input_ids, attention_mask):
        pos = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.word(input_ids) + self.position(pos)
        bias = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        m = attention_mask.unsqueeze(-1).to(x.dtype)
        return (self.norm(x) * m).sum(1) / m.sum(1)


class AudioModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        h, p = config.audio_hidden_size, config.patch
        self.frontend = LogMel(config)
        self.patch = nn.Conv2d(1, h, p, stride=p)
        n = (config.n_mels // p) * ((config.samples // config.hop + 1) // p)
        self.position = nn.Parameter(torch.randn(1, n, h) * 0.02)
        self.layers = nn.ModuleList([Layer(h, config.audio_heads, config.dropout) for _ in range(config.audio_layers)])
        self.norm = nn.LayerNorm(h)

    def forward(self, waveform):
        with torch.no_grad(), torch.cuda.amp.autocast(enabled=False):
            mel = self.frontend(waveform.float())
            if self.training:
                mel = spec_augment(mel)
        x = self.patch(mel.unsqueeze(1)).flatten(2).transpose(1, 2) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).mean(1)


class ClapModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.text_model = TextModel(config)
        self.audio_model = AudioModel(config)
        self.text_projection = nn.Linear(config.text_hidden_size, config.projection_dim)
        self.audio_projection = nn.Linear(config.audio_hidden_size, config.projection_dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        # the text tower is pretrained and stays frozen, only its projection learns
        for p in self.text_model.parameters():
            p.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        self.text_model.eval()
        return self

    def get_text_features(self, input_ids, attention_mask):
        return F.normalize(self.text_projection(self.text_model(input_ids, attention_mask)), dim=-1)

    def get_audio_features(self, waveform):
        return F.normalize(self.audio_projection(self.audio_model(waveform)), dim=-1)

    def forward(self, waveform, input_ids, attention_mask):
        a = self.get_audio_features(waveform)
        t = self.get_text_features(input_ids, attention_mask)
        logits = self.logit_scale.exp().clamp(max=100) * a @ t.t()
        labels = torch.arange(len(a), device=a.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
