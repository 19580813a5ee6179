"""How a script goes on from a checkpoint: by an option that takes its path, or from a fixed
path."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autofast.model.events import BranchFrame, Occurrence
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import ByNode, at
from autofast.model.syntax import CHOICES
from autofast.model.values import Arg, Ext, Values, begins, const, is_const, one
from autofast.read import read_script


@dataclass(frozen=True)
class Way:
    """A call of ``torch.load`` whose path the user decides.

    Attributes:
        option: of the command line that takes the path; empty where the path is fixed.
        path: the fixed path, from the working folder; empty where it is computed.
        flags: further arguments without which the call is not come to.
        place: of the call, ``file:line``.
    """

    option: str
    path: str
    flags: tuple[str, ...]
    place: str


def ways(entry: Path, root: Path) -> list[Way]:
    """Of the script ``entry`` below ``root``, the likeliest first: what is loaded where optimizers
    and models get a state, then options before fixed paths."""
    script = read_script(entry, root)
    found: list[tuple[int, Way]] = []
    restored = [
        (
            2 if begins(o.this, Ext, "torch.optim") else 1,
            _branches(o),
        )
        for site in script.methods("load_state_dict")
        for o in site
    ]
    for site in script.calls("torch.load"):
        for o in site:
            here = _branches(o)
            rank = max((n for n, there in restored if _together(here, there)), default=0)
            for way in _ways(script, o, at(site)):
                found.append((3 * rank + 2 * bool(way.option) + bool(way.path), way))
    ranked = sorted((entry for entry in found if entry[0] > 2), key=lambda entry: -entry[0])
    return list(dict.fromkeys(way for _, way in ranked))


def _branches(o: Occurrence) -> ByNode[bool]:
    return {frame.node: frame.arm for frame in o.stack if isinstance(frame, BranchFrame)}


def _together(here: ByNode[bool], there: ByNode[bool]) -> bool:
    """In one branch, in no two arms of one; or both always."""
    shared = here.keys() & there.keys()
    return all(here[n] == there[n] for n in shared) and bool(shared or not (here or there))


def _ways(script: Script, o: Occurrence, place: str) -> Iterator[Way]:
    flags: dict[str, tuple[str, ...]] = {}
    for frame in o.stack:
        if isinstance(frame, BranchFrame) and isinstance(frame.node, CHOICES):
            flags.update(_needed(script, frame.node.test, frame.arm))
    given = tuple(word for words in flags.values() for word in words)
    for thing in o.args.get(0, "f"):
        if isinstance(thing, Arg) and thing.kind != "flag" and (option := _spelt(thing)):
            others = (words for name, words in flags.items() if name != option)
            yield Way(option, "", tuple(word for words in others for word in words), place)
        elif is_const(thing, str) and thing.value:
            yield Way("", thing.value, given, place)
        else:
            yield Way("", "", given, place)


def _needed(script: Script, test: ast.expr, arm: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Options that make ``test`` come out as ``arm`` where their defaults do not, each with its
    words."""
    match test:
        case ast.BoolOp(op=op, values=parts) if isinstance(op, ast.And) == arm:
            for part in parts:
                yield from _needed(script, part, arm)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _needed(script, inner, not arm)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            values, wanted = script.values(left), script.constant(right)
            option = _option(values)
            if option and isinstance(wanted, str) and isinstance(op, ast.Eq) == arm:
                if const(option.default) != wanted:
                    yield _spelt(option), (_spelt(option), wanted)
        case _:
            option = _option(script.values(test))
            if option and option.kind == "flag" and const(option.default) is not arm:
                yield _spelt(option), (_spelt(option),)


def _option(values: Values) -> Arg | None:
    """The one option that the values come from, beside what it may hold."""
    found = one(values)
    return found if isinstance(found, Arg) and _spelt(found) else None


def _spelt(option: Arg) -> str:
    """As it is typed: the longest of its names; empty for a positional argument, or one that is not
    declared by names."""
    names = [
        word.value
        for word in of_kind(option.node.args, ast.Constant)
        if isinstance(word.value, str) and word.value.startswith("-")
    ]
    return max(names, key=len, default="")
