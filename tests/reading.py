"""Helpers for tests of the reader: small programs as text, and the same programs run for real.

``probe`` is a library that the reader knows nothing of. ``probe.show(x)`` looks at a value,
``probe.spread(*x)`` and ``probe.spread(**x)`` at what a call gets of it at that time,
``probe.maybe()`` and ``probe.number()`` cannot be foreseen. A reading is sound where everything
that a run shows is among what the reader holds possible.
"""

from __future__ import annotations

import ast
import random
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from autofast.model.script import Script
from autofast.model.values import (
    Arg,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Seq,
    Thing,
    Unknown,
    Values,
)
from autofast.read import read_script

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
import probe
"""


def read(
    folder: Path, code: str = "", files: Mapping[str, str] | None = None, entry: str = "train.py"
) -> Script:
    """The reading of a program of several files; ``code`` is the entry script."""
    texts = {**(files or {}), **({entry: code} if code else {})}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), "utf-8")
    return read_script(folder / entry, folder)


def shown(script: Script) -> Values:
    """Everything that ``probe.show(x)`` may be shown, at all places together."""
    return frozenset(
        t
        for site in script.calls("probe.show")
        for o in site
        if o.args
        for t in script.values(_argument(site.node))
    )


def _argument(node: ast.AST) -> ast.expr:
    assert isinstance(node, ast.Call)
    return node.args[0]


def lines_of(nodes: list[Any]) -> list[int]:
    return [getattr(n, "node", n).lineno for n in nodes]


# --------------------------------------------------------------------------------- running for real
@dataclass
class Shot:
    """A value as it was when it was shown."""

    kind: str
    value: Any = None


class Stop(Exception):
    """The program has shown enough."""


def snapshot(value: Any, depth: int = 4) -> Shot:
    if value is None or isinstance(value, (bool, int, float, str)):
        return Shot("const", value)
    if depth == 0:
        return Shot("deep")
    if isinstance(value, (list, tuple)):
        return Shot("seq", [snapshot(v, depth - 1) for v in value])
    if isinstance(value, dict):
        return Shot("dict", {k: snapshot(v, depth - 1) for k, v in value.items()})
    if isinstance(value, type):
        return Shot("class", value.__name__)
    if callable(value) and hasattr(value, "__name__"):
        return Shot("func", value.__name__)
    if type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
        return Shot(
            "object",
            (type(value).__name__, {k: snapshot(v, depth - 1) for k, v in vars(value).items()}),
        )
    return Shot("other")


def run(code: str, seed: int = 0) -> dict[int, list[Shot]]:
    """What the program shows, by line; what cannot be foreseen is drawn from ``seed``."""
    import sys

    draw = random.Random(seed)
    seen: dict[int, list[Shot]] = {}
    budget = [400]

    def tick() -> None:
        budget[0] -= 1
        if budget[0] < 0:
            raise Stop

    def show(value: Any, *_: Any) -> Any:
        tick()
        seen.setdefault(sys._getframe(1).f_lineno, []).append(snapshot(value))
        return value

    def spread(*args: Any, **kwargs: Any) -> None:
        tick()
        shots = Shot(
            "spread", ([snapshot(a) for a in args], {k: snapshot(v) for k, v in kwargs.items()})
        )
        seen.setdefault(sys._getframe(1).f_lineno, []).append(shots)

    def maybe() -> bool:
        tick()
        return draw.random() < 0.5

    def number() -> int:
        tick()
        return draw.randrange(4)

    probe = types.ModuleType("probe")
    probe.__dict__.update(show=show, spread=spread, maybe=maybe, number=number)
    old = sys.modules.get("probe")
    sys.modules["probe"] = probe
    try:
        exec(compile(dedent(code).lstrip("\n"), "train.py", "exec"), {"__name__": "__main__"})
    except (Stop, RecursionError):
        pass
    except Exception:
        pass
    finally:
        if old is None:
            del sys.modules["probe"]
        else:
            sys.modules["probe"] = old
    return seen


# ------------------------------------------------------------------------ is it among the possible?
def possible(shot: Shot, values: Values, depth: int = 5) -> bool:
    """Whether a value that was really there is one that the reader holds possible."""
    return depth == 0 or any(_fits(shot, t, depth) for t in values)


def _fits(shot: Shot, thing: Thing, depth: int) -> bool:
    if isinstance(thing, (Unknown, Arg, Method)) or shot.kind in ("deep", "other"):
        return True
    if shot.kind == "const":
        if isinstance(thing, Num):
            return shot.value is not None
        return (
            isinstance(thing, Const)
            and type(thing.value) is type(shot.value)
            and thing.value == shot.value
        )
    if shot.kind == "seq":
        return _fits_seq(shot.value, thing, depth)
    if shot.kind == "dict":
        return isinstance(thing, Dict) and _fits_dict(shot.value, thing, depth)
    if shot.kind == "object":
        name, attrs = shot.value
        if not isinstance(thing, Inst):
            return isinstance(thing, Ext)
        return thing.cls.node.name == name and all(
            possible(
                v, thing.attrs.get(k) or thing.cls.find(k) or frozenset({Unknown()}), depth - 1
            )
            for k, v in attrs.items()
        )
    if shot.kind == "class":
        return isinstance(thing, Cls) and thing.node.name == shot.value
    if shot.kind == "func":
        return (
            (isinstance(thing, Func) and thing.name == shot.value)
            or (isinstance(thing, Bound) and thing.func.name == shot.value)
            or isinstance(thing, Ext)
        )
    raise ValueError(shot.kind)


def _fits_seq(items: list[Shot], thing: Thing, depth: int) -> bool:
    if isinstance(thing, Const):
        return (
            isinstance(thing.value, tuple)
            and len(thing.value) == len(items)
            and all(
                possible(s, frozenset({Const(v)}), depth)
                for s, v in zip(items, thing.value, strict=True)
            )
        )
    if isinstance(thing, Ext):
        return True
    if not isinstance(thing, Seq):
        return False
    if thing.items is not None and not thing.elem:
        return len(thing.items) == len(items) and all(
            possible(s, v, depth - 1) for s, v in zip(items, thing.items, strict=True)
        )
    if thing.items is not None:
        return all(
            possible(
                s, (thing.items[i] if i < len(thing.items) else frozenset()) | thing.elem, depth - 1
            )
            for i, s in enumerate(items)
        )
    return all(possible(s, thing.elem, depth - 1) for s in items)


def _fits_dict(table: dict[Any, Shot], thing: Dict, depth: int) -> bool:
    for key, shot in table.items():
        if not possible(
            shot,
            thing.get(key) or (frozenset({Unknown()}) if thing.open else frozenset()),
            depth - 1,
        ):
            return False
    return True


def _spread_fits(positional: list[Shot], named: dict[str, Shot], args: Arguments) -> bool:
    for i, shot in enumerate(positional):
        if args.loose is None and i >= len(args.positional) or not possible(shot, args.get(i, "")):
            return False
    if args.loose is None and any(g.sure for g in args.positional[len(positional) :]):
        return False
    for name, shot in named.items():
        if not possible(
            shot,
            args.named[name].values
            if name in args.named
            else frozenset({Unknown()} if args.open else ()),
        ):
            return False
    return all(name in named for name, given in args.named.items() if given.sure)


def unsound(folder: Path, code: str, seeds: int = 6) -> list[str]:
    """What a run shows and the reader holds impossible; empty where the reading is sound."""
    script = read(folder, code)
    sites = {s.node.lineno: s.node for s in script.calls("probe.show")}  # type: ignore[attr-defined]
    spreads = {s.node.lineno: s for s in script.calls("probe.spread")}  # type: ignore[attr-defined]
    wrong = []
    for seed in range(seeds):
        for line, shots in run(code, seed).items():
            if line not in sites and line not in spreads:
                wrong.append(f"line {line} is held to be dead")
                continue
            if line in spreads:
                ways = [o.args for o in spreads[line] if o.args]
                wrong += [
                    f"line {line}: {shot} is none of {ways}"
                    for shot in shots
                    if not any(_spread_fits(*shot.value, w) for w in ways)
                ]
                continue
            held = script.values(_argument(sites[line]))
            wrong += [
                f"line {line}: {shot} is not in {sorted(map(str, held))}"
                for shot in shots
                if not possible(shot, held)
            ]
    return list(dict.fromkeys(wrong))
