"""trainer-args: the same techniques as arguments of the frameworks that own the training loop."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.compiling.legality import Compiled
from autofast.techniques.trainers import accelerate, hugging_face, lightning
from autofast.techniques.trainers.options import find as find_options


@rule("trainer-args", Effect.ROUNDING, groups=("precision", "loader"), uses=("compile",))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Give Lightning, the Hugging Face Trainer and Accelerate the arguments that make training
    faster.
    """
    for trainer in script.trainers:
        if trainer.framework in ("lightning", "lightning-cli", "fabric"):
            yield from lightning.find(script, trainer, options)
        elif trainer.framework == "accelerate":
            yield from accelerate.find(script, trainer, options)
    yield from find_options(script, options, compiles=options.decides(Compiled))
    yield from lightning.old_style(script)
    yield from hugging_face.find(
        script, [t for t in script.trainers if t.framework == "hf-trainer"], options
    )
