import math

import torch
from torch import Tensor, nn


class Encoding(nn.Module):
    def __init__(self, bands: int):
        super().__init__()
        self.bands = bands
        self.dim = 3 + 6 * bands

    def forward(self, x: Tensor) -> Tensor:
        freq = torch.tensor([2.0 ** i for i in range(self.bands)]).to(x)
        y = (x.unsqueeze(-1) * freq * math.pi).flatten(-2)
        return torch.cat([x, y.sin(), y.cos()], -1)


class Field(nn.Module):
    """Signed distance as in IGR: softplus, skip in the middle, starts as a sphere."""

    def __init__(self, bands: int, width: int, depth: int, radius: float = 0.6, beta: float = 100.0):
        super().__init__()
        self.enc = Encoding(bands)
        self.skip = depth // 2
        dims = [self.enc.dim] + [width] * depth + [1]
        self.layers = nn.ModuleList()
        for i in range(len(dims) - 1):
            n_in = dims[i] + (self.enc.dim if i == self.skip else 0)
            lin = nn.Linear(n_in, dims[i + 1])
            if i == len(dims) - 2:
                nn.init.normal_(lin.weight, math.sqrt(math.pi / n_in), 1e-5)
                nn.init.constant_(lin.bias, -radius)
            else:
                nn.init.normal_(lin.weight, 0.0, math.sqrt(2 / dims[i + 1]))
                nn.init.zeros_(lin.bias)
                if i == 0:
                    lin.weight.data[:, 3:] = 0
                elif i == self.skip:
                    lin.weight.data[:, -(self.enc.dim - 3):] = 0
            self.layers.append(nn.utils.parametrizations.weight_norm(lin))
        self.act = nn.Softplus(beta=beta)

    def forward(self, x: Tensor) -> Tensor:
        e = self.enc(x)
        h = e
        for i, lin in enumerate(self.layers):
            if i == self.skip:
                h = torch.cat([h, e], -1) / math.sqrt(2)
            h = lin(h)
            if i < len(self.layers) - 1:
                h = self.act(h)
        return h.squeeze(-1)

    def value_and_normal(self, x: Tensor, create_graph: bool = True):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            d = self(x)
            (g,) = torch.autograd.grad(d.sum(), x, create_graph=create_graph)
        return d, g
