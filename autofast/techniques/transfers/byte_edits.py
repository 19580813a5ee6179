"""What is written behind the copies of batches that have become bytes: the operations that make
them floats, and the constants of these."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from autofast.edit.edits import After, Before, Edit, Edits, Wrap, plain_code
from autofast.flow import scopes
from autofast.flow.program import Flow
from autofast.model.calls import pairs_of
from autofast.model.script import Script
from autofast.model.source import (
    ancestors,
    contains_kind,
    function_of,
    source_of,
    statement_of,
)
from autofast.rule import Refusal
from autofast.techniques.transfers.byte_batches import Copy
from autofast.techniques.transfers.byte_transforms import Channels, Constants
from autofast.techniques.transfers.copies import device_above
from autofast.write.spelling import torch_in

SET_UP = """\
{mean} = {torch}.tensor({means}, device={device}).view({n}, 1, 1)
{std} = {torch}.tensor({stds}, device={device}).view({n}, 1, 1)
"""


def on_device(
    script: Script,
    copies: Sequence[Copy],
    template: Callable[[str, str], str],
    constants: Constants | None,
    turn: int,
    transforms: Sequence[ast.AST],
) -> Edits:
    """The operations behind each copy; ``constants``: mean and deviation of channels, made once
    above the loops, or above the ``transforms`` that had them, under names of the ``turn``."""
    made: list[Edit] = []
    top = _above_all(script, copies, transforms) if constants is not None else None
    above: dict[tuple[ast.AST, str], ast.stmt] = {}
    for copy in copies:
        node, source = copy.transfer.node, source_of(copy.transfer.node)
        end = f"_{turn + 1}" if turn else ""
        names = source.fresh(f"mean{end}"), source.fresh(f"std{end}")
        made.append(_behind(node, template(*names)))
        if constants is not None:
            device = _device(copy)
            text = "" if device is None else source.segment(device)
            place = top or _outermost(copy.loop, device)
            if (place, text) in above:
                continue
            if any(place == one for one, _ in above):
                raise Refusal("the copies in one loop go to devices that are written differently")
            above[place, text] = place
            torch, imports = torch_in(source)
            given = dict(zip(("mean", "std"), names, strict=True))
            means, stds = (_text(script, c, place) for c in constants)
            code = SET_UP.format(
                **given,
                torch=torch,
                means=means,
                stds=stds,
                n=len(constants[0].numbers),
                device=text or '"cuda"',
            )
            made += [*imports, Before(place, plain_code(code))]
    return tuple(made)


def _above_all(
    script: Script, copies: Sequence[Copy], transforms: Sequence[ast.AST]
) -> ast.stmt | None:
    """The first statement that makes transforms, where several functions of the script copy to one
    device that it knows by then; None where each has to make the constants itself."""
    entry = script.entry
    here = [statement_of(t) for t in transforms if source_of(t) is entry]
    place = min(here, key=lambda s: s.lineno, default=None)
    if (
        place is None
        or place not in entry.tree.body
        or len({function_of(c.loop) for c in copies}) < 2
    ):
        return None
    flow = script.analysis(Flow)
    for copy in copies:
        device = _device(copy)
        if not isinstance(device, ast.Name) or not flow.means_the_same(device, place):
            return None
    return place


def _text(script: Script, channels: Channels, place: ast.stmt) -> str:
    """The numbers, by the constant of the file that has them where there is one."""
    match channels.expr:
        case ast.Name(id=name) as expr if source_of(expr) is source_of(place):
            flow, function = script.analysis(Flow), function_of(place)
            made = flow.definition(expr)
            inside = function is not source_of(place).tree
            if made is not None and scopes.owner(expr) is source_of(place).tree:
                if not scopes.binds(function, name) if inside else flow.graph(place).dominates(statement_of(made.node), place):  # fmt: skip
                    return name
        case ast.Tuple(elts=items) | ast.List(elts=items) if not contains_kind(
            channels.expr, ast.Name
        ):
            return f"[{', '.join(source_of(i).segment(i) for i in items)}]"  # 0.2010 as it is
    return str(list(channels.numbers))


def _behind(copy: ast.Call, template: str) -> Edit:
    """The operations behind a copy, in a statement of their own where it is put into a
    variable."""
    match statement_of(copy):
        case ast.Assign(targets=[target], value=value) as statement:
            for one, part in pairs_of(target, value):
                if part is copy and (name := getattr(one, "id", "")):
                    return After(statement, f"{name} = {template.format(name)}")
    return Wrap(copy, template)


def _device(copy: Copy) -> ast.expr | None:
    """The device of a copy, as it means the same above the loop; None: the current GPU."""
    if "tensor" in copy.transfer.kinds:
        raise Refusal("does not say to which device it copies", copy.transfer)
    return device_above(copy.transfer, copy.loop)


def _outermost(loop: ast.For, device: ast.expr | None) -> ast.stmt:
    """The outermost loop around the batches, in their function, above which the device is known."""
    function, place = function_of(loop), loop
    used = scopes.loaded_in(device) if device is not None else set()
    for outer in ancestors(loop):
        match outer:
            case ast.For() if not scopes.stored_in(outer) & used:
                place = outer
            case ast.For() | ast.While() | ast.Module():
                break
        if outer is function:
            break
    return place
