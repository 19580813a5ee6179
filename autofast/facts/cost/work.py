"""What a training step costs."""

from __future__ import annotations

from dataclasses import dataclass

from autofast.rule import Refusal


class Unsized(Refusal):
    """Why it is not known what a batch costs; ``over`` where too much (or little) comes to a dense
    layer, as the images are too large (small).
    """

    def __init__(self, why: str, over: int = 0):
        super().__init__(why)
        self.over = over


@dataclass
class Work:
    """What a training step costs with one batch: forwards and backwards.

    Attributes:
        convolutions, products: FLOP.
        activations: numbers that layers put out.
        kernels: launched.
        parameters: numbers of them; ``tensors`` that they are in.
        narrow: the layers that multiply are narrow, or few and small.
    """

    convolutions: float = 0
    products: float = 0
    activations: float = 0
    kernels: float = 0
    parameters: int = 0
    tensors: int = 0
    narrow: bool = False

    def add(self, other: Work, times: float = 1) -> None:
        """Another one beside it, so many times."""
        self.convolutions += other.convolutions * times
        self.products += other.products * times
        self.activations += other.activations * times
        self.kernels += other.kernels * times
