"""A stand-in for as much of torchvision as scripts with images in memory need: the operations and
the draws of its transforms, in their order.

Images are tensors of bytes (height, width, channels) here, where torchvision has PIL's.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy
import torch


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class PILToTensor:
    def __call__(self, image: Any) -> Any:
        return torch.as_tensor(
            image if isinstance(image, torch.Tensor) else numpy.array(image)
        ).permute(2, 0, 1)


class ToTensor(PILToTensor):
    def __call__(self, image: Any) -> Any:
        return super().__call__(image).contiguous().to(torch.float32).div(255)


class ToDtype:
    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        self.dtype, self.scale = dtype, scale

    def __call__(self, image: Any) -> Any:
        return image.to(self.dtype).div(255) if self.scale else image.to(self.dtype)


class RandomErasing:
    def __call__(self, image: Any) -> Any:
        return image


class Normalize:
    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.mean, self.std = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    def __call__(self, tensor: Any) -> Any:
        return tensor.clone().sub_(self.mean).div_(self.std)


class Pad:
    def __init__(self, padding: int) -> None:
        self.padding = padding

    def __call__(self, image: Any) -> Any:
        return torch.nn.functional.pad(image, [0, 0, *[self.padding] * 4])


class RandomCrop:
    def __init__(self, size: int | tuple[int, int], padding: int = 0) -> None:
        self.size = size if isinstance(size, int) else size[0]
        self.padding = padding

    def __call__(self, image: Any) -> Any:
        image = torch.nn.functional.pad(image, [0, 0, *[self.padding] * 4])
        places = len(image) - self.size + 1
        top, left = (int(torch.randint(places, (1,))) for _ in range(2))
        return image[top : top + self.size, left : left + self.size]


class RandomHorizontalFlip:
    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return image.flip(1) if torch.rand(1) < self.p else image


class RandomVerticalFlip(RandomHorizontalFlip):
    def __call__(self, image: Any) -> Any:
        return image.flip(0) if torch.rand(1) < self.p else image


class Images:
    """Images of noise in memory, as torchvision keeps its own."""

    def __init__(
        self, root: str, train: bool = True, transform: Any = None, download: bool = False
    ) -> None:
        random = torch.Generator().manual_seed(int(train))
        self.transform = transform
        shape = (30, 28, 28) if type(self) is MNIST else (30, 32, 32, 3)
        data = torch.randint(0, 256, shape, generator=random, dtype=torch.uint8)
        targets = torch.randint(0, 2, (30,), generator=random)
        self.data = data if type(self) is MNIST else data.numpy()
        self.targets = targets if type(self) is MNIST else targets.tolist()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = torch.as_tensor(self.data[index])
        image = image.unsqueeze(2) if image.dim() == 2 else image
        return self.transform(image), int(self.targets[index])


class MNIST(Images):
    pass


class CIFAR10(Images):
    pass


def modules() -> dict[str, ModuleType]:
    """The modules, by their names."""
    whole, datasets, transforms, v2 = (
        ModuleType(f"torchvision{n}") for n in ("", ".datasets", ".transforms", ".transforms.v2")
    )
    vars(datasets).update(MNIST=MNIST, CIFAR10=CIFAR10)
    parts = (Compose, ToTensor, PILToTensor, Normalize, Pad, RandomCrop, RandomHorizontalFlip)
    vars(transforms).update({c.__name__: c for c in (*parts, RandomVerticalFlip, RandomErasing)})
    named = {n: c for n, c in vars(transforms).items() if not n.startswith("_")}
    vars(v2).update(named | {"ToImage": PILToTensor, "ToDtype": ToDtype})
    vars(transforms).update(v2=v2)
    vars(whole).update(datasets=datasets, transforms=transforms)
    return {module.__name__: module for module in (whole, datasets, transforms, v2)}


if __name__ != "tests.pretend.torchvision":  # run before a script
    sys.modules.update(modules())
