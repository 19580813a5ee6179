"""Networks of torchvision and timm, by published figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autofast.facts.cost.meta.layers import Layer
from autofast.facts.cost.meta.tensor import Ledger, Meta
from autofast.facts.cost.work import Unsized

# Of an image of 224 x 224 pixels: 10^9 multiplications, 10^6 numbers that convolutions put out (and
# more where their activations are costly), and how many of these there are; 10^6 parameters; the
# features that it ends in.
BACKBONES = """resnet18 1.82 2.5 20 11.7 512,resnet34 3.67 3.7 36 21.8 512,resnet50 4.12 11.1 53 25.6 2048,
    resnet101 7.83 16.2 104 44.5 2048,resnet152 11.6 22.6 155 60.2 2048,resnext50_32x4d 4.27 14.4 53 25 2048,
    wide_resnet50_2 11.4 14 53 68.9 2048,densenet121 2.87 6.9 120 8 1024,densenet169 3.4 7.3 168 14 1664,
    vgg11 7.6 7.4 8 133 512,vgg16 15.5 13.6 13 138 512,vgg16_bn 15.5 13.6 13 138 512,vgg19 19.6 14.9 16 144 512,
    squeezenet1_1 0.36 2.5 26 1.2 512,mobilenet_v2 0.31 10 52 3.5 1280,mobilenet_v3_large 0.23 8 62 5.5 960,
    mobilenet_v3_small 0.06 3 52 2.5 576,efficientnet_b0 0.4 13 81 5.3 1280,convnext_tiny 4.5 13.5 22 28.6 768,
    alexnet 0.71 0.65 5 61 256"""
FIGURES = {name: [*map(float, found)] for name, *found in map(str.split, BACKBONES.split(","))}
HEADS = ("fc", "classifier", "head", "heads")  # behind the convolutions
SIDE, STRIDE = 224, 32


@dataclass(eq=False)
class Backbone:
    """A network of a library; ``whole``: with its pooling and its head."""

    name: str
    whole: bool = True
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def features(self) -> int:
        return int(FIGURES[self.name][4])

    def run(self, ledger: Ledger, args: list[Any]) -> Meta:
        """A pass; of its convolutions alone, the last images."""
        x = ledger.image(args[0] if args else None, 3) if args else None
        if x is None:
            raise Unsized("what a network is given is not known")
        multiplied, put_out, layers, parameters, _ = FIGURES[self.name]
        share = x.dims[0] * x.dims[2] * x.dims[3] / SIDE**2
        ledger.use(self, int(1e6 * parameters), int(3 * layers))
        # Behind each convolution stands a normalisation.
        ledger.launch(3 * layers, 6 * layers)
        ledger.multiply(1e9 * multiplied * share, convolves=True)
        ledger.weigh()
        ledger.put_out(int(1e6 * put_out * share))
        sides = [-(-d // STRIDE) for d in x.dims[2:]]
        if not self.whole:
            return Meta((x.dims[0], self.features, *sides))
        return Meta((x.dims[0], self._classes()))

    def _classes(self) -> int:
        head = next((self.attrs[n] for n in HEADS if n in self.attrs), None)
        made = head.attrs.get("out_features") if isinstance(head, Layer) else None
        if made is None and isinstance(head, Layer) and head.attrs.get("parts"):
            last = head.attrs["parts"][-1]
            made = last.attrs.get("out_features") if isinstance(last, Layer) else None
        if made is None and head is not None:
            return self.features
        return made if isinstance(made, int) else 1000
