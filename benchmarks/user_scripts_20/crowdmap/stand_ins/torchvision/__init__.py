"""What crowdmap uses of torchvision."""

from . import models, transforms

__all__ = ["models", "transforms"]
