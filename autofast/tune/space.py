"""What there is to choose from: the rules that change the script, alone as far as they can stand
alone, and the texts of any choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from autofast.commands.planning import findings
from autofast.commands.rewriting import Rewritten, rewrite
from autofast.config import Config
from autofast.edit.passes import Passes
from autofast.edit.plan import PostConditionError
from autofast.model.source import BadInput
from autofast.registry import all_rules, expanded
from autofast.report.record import Record
from autofast.tune.setting import Setting, Unit
from autofast.verify.command import EFFECTS

COMPILE = "--compile"
PRECISION = "precision"
Values = tuple[tuple[str, str], ...]


@dataclass
class Space:
    """``alone``: only the entry may change, as only that is to be written."""

    entry: Path
    root: Path
    config: Config
    alone: bool = False
    _whole: dict[Values, Rewritten] = field(default_factory=dict)
    _subsets: dict[Setting, Passes] = field(default_factory=dict)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """By name; an option's other values only where they write something else."""
        found = list(self._units(()))
        lowering = {rule.name for rule in all_rules().values() if rule.lowers_precision}
        lowered = {unit.rule for unit in found} & lowering
        # On a CPU 16 bits are bfloat16: float16 is emulated by nearly all of them.
        if self.config.precision == "auto" and self.config.target == "cuda" and lowered:
            found += self._units(((PRECISION, "fp16"),), only=lowered)
        written: dict[frozenset[tuple[Path, bytes]], Unit] = {}
        for unit in sorted(found, key=lambda unit: (len(unit.setting.rules), unit.name)):
            written.setdefault(self._written(unit.setting), unit)
        return tuple(sorted(written.values(), key=lambda unit: unit.name))

    def whole(self, values: Values = ()) -> Rewritten:
        """All rules at once, for these values of options."""
        if values not in self._whole:
            config = replace(self._asked(), **dict(values))  # type: ignore[arg-type]
            self._whole[values] = rewrite(self.entry, self.root, config, alone=self.alone)
        return self._whole[values]

    def result(self, setting: Setting) -> Rewritten:
        """The rewrite with the rules of ``setting`` alone."""
        whole = self.whole(setting.values)
        if not setting:
            return replace(whole, plan=whole.plan.subset([]), texts={}, records=[], elsewhere=[])
        plan = self._plan(setting)
        return replace(whole, plan=plan, texts=plan.texts(), records=self._records(plan))

    def overlay(self, setting: Setting) -> dict[Path, bytes]:
        """New contents by file; empty for the original."""
        if not setting:
            return {}
        texts = self._plan(setting).texts()
        return {source.path: source.encode(text) for source, text in texts.items()}

    def effect(self, setting: Setting) -> str:
        """The strongest of what is applied, by which sameness is tested."""
        if not setting:
            return "exact"
        found = {r.effect for r in self._records(self._plan(setting)) if r.status == "fix"}
        return max(found, key=EFFECTS.index, default="exact")

    # ---------------------------------------------------------------------------------------- parts
    def _asked(self) -> Config:
        """With what is off unless asked for because a measurement has to say whether it pays; not
        on a CPU, where compiling takes minutes for every choice that is tried."""
        config = self.config
        compiling = {r.name for r in all_rules().values() if r.option == COMPILE}
        unwanted = compiling <= expanded(config.ignore) if config.ignore else False
        if config.select or unwanted or config.target != "cuda":
            return config
        return replace(config, compile=True)

    def _units(self, values: Values, only: set[str] | None = None) -> Iterator[Unit]:
        try:
            plan = self.whole(values).plan
        except (BadInput, PostConditionError):
            if values:
                return
            raise
        for rule in sorted(plan.applied):
            if only is None or rule in only:
                yield Unit(rule, self._smallest(rule, values))

    def _smallest(self, rule: str, values: Values) -> Setting:
        """The rule alone, or with as few others as it does something with."""
        alone = Setting(frozenset({rule}), values)
        if self._applies(rule, alone):
            return alone
        kept = Setting(self.whole(values).plan.applied, values)
        for other in sorted(kept.rules - {rule}):
            fewer = kept.without([other])
            if self._applies(rule, fewer):
                kept = fewer
        return kept

    def _applies(self, rule: str, setting: Setting) -> bool:
        try:
            return rule in self._plan(setting).applied
        except PostConditionError:
            return False

    def _plan(self, setting: Setting) -> Passes:
        if setting not in self._subsets:
            self._subsets[setting] = self.whole(setting.values).plan.subset(setting.rules)
        return self._subsets[setting]

    def _records(self, plan: Passes) -> list[Record]:
        return findings(plan)

    def _written(self, setting: Setting) -> frozenset[tuple[Path, bytes]]:
        return frozenset(self.overlay(setting).items())
