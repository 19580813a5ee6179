"""Where models and images are converted to channels_last."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Edit, Keyword, Wrap
from autofast.facts.cost.step import Cost
from autofast.facts.layout import (
    draws_in_layout,
    filled_flat,
    is_convolutional,
    takes_image,
    why_not_channels_last,
)
from autofast.facts.precision.code import Code
from autofast.flow.program import Flow
from autofast.model.calls import is_method, is_same_code, put_into
from autofast.model.contents import without_wrappers
from autofast.model.events import CallFrame, Site, inside
from autofast.model.kinds import is_module, is_wrapper
from autofast.model.roles import Model, Transfer
from autofast.model.script import Script
from autofast.model.several import any_in, grouped, wordset
from autofast.model.source import (
    Nodes,
    is_same_function,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import VARIABLES, has_star, is_read
from autofast.model.tensors import tensors_in
from autofast.model.values import OBJECTS, Cls, Inst, Ref, Unknown, any_named
from autofast.rule import Effect, Finding
from autofast.techniques.layout.reshapes import reshapes
from autofast.write.spelling import torch_in

MODEL = "a network of 2-D convolutions in NCHW order: tensor cores and oneDNN compute in channels_last and convert each time"


IMAGES = (
    "images reach the network in NCHW order and are converted to channels_last in its first layer"
)


WIDE = 100  # columns, from which on a statement of its own converts
PLACES = 2  # where networks are made, each of which is converted there; more are no hunk to merge
SAVED = "torch.load"  # the same network, from a file
PARALLEL = "torch.nn.DataParallel"


KEEPING = wordset("float double half bfloat16 detach requires_grad_ clone")


def is_there(script: Script) -> bool:
    """The script knows about channels_last already, perhaps behind an option."""
    return any(n.attr.startswith("channels_last") for n in script.each(ast.Attribute))


def trained_networks(script: Script) -> Iterator[Model]:
    """The convolutional networks that take part in training."""
    steps = script.analysis(Cost).training
    used = {inner for step in steps for t in step.models for inner in without_wrappers(t)}
    for model in script.models:
        if is_convolutional(model) and model.thing in used:
            yield model


def networks_beside(script: Script) -> Iterator[Model]:
    """Networks of the classes that are trained, which every step calls without training them:
    averages of the weights, targets, teachers.
    """
    mine = list(trained_networks(script))
    classes = {m.thing.cls for m in mine if isinstance(m.thing, Inst)}
    for model in script.models:
        known = isinstance(model.thing, Inst) and model.thing.cls in classes
        if known and model not in mine and is_convolutional(model) and _in_steps(script, model):
            yield model


def _in_steps(script: Script, model: Model) -> bool:
    return any(
        inside(occurrence.stack, step.loop)
        for step in script.steps
        for site in model.forwards
        for occurrence in site
    )


def averaged_networks(script: Script, place: ast.expr, models: list[Model]) -> list[Model]:
    """Networks of the same classes that are converted at the same place, and only measured:
    averages of the weights, targets, teachers.
    """
    classes = {m.thing.cls for m in models if isinstance(m.thing, Inst)}
    return [
        m
        for m in script.models
        if isinstance(m.thing, Inst)
        and m.thing.cls in classes
        and all(m.thing is not x.thing for x in models)
        and is_convolutional(m)
        and place_of(script, m) is place
    ]


def part_of(models: list[Model], others: list[Model]) -> str:
    """In words, in which network one of ``models`` is beside ``others``, that stay: each would
    convert for the next; empty where in none.
    """
    whole = {m.thing.cls for m in others if isinstance(m.thing, Inst)}
    whole |= {owner for m in others for owner in _networks_around(m)}
    owners = (owner for m in models for owner in _networks_around(m) if owner in whole)
    owner = next(owners, None)
    return f"it is a part of {owner.node.name}, the rest of which is not converted" if owner else ""


def scattered_makers(models: list[Model], converted: list[list[Model]]) -> str:
    """In words, which network makes ``models``, and elsewhere others that would each be converted
    by themselves; empty where none does.
    """
    whole = {m.thing.cls for group in converted for m in group if isinstance(m.thing, Inst)}
    mine = {owner for m in models for owner in _networks_around(m)} - whole
    here = _statements(models)
    for group in (g for g in converted if g is not models and not here & _statements(g)):
        for owner in (o for m in group for o in _networks_around(m) if o in mine):
            return f"{owner.node.name} makes several networks, each of which would have to be converted"
    return ""


def _statements(models: list[Model]) -> set[ast.stmt]:
    return {statement_of(m.node) for m in models if m.node is not None}


def whole_of(model: Model, others: list[Model]) -> Model | None:
    """The one of ``others`` whose constructor makes the model, and which is converted with all its
    parts.
    """
    owners = set(_networks_around(model))
    return next(
        (
            o
            for o in others
            if isinstance(o.thing, Inst) and o is not model and o.thing.cls in owners
        ),
        None,
    )


def fed_by(models: list[Model], others: list[Model]) -> str:
    """In words, which of ``others``, that stay, makes all that ``models`` are given: their layout
    begins there; empty where none does.
    """
    stay = {id(m.thing): m.name for m in others}
    makers: set[str] = set()
    for model in models:
        for occurrence in (o for site in model.forwards for o in site):
            given = tensors_in(occurrence.args.get(0, ""))
            made = [stay[id(t)] for tensor in given for t in tensor.models if id(t) in stay]
            if not made:
                return ""
            makers.update(made)
    name = min(makers, default="")
    return f"it goes on with what {name} gives, which is not converted" if name else ""


def _networks_around(model: Model) -> Iterator[Cls]:
    """The networks whose constructors make the model."""
    for frame in model.thing.made:
        owner = frame.func.owner if isinstance(frame, CallFrame) else None
        if owner is not None and is_module(Inst(owner, None)):
            yield owner


def place_of(script: Script, model: Model) -> ast.expr | None:
    """The call that the model is converted at: the only one that moves it to its device (or the one
    right behind its making), else the one that makes it.
    """
    moves = [s for s in model.moves if s.call]
    made = model.node if isinstance(model.node, ast.Call) else None
    if len(moves) > 1:
        moves = [s for s in moves if is_method(s.node) and s.node.func.value is model.node]
    if len(moves) == 1 and (move := moves[0].call):
        if all(
            o.this is not None and not is_wrapper(o.this) for o in moves[0]
        ) and not _is_wrapped_before(model, moves[0]):
            return move
        # Rather where the script chooses it than in each function that makes one.
        if made is None or not is_same_function(made, move):
            return move if all(w.name == PARALLEL for w in model.wraps) else made
    return made


def _is_wrapped_before(model: Model, move: Site) -> bool:
    wraps = {w.node for w in model.wraps}
    return bool(wraps) and any_in(ast.walk(move.node), wraps)


def conversions(
    script: Script, place: ast.expr, models: list[Model]
) -> Iterator[tuple[Finding, list[Model]]]:
    """All models in one place; or, where one of a few is refused, each where it is made."""
    if why := _others(script, place, models):
        yield Finding(place, MODEL, refusal=why), models
        return
    finding = _convert(script, place, models)
    made = {m.node: m.node for m in models if isinstance(m.node, ast.Call)}
    if not finding.refusal or not 1 < len(made) <= PLACES:
        yield finding, models
        return
    for node in made.values():
        mine = [m for m in models if m.node is node]
        yield _convert(script, node, mine), mine


def _others(script: Script, place: ast.expr, models: list[Model]) -> str:
    """A network besides ``models`` that the place may convert too, in words: what it does with its
    layout was not looked at.
    """
    known = {m.thing for m in models}
    of = [place]
    if any(s.node is place for m in models for s in m.moves):
        of = [place.func.value] if is_method(place, "to", "cuda", "cpu") else place.args[:1]  # type: ignore[attr-defined]
    for thing in (t for e in of for t in script.values(e)):
        for inner in without_wrappers(thing):
            if isinstance(inner, Unknown) and inner.name != SAVED:
                return f"it may be a network that is chosen when it runs: {inner.why}"
            if isinstance(inner, OBJECTS) and is_module(inner) and inner not in known:
                name = inner.cls.node.name if isinstance(inner, Inst) else inner.name
                return f"it may be {name}, whose layers are not known to work in this layout"
    return ""


def _convert(script: Script, place: ast.expr, models: list[Model]) -> Finding:
    edits: list[Edit] = []
    things = frozenset(t for m in models for t in (m.thing, *m.wraps))
    effect = None
    since = min((o.order for m in models for s in m.moves if s.node is place for o in s), default=0)
    if why := filled_flat(script, models, since):
        return Finding(place, MODEL, refusal=why)
    for model in models:
        code = Code(script, (), (model.thing,))
        if why := why_not_channels_last(script, model, code):
            return Finding(place, MODEL, refusal=why)
        rewritten = reshapes(script, code, things)
        if isinstance(rewritten, str):
            return Finding(place, MODEL, refusal=rewritten)
        edits += rewritten
        if draws_in_layout(script, model, code, since):
            effect = Effect.SAMPLING
    torch, needed = torch_in(source_of(place))
    layout = f"{torch}.channels_last"
    call = place if isinstance(place, ast.Call) else None
    if (
        call is not None
        and is_method(call, "to")
        and any(s.node is place for m in models for s in m.moves)
    ):
        first: Edit = Keyword(call, "memory_format", layout)
    else:
        first = _below(place, layout) or Wrap(place, f"{{}}.to(memory_format={layout})")
    return Finding(place, MODEL, edits=(first, *needed, *edits), effect=effect)


def _below(place: ast.expr, layout: str) -> Edit | None:
    """``model = model.to(...)`` below the line that makes the model, where this would grow too
    long.
    """
    match statement_of(place):
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) as statement:
            last = source_of(place).lines[(statement.end_lineno or 1) - 1]
            is_long = len(last) + len(f".to(memory_format={layout})") > WIDE
            if value is place and (is_long or statement.lineno != statement.end_lineno):
                name = ast.unparse(target)
                return After(statement, f"{name} = {name}.to(memory_format={layout})")
    return None


def image_transfers(
    script: Script, converted: list[tuple[Model, object]], effect: Effect | None
) -> Iterator[Finding]:
    """The transfers of the image batches that go into these networks first; they need the findings
    that convert them, which have these keys.
    """
    keys = {id(model): key for model, key in converted}
    eating = [model for model, _ in converted if takes_image(script, model)]
    done = grouped(
        (transfer.node.lineno, transfer)
        for transfer in script.transfers
        if _is_copy(transfer) and _is_image(script, transfer, eating)
    )
    for transfers in done.values():
        for transfer in transfers:
            torch, needed = torch_in(source_of(transfer.node))
            edits = (Keyword(transfer.node, "memory_format", f"{torch}.channels_last"), *needed)
            mine = [m for m in eating if _is_image(script, transfer, [m])]
            needs = tuple((None, key) for key in dict.fromkeys(keys[id(m)] for m in mine))
            yield Finding(transfer.node, IMAGES, edits=edits, effect=effect, needs=needs)


def _is_image(script: Script, transfer: Transfer, models: list[Model]) -> bool:
    """It is the first argument of a network that takes images, and nothing else of the batch."""
    node = _outermost(script, transfer.node)
    target = _target(node)
    for model in models:
        for site in model.forwards:
            call = site.call
            if call is None or not call.args or has_star(call.args[:1]):
                continue
            given = call.args[0]
            while (inner := _passed_on(script, given)) is not None and given is not node:
                given = inner
            if given is node:
                return True
            if target is not None and _holds(script, given, target, transfer.node):
                return True
    return False


def _holds(script: Script, given: ast.expr, target: ast.expr, copy: ast.AST) -> bool:
    """Whether ``given`` is what was put into ``target``: nothing else, or the batch as it was where
    it was not copied.
    """
    if not is_same_function(given, target) or not is_same_code(
        given, ast.parse(ast.unparse(target), mode="eval").body
    ):
        return False
    if not isinstance(given, ast.Name):
        return True
    flow = script.analysis(Flow)
    made = {d.node for d in flow.reaching(given)}
    before = {
        d.node
        for n in nodes_in(copy, ast.Name)
        if is_read(n) and n.id == given.id
        for d in flow.reaching(n)
    }
    return target in made and made <= before | _copied(script)


def _copied(script: Script) -> Nodes:
    """The variables that copies to a device are put into: a batch may be copied in either arm of an
    `if`.
    """
    found = (_target(_outermost(script, t.node)) for t in script.transfers if _is_copy(t))
    return {target for target in found if target is not None}


def _is_copy(transfer: Transfer) -> bool:
    return bool(transfer.loaders) and transfer.to_device and transfer.how in ("to", "cuda")


def _passed_on(script: Script, expr: ast.expr) -> ast.expr | None:
    """The tensor in ``Variable(x)``, ``x.float()`` and ``x / 255``: what comes out lies in memory
    as it does. Of a variable, what was put there where it is one of these."""
    match expr:
        case ast.BinOp(left=inner, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=other):
            return inner if isinstance(other, ast.Constant) else None
        case ast.Name():
            value = script.analysis(Flow).value(expr)
            made = isinstance(value, (ast.BinOp, ast.Call)) and is_same_function(value, expr)
            return value if made and value and _passed_on(script, value) is not None else None
        case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[], keywords=[]) if (
            method in KEEPING
        ):
            return inner
        case ast.Call(func=func, args=[inner]) if any_named(
            script.values(func), Ref, "torch.autograd.Variable"
        ):
            return inner
    return None


def _outermost(script: Script, node: ast.expr) -> ast.expr:
    """The whole of ``Variable(x.cuda())`` and ``x.cuda().float()``, for the copy in them."""
    while True:
        parent = parent_of(node)
        if isinstance(parent, ast.Attribute):
            parent = parent_of(parent)
        if not isinstance(parent, (ast.Call, ast.BinOp)) or _passed_on(script, parent) is not node:
            return node
        node = parent


def _target(node: ast.expr) -> ast.expr | None:
    """The variable that the value of ``node`` is put into."""
    parent = parent_of(node)
    value, position = node, None
    if isinstance(parent, ast.Tuple):
        position = parent.elts.index(node)
        value = parent
    target = put_into(value)
    if position is not None:
        if not isinstance(target, ast.Tuple) or position >= len(target.elts):
            return None
        target = target.elts[position]
    return target if isinstance(target, VARIABLES) else None
