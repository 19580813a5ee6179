"""padded-vocabulary: layers with so many outputs that they should be a multiple of what tensor
cores take.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.parts import parts_of, trained_models
from autofast.model.script import Script
from autofast.model.values import Ext, const
from autofast.rule import Effect, Finding, Options, rule
from autofast.write.spelling import uses_gpu

LARGE = 4096  # outputs: words, items, users; no head for classes of images has so many
ALIGNED, BEST = 8, 64  # numbers of 16 bits: 16 bytes, and 128 on an A100 and later
MESSAGE = "{:,} outputs are no multiple of {}, which tensor cores ask for in 16 bits"
ADVICE = (
    "if the vocabulary is yours, pad it to {:,} in the embedding as well; "
    "weights that are saved already have other shapes then, and samples must not draw what was added"
)


@rule("padded-vocabulary", Effect.RECIPE, groups=("compute",))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Point out vocabularies of a size that tensor cores do not take."""
    if options.target == "cpu" or not uses_gpu(script):
        return
    seen: set[object] = set()
    for model in trained_models(script):
        for layer in parts_of(model.thing).values():
            size = _outputs(layer)
            node = getattr(layer, "node", None) or model.node
            if size >= LARGE and size % ALIGNED and node is not None and node not in seen:
                seen.add(node)
                padded = -(-size // BEST) * BEST
                yield Finding(node, MESSAGE.format(size, ALIGNED), advice=ADVICE.format(padded))


def _outputs(layer: object) -> int:
    """How many outputs a dense layer has; 0 where that is not known, or it is none."""
    if not isinstance(layer, Ext) or layer.name != "torch.nn.Linear":
        return 0
    size = const(layer.args.get(1, "out_features"))
    return size if isinstance(size, int) else 0
