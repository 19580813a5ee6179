"""Blocks that a model repeats: compiled once for all of them, in place of the whole model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.facts.cost.inputs import turns
from autofast.facts.parts import parts_of
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.events import LoopFrame
from autofast.model.kinds import is_module
from autofast.model.script import Model, Script
from autofast.model.source import ancestors
from autofast.model.values import Dict, Ext, Inst, Tensor, Thing, Values, const, one

# Parameters and what modules hold are inputs of compiled code since 2.5; before, each block would
# be compiled for itself, and the ninth not at all.
SINCE = (2, 5)
LEAST = 4  # blocks
# features: with more of them in a layer, compiled blocks have enough to do to be started one by one
WIDE = 256
DENSE = frozenset({"torch.nn.Linear", "torch.nn.MultiheadAttention"})
LISTS = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential"})
DEEP = 3  # attributes below the model: ``model.transformer.h``


@dataclass(frozen=True)
class Blocks:
    """``path`` below the model holds ``number`` blocks, which are nothing but ``block``."""

    path: str
    block: Inst
    number: int


def blocks_of(script: Script, model: Model) -> Blocks | None:
    """The blocks of one class, made alike, that are worth compiling by themselves; None where there
    are none.
    """
    if script.torch.rules_out(SINCE):
        return None
    for path, container in _lists(model.thing):
        block = _only(container)
        if block is None or not _are_alike(block):
            continue
        loop = _loop(block)
        number = turns(script, loop) if loop is not None else None
        if number and number >= LEAST and _is_wide(block) and _takes_tensors(script, block):
            if not _is_set_outside(script, block):
                return Blocks(path, block, number)
    return None


def _lists(thing: Thing, path: str = "") -> Iterator[tuple[str, Ext]]:
    """The lists of modules below a model, and the attributes that lead there."""
    if path.count(".") == DEEP:
        return
    for name, values in _attributes(thing):
        inner, here = one(values), f"{path}.{name}"
        if isinstance(inner, Ext) and inner.name in LISTS:
            yield here, inner
        elif inner is not None and is_module(inner):
            yield from _lists(inner, here)


def _attributes(thing: Thing) -> Iterator[tuple[str, Values]]:
    if isinstance(thing, Inst) and not thing.open:
        yield from thing.attrs.items()
    elif isinstance(thing, Ext) and thing.name == "torch.nn.ModuleDict":
        for given in thing.args.positional:
            held = one(given.values)
            if isinstance(held, Dict) and not held.open:
                for key in held.entries:
                    if isinstance(key, str) and key.isidentifier():
                        yield key, held.get(key)


def _only(container: Ext) -> Inst | None:
    """The block that all modules of a list are, made in one loop."""
    held = [t for t in parts_of(container).values() if is_module(t)]
    direct = [t for t in held if isinstance(t, Inst) and _is_in(container, t)]
    others = [t for t in held if t is not container and _is_in(container, t)]
    spread = len(getattr(container.node, "args", ())) == 1
    known = not container.args.open or spread  # ``Sequential(*[Block() for _ in range(12)])``
    return direct[0] if len(direct) == len(others) == 1 and known else None


def _is_in(container: Ext, thing: Thing) -> bool:
    given = [t for g in container.args.every for t in g.values]
    inner = [x for t in given for x in getattr(t, "any", frozenset)()]
    return any(t is thing for t in (*given, *inner))


def _loop(block: Inst) -> ast.AST | None:
    frame = block.made[-1] if block.made else None
    return frame.node if isinstance(frame, LoopFrame) and not frame.unrolled else None


def _are_alike(block: Inst) -> bool:
    """They are made by one call in a loop, whose arguments do not tell which turn it is: one piece
    of compiled code is that of all.
    """
    match _loop(block), block.node:
        case (ast.ListComp() | ast.GeneratorExp()) as loop, ast.Call() as call:
            return not loaded_in(call) & {n for g in loop.generators for n in stored_in(g.target)}
        case ast.For() as loop, ast.Call() as call:
            return not loaded_in(call) & stored_in(loop)
    return False


def _is_set_outside(script: Script, block: Inst) -> bool:
    """Whether something tells one of them from another later: ``block.index = i``."""
    own = {id(cls.node) for cls in (block.cls, *block.cls.ancestors())}
    return any(
        o.this is block and not any(id(a) in own for a in ancestors(site.node))
        for site in script.log.of("set_attribute", "set_elsewhere")
        for o in site
    )


def _is_wide(block: Inst) -> bool:
    sizes = [
        const(frozenset({size}))
        for part in parts_of(block).values()
        if isinstance(part, Ext) and part.name in DENSE
        for given in part.args.positional[:2]
        for size in given.values
    ]
    return any(type(n) is int and n > WIDE for n in sizes)


def _takes_tensors(script: Script, block: Inst) -> bool:
    """Nothing but tensors and None, which a Sequential gives anyway: a number that changes would be
    compiled again.
    """
    calls = [o for s in script.log.of("forward") for o in s if o.this is block]
    given = [g.values for o in calls if o.args is not None for g in o.args.every]
    return all(
        values and all(isinstance(t, Tensor) or const(frozenset({t})) is None for t in values)
        for values in given
    )
