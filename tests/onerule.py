"""One rule on one small script: what it finds, the rewritten text, and what both texts compute.

``apply`` also holds the rule to what holds for all of them: the output passes the post-conditions
and gives no further fix.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.registry import all_rules
from autofast.rule import Effect, Finding, Options


@dataclass
class Applied:
    """``texts`` holds every file by its path; ``text`` is the entry."""

    findings: tuple[Finding, ...]
    texts: Mapping[str, str]
    before: str

    @property
    def text(self) -> str:
        return self.texts["train.py"]

    @property
    def fixes(self) -> list[Finding]:
        return [f for f in self.findings if f.status == "fix"]

    @property
    def refusals(self) -> str:
        return "; ".join(f.refusal for f in self.findings if f.status == "refused")

    @property
    def advice(self) -> str:
        return "; ".join(f.advice for f in self.findings if f.status == "advice")

    @property
    def lines(self) -> list[str]:
        """The lines that are new in the entry, without indentation."""
        old = self.before.splitlines()
        return [line.strip() for line in self.text.splitlines() if line not in old]


def apply(
    rule: str,
    text: str,
    *,
    target: str = "cuda",
    precision: str = "",
    files: Mapping[str, str] | None = None,
    asked: bool = False,
    accumulate: int = 0,
    workers: int = 0,
    min_gain: float = 0.0,
    effect: Effect = Effect.SAMPLING,
) -> Applied:
    """What ``rule`` (or several, with spaces between) does to ``text`` (the entry ``train.py``)
    beside ``files``; ``asked`` for by name.

    ``precision``: auto, unless a scaler is among what is wanted: then it is the one that writes it.
    ``min_gain``: the least gain that a fix must be expected to bring; by default, everything is
    written. ``effect``: how far it may go, as far as the rule asks.
    """
    names = rule.split()
    rules = [all_rules()[name] for name in names]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        text = textwrap.dedent(text).lstrip("\n")
        for name, content in {**(files or {}), "train.py": text}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(textwrap.dedent(content).lstrip("\n"), "utf-8")
        entry = root / "train.py"
        options = Options(
            precision or ("either" if "grad-scaler" in names else "auto"),
            target,
            frozenset(names),
            asked=frozenset(names if asked else ()),
            named=frozenset(names if asked else ()),
            accumulate=accumulate,
            workers=max(0, workers),
            any_workers=workers != 0,
            min_gain=min_gain,
            effect=effect,
        )
        plan = Plan.make(read_script(entry, root), options, rules, Effect.RECIPE)
        again = plan.check(
            reread=lambda texts: read_script(
                entry, root, overlay={s.path: s.encode(t) for s, t in texts.items()}
            )
        )
        left = (again or plan).fixes  # nothing was written: nothing may be a fix
        assert not left, [f.message for f in left]
        assert again is None or not again.amendments  # that nothing is left is not its doing
        new = {source.rel: made for source, made in plan.texts().items()}
        return Applied(tuple(plan.findings), {"train.py": text, **new}, text)


def run(text: str, **given: Any) -> dict[str, Any]:
    """The variables of a script after it has run in this process, with ``given`` ones set
    before.
    """
    scope: dict[str, Any] = {"__name__": "__main__", **given}
    exec(compile(textwrap.dedent(text), "train.py", "exec"), scope)
    return scope


def same(one: Any, other: Any) -> None:
    """Asserts that two things made of tensors are of the same make and equal to the last bit, in
    memory as well.
    """
    assert type(one) is type(other)
    if hasattr(one, "stride"):
        import torch

        assert one.dtype == other.dtype and one.stride() == other.stride()
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        same(list(one.values()), list(other.values()))
    else:
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)


def same_runs(before: str, after: str) -> None:
    """Asserts that two scripts note the same ``losses``, and the same of each batch in ``seen``."""
    one, other = run(before), run(after)
    assert one["losses"] == other["losses"]
    assert len(one["seen"]) > 0
    same(one["seen"], other["seen"])
