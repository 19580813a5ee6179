import torch

from pose.model import soft_argmax


def test_soft_argmax_keeps_float32_and_device():
    h = torch.zeros(1, 2, 8, 8)
    h[0, 0, 2, 5] = 1
    h[0, 1, 7, 0] = 1
    out = soft_argmax(h, 50.)
    assert out.dtype == torch.float32 and torch.allclose(out[0], torch.tensor([[5., 2.], [0., 7.]]), atol=1e-3)
