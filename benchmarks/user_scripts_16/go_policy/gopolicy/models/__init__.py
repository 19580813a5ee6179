from .resnet import PolicyValueNet

__all__ = ["PolicyValueNet"]
