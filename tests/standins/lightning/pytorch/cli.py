"""Stand-in for lightning.pytorch.cli: defaults, ``--trainer.name=value`` and links between
arguments.
"""

from __future__ import annotations

import ast
import sys

from lightning.pytorch import Trainer, seed_everything


class _Parser:
    def __init__(self):
        self.values, self.links = {}, []

    def set_defaults(self, defaults):
        self.values.update(defaults)

    def link_arguments(self, source, target):
        self.links.append((source, target))


class LightningCLI:
    def __init__(
        self, model_class=None, datamodule_class=None, save_config_callback=None, save_config_kwargs=None, trainer_class=Trainer,
        trainer_defaults=None, seed_everything_default=True, parser_kwargs=None, parser_class=_Parser, subclass_mode_model=False,
        subclass_mode_data=False, args=None, run=True, auto_configure_optimizers=True, load_from_checkpoint_support=True,
    ):  # fmt: skip
        self.parser = parser_class()
        self.parser.set_defaults(
            {"trainer." + name: value for name, value in (trainer_defaults or {}).items()}
        )
        self.add_arguments_to_parser(self.parser)
        for word in sys.argv[1:] if args is None else args:
            name, _, value = word.removeprefix("--").partition("=")
            self.parser.values[name] = _value(value)
        if seed_everything_default is not True:
            seed_everything(seed_everything_default)
        self.datamodule = datamodule_class(**self._given("data")) if datamodule_class else None
        for source, target in self.parser.links:
            self.parser.values.setdefault(
                target, getattr(self.datamodule, source.partition(".")[2])
            )
        self.model = model_class(**self._given("model"))
        self.trainer = trainer_class(**self._given("trainer"))
        if run:
            self.trainer.fit(self.model, datamodule=self.datamodule)

    def add_arguments_to_parser(self, parser): ...

    def _given(self, group):
        return {
            name.partition(".")[2]: value
            for name, value in self.parser.values.items()
            if name.startswith(group + ".")
        }


def _value(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
