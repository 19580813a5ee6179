"""trainer-args: the same techniques as arguments of the frameworks that own the training loop."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.trainers import accelerate as _trainer_accelerate
from autofast.techniques.trainers import hugging_face as _trainer_hf
from autofast.techniques.trainers import lightning as _trainer_lightning
from autofast.techniques.trainers import options as _trainer_options


@rule("trainer-args", Effect.ROUNDING, groups=("precision", "loader"))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Give Lightning, the Hugging Face Trainer and Accelerate the arguments that make training faster."""
    for trainer in script.trainers:
        if trainer.framework in ("lightning", "lightning-cli", "fabric"):
            yield from _trainer_lightning.find(script, trainer, options)
        elif trainer.framework == "accelerate":
            yield from _trainer_accelerate.find(script, trainer, options)
    yield from _trainer_options.find(script, options)
    yield from _trainer_lightning.old_style(script)
    yield from _trainer_hf.find(script, [t for t in script.trainers if t.framework == "hf-trainer"], options)
