from __future__ import annotations

import torch
import torch.nn as nn
from torch import Tensor


class ConvLSTMCell(nn.Module):
    def __init__(self, in_ch: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.conv_x = nn.Conv2d(in_ch, 4 * hidden, kernel, padding=kernel // 2)
        self.conv_h = nn.Conv2d(hidden, 4 * hidden, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.GroupNorm(4, 4 * hidden)

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, _, h, w = x.shape
        zeros = torch.zeros(b, self.hidden, h, w)
        return zeros.to(x.device), zeros.clone().to(x.device)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        gates = self.norm(self.conv_x(x) + self.conv_h(h))
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


class Nowcaster(nn.Module):
    """Stack of ConvLSTM cells at half resolution; predicts frame t+1 from frame t."""

    def __init__(self, hidden: list[int], kernel: int = 3) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.SiLU(),
        )
        chans = [64] + list(hidden)
        self.cells = nn.ModuleList(
            ConvLSTMCell(chans[i], chans[i + 1], kernel) for i in range(len(hidden))
        )
        self.up = nn.Sequential(
            nn.Conv2d(hidden[-1], 64 * 4, 3, padding=1), nn.PixelShuffle(2), nn.SiLU(),
            nn.Conv2d(64, 32 * 4, 3, padding=1), nn.PixelShuffle(2), nn.SiLU(),
            nn.Conv2d(32, 1, 3, padding=1),
        )

    def step(self, frame: Tensor, states: list) -> tuple[Tensor, list]:
        x = self.down(frame)
        new_states = []
        for cell, state in zip(self.cells, states):
            if state is None:
                state = cell.init_state(x)
            h, c = cell(x, state)
            new_states.append((h, c))
            x = h
        return torch.sigmoid(self.up(x)), new_states

    def forward(self, frames: Tensor, n_out: int, future: Tensor | None = None, teacher: float = 0.0) -> Tensor:
        """frames: (B, T_in, 1, H, W) -> (B, n_out, 1, H, W)"""
        states: list = [None] * len(self.cells)
        for t in range(frames.size(1)):
            pred, states = self.step(frames[:, t], states)
        outs = [pred]
        for t in range(n_out - 1):
            nxt = pred
            if future is not None and teacher > 0:
                coin = torch.rand(frames.size(0)) < teacher
                coin = coin.to(frames.device).view(-1, 1, 1, 1)
                nxt = torch.where(coin, future[:, t], pred)
            pred, states = self.step(nxt, states)
            outs.append(pred)
        return torch.stack(outs, dim=1)
