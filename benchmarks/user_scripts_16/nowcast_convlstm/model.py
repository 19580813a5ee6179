import torch
import torch.nn as nn


class ConvLSTMCell(nn.Module):
    def __init__(self, in_ch, hid_ch, k=3):
        super().__init__()
        self.hid_ch = hid_ch
        self.conv = nn.Conv2d(in_ch + hid_ch, 4 * hid_ch, k, padding=k // 2)

    def forward(self, x, state):
        h, c = state
        gates = self.conv(torch.cat([x, h], dim=1))
        i, f, o, g = torch.split(gates, self.hid_ch, dim=1)
        i, f, o = torch.sigmoid(i), torch.sigmoid(f + 1.0), torch.sigmoid(o)
        c = f * c + i * torch.tanh(g)
        h = o * torch.tanh(c)
        return h, c

    def init_state(self, batch, height, width, device):
        h = torch.zeros(batch, self.hid_ch, height, width).to(device)
        c = torch.zeros(batch, self.hid_ch, height, width).to(device)
        return h, c


class Nowcaster(nn.Module):
    """Frame encoder -> stacked ConvLSTM -> frame decoder, rolled out step by step."""

    def __init__(self, hidden=64, layers=3, n_out=10):
        super().__init__()
        self.n_out = n_out
        self.embed = nn.Sequential(
            nn.Conv2d(1, hidden // 2, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(hidden // 2, hidden, 3, padding=1), nn.LeakyReLU(0.2))
        self.cells = nn.ModuleList([ConvLSTMCell(hidden, hidden) for _ in range(layers)])
        self.head = nn.Sequential(
            nn.ConvTranspose2d(hidden, hidden // 2, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(hidden // 2, 1, 3, padding=1))

    def step(self, feat, states):
        for k, cell in enumerate(self.cells):
            states[k] = cell(feat, states[k])
            feat = states[k][0]
        return feat, states

    def forward(self, x, target=None, force=None):
        b, t_in, _, h, w = x.shape
        states = [c.init_state(b, h // 2, w // 2, x.device) for c in self.cells]

        for t in range(t_in):
            feat = self.embed(x[:, t])
            out, states = self.step(feat, states)

        frame = torch.sigmoid(self.head(out))
        preds = [frame]
        for t in range(1, self.n_out):
            # scheduled sampling: feed the true frame with probability `force`
            if force is not None and force[t]:
                frame = target[:, t - 1]
            out, states = self.step(self.embed(frame), states)
            frame = torch.sigmoid(self.head(out))
            preds.append(frame)
        return torch.stack(preds, dim=1)


class FrameCritic(nn.Module):
    """Patch critic that sees the last input frame and one forecast frame."""

    def __init__(self, ch=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, ch, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(ch, ch * 2, 4, 2, 1), nn.InstanceNorm2d(ch * 2), nn.LeakyReLU(0.2),
            nn.Conv2d(ch * 2, ch * 4, 4, 2, 1), nn.InstanceNorm2d(ch * 4), nn.LeakyReLU(0.2),
            nn.Conv2d(ch * 4, 1, 3, 1, 1))

    def forward(self, last, frames):
        b, t, c, h, w = frames.shape
        cond = last.unsqueeze(1).expand(-1, t, -1, -1, -1)
        return self.net(torch.cat([cond, frames], dim=2).reshape(b * t, 2 * c, h, w))
