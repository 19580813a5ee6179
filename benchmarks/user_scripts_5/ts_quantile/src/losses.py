import torch
from torch import Tensor


def pinball(pred: Tensor, target: Tensor, quantiles) -> Tensor:
    losses = []
    for i, q in enumerate(quantiles):
        err = target - pred[..., i]
        losses.append(torch.max((q - 1) * err, q * err).unsqueeze(-1))
    return torch.mean(torch.sum(torch.cat(losses, dim=-1), dim=-1))


def attention_entropy(w: Tensor) -> Tensor:
    return -(w * (w + 1e-9).log()).sum(-1).mean()
