"""Stand-in for transformers.utils."""

import torch


def is_torch_tf32_available():
    return (
        torch.cuda.is_available()
        and torch.version.cuda is not None
        and torch.cuda.get_device_properties(torch.cuda.current_device()).major >= 8
    )


def is_torch_bf16_gpu_available():
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
