import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from alphabet import collapse, edit_distance
from crnn import CRNN


def test_collapse():
    assert collapse([0, 3, 3, 0, 3, 5, 5]) == [3, 3, 5]
    assert edit_distance("AB-12", "A8-1") == 2


def test_padding_does_not_leak_through_the_lstm():
    torch.manual_seed(0)
    model = CRNN(hidden=32).eval()
    short = torch.rand(1, 1, 48, 64)
    out, steps = model(short.repeat(2, 1, 1, 1), torch.tensor([64, 40]))
    assert out.shape == (16, 2, 38)
    assert steps.tolist() == [16, 10]
    loss = torch.nn.CTCLoss()(out, torch.tensor([[1, 2], [3, 4]]), steps, torch.tensor([2, 2]))
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    print("loss", loss.item())
