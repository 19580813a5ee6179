"""Places that name Variable or arguments of torch before 0.4, and what they are today."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from autofast.edit.edits import (
    Around,
    Decorator,
    DropKeyword,
    Edit,
    Edits,
    Keyword,
    Remove,
    Replace,
    Rewrite,
)
from autofast.edit.ignores import is_spared
from autofast.edit.order import Rank
from autofast.facts.cost import gains
from autofast.facts.tensor_identity import VARIABLE, Plainness
from autofast.flow.scopes import is_parameter
from autofast.model.calls import call_of, is_name, keyword_of, may_give, pairs_of, variable_name
from autofast.model.names import FUNCTIONAL_LOSSES, is_loss, last_part
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import Source, function_of, parent_of, source_of, statement_of, within
from autofast.model.syntax import VARIABLES, has_star, is_constant, is_read
from autofast.model.values import Ref, Tensor
from autofast.read.old_tensors import read_of_old
from autofast.rule import Finding, Gain, Options, Question
from autofast.write.imports import imports_of, unimported
from autofast.write.spelling import torch_name

NAME = "variable-api"

DETACHED = gains.nothing("`.detach()` does what the Variable does, in as many words")
HALF = gains.nothing("other Variables of the same file stay")
TODAY = gains.nothing("another name for the same reduction")
SINCE = {"bool": (1, 2)}  # of what is written anew, where an older torch does not have it
MODULES = ("torch.autograd", "torch.autograd.variable")


@dataclass(frozen=True, eq=False)
class Use:
    """A place that names ``Variable``: ``edits`` and ``message`` where it can change, else
    ``refusal``.

    Attributes:
        bound: it is reached by a name that an import binds to it.
        reached: the script comes to it.
        asks: what decides whether it is worth its lines: nothing is where all that can be written
            is ``x.detach()`` of what has no graph.
    """

    node: ast.expr
    bound: bool
    reached: bool
    message: str = ""
    edits: Edits = ()
    refusal: str = ""
    advice: str = ""
    asks: Question = gains.renaming

    @property
    def stays(self) -> bool:
        return not self.edits or is_spared(self.node, NAME)


def variables(script: Script, source: Source, plain: Plainness) -> Iterator[Finding]:
    """``Variable(x)``, one finding for each use in a file."""
    if "Variable" not in source.text:
        return
    bound = imports_of(source, MODULES, "Variable")
    uses = [
        _use(script, node, plain, bound)
        for node in source.nodes
        if _names_variable(script, node, bound)
    ]
    fixed = [u for u in uses if not u.stays]
    if fixed and not any(u.stays for u in uses if u.bound):
        gone = unimported(script, source, MODULES, "Variable")
    else:
        gone = ()
    half = any(u.reached and (u.stays or u.asks is DETACHED) for u in uses)
    for use in uses:
        if use.edits:
            yield Finding(
                use.node,
                use.message,
                edits=use.edits,
                key=use.node,
                asks=HALF if half and use.asks is not DETACHED else use.asks,
            )
            if use.advice:
                yield Finding(
                    use.node,
                    "volatile=True has no effect since torch 0.4: gradients are computed here",
                    advice=use.advice,
                )
        elif use.reached:
            yield Finding(use.node, use.message, refusal=use.refusal)
    if gone:
        needs = tuple((None, u.node) for u in fixed if u.bound)
        message = "nothing needs the import of Variable any more"
        yield Finding(next(iter(bound.values()))[0], message, edits=gone, needs=needs)


def volatile_gain(
    script: Script, options: Options, finding: Finding, beside: tuple[Finding, ...]
) -> Gain | None:
    """Of a call with ``volatile=True``: it says what is missing until it is there."""
    for edit in (edit for f in beside for edit in f.edits if edit.rank is Rank.GRAD_MODE):
        if isinstance(edit, (Around, Decorator)):
            outer = edit.first if isinstance(edit, Around) else edit.function
            if within(finding.node, outer):
                return gains.renaming(script, options, finding, beside)
    return Gain(0.0, "what volatile=True meant has to be written by hand: no_grad around it")


def _names_variable(script: Script, node: ast.AST, bound: dict[str, list[ast.ImportFrom]]) -> bool:
    if not isinstance(node, VARIABLES) or not is_read(node):
        return False
    found = script.values(node)
    if found:
        return Ref(VARIABLE) in found
    return variable_name(node) in bound


def _use(
    script: Script, node: ast.AST, plain: Plainness, bound: dict[str, list[ast.ImportFrom]]
) -> Use:
    assert isinstance(node, VARIABLES)
    reached = script.reached(node)
    made = partial(Use, bound=variable_name(node) in bound, reached=reached)
    call = parent_of(node)
    if (
        isinstance(call, ast.Call)
        and script.is_call(call, "builtins.isinstance")
        and len(call.args) == 2
        and call.args[1] is node
        and reached
    ):
        message = "isinstance(x, Variable) asks for any tensor since torch 0.4"
        if torch := torch_name(source_of(node)):
            return made(node, message=message, edits=(Rewrite(node, f"{torch}.Tensor"),))
        return made(node, message=message, refusal="torch has no name in this file")
    if not isinstance(call, ast.Call) or call.func is not node:
        message = "Variable is an old name for a tensor"
        return made(node, message=message, refusal="it is used as a value here, not called")
    message = "a Variable is a tensor since torch 0.4: the call makes a second tensor object for the same values"
    if not reached:
        return made(call)
    if len(script.values(node)) > 1:
        why = f"`{ast.unparse(node)}` may be something else here"
        return made(call, message=message, refusal=why)
    given = _given(call)
    if given is None:
        why = "what it is given is not spelled out in the call"
        return made(call, message=message, refusal=why)
    data, asks, volatile = given
    edits = _edits(script, call, data, asks, plain)
    advice = ""
    if volatile is not None and script.constant(volatile) is not False:
        message = "volatile=True has no effect since torch 0.4, and a Variable is a tensor"
        site = script.log.at(VARIABLE, call)
        if site is not None and any(o.grad in ("on", "maybe") for o in site):
            advice = (
                "put the evaluation under `with torch.no_grad():`, which is what volatile meant"
            )
    graph = any(t.grad for t in of_kind(script.values(data), Tensor))
    detached = any(".detach()" in e.template for e in of_kind(edits, Rewrite))
    worth = DETACHED if detached and not graph else volatile_gain if advice else gains.renaming
    return made(call, message=message, edits=edits, advice=advice, asks=worth)


def _given(call: ast.Call) -> tuple[ast.expr, ast.expr | None, ast.expr | None] | None:
    """``data``, ``requires_grad`` and ``volatile`` of the call; None where that is not clear."""
    names = ("data", "requires_grad", "volatile")
    if len(call.args) > len(names) or has_star(call.args):
        return None
    found: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in names or keyword.arg in found:
            return None
        found[keyword.arg] = keyword.value
    data = found.get("data")
    if data is None or is_constant(data, None):
        return None
    return data, found.get("requires_grad"), found.get("volatile")


def _edits(
    script: Script, call: ast.Call, data: ast.expr, asks: ast.expr | None, plain: Plainness
) -> Edits:
    """``x`` where nothing tells it from ``Variable(x)``, else ``x.detach()``, which is what a
    Variable of a tensor is.
    """
    wanted = False if asks is None else _decided(script, asks)
    if wanted is False and plain.same(data):
        statement = statement_of(call)
        if isinstance(statement, ast.Assign) and _says_nothing(script, statement, plain):
            return (Remove(statement),)
        return (Rewrite(call, "{data}", {"data": data}),)
    if wanted is False:
        template = "{data}" if _is_detached(call) else "{data}.detach()"
        return (Rewrite(call, template, {"data": data}),)
    kept = "{data}" if plain.is_new(data) else "{data}.detach()"
    if wanted is True:
        return (Rewrite(call, f"{kept}.requires_grad_()", {"data": data}),)
    assert asks is not None
    return (Rewrite(call, f"{kept}.requires_grad_({{asks}})", {"data": data, "asks": asks}),)


def _decided(script: Script, asks: ast.expr) -> object:
    """What is asked for; not known of a parameter, which others may give: ``def to_var(x,
    grad=False)``.
    """
    if is_parameter(function_of(asks), variable_name(asks)):
        return None
    return script.constant(asks)


def _is_detached(call: ast.Call) -> bool:
    """``Variable(x).detach()``, ``Variable(x).data``."""
    attribute = parent_of(call)
    if not isinstance(attribute, ast.Attribute):
        return False
    called = call_of(attribute) is not None
    return attribute.attr == "data" or (attribute.attr == "detach" and called)


def _says_nothing(script: Script, statement: ast.Assign, plain: Plainness) -> bool:
    """``x, y = Variable(x), Variable(y)``: without the calls, it gives each name what it has."""
    if len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    for name, call in pairs_of(target, value):
        given = _given(call) if script.is_call(call, VARIABLE) else None
        if given is None or not isinstance(name, ast.Name) or not is_name(given[0], name.id):
            return False
        if (given[1] is not None and _decided(script, given[1]) is not False) or not plain.same(
            given[0]
        ):
            return False
        if is_spared(call, NAME):
            return False
    return True


def renewed_code(script: Script) -> Iterator[Finding]:
    """What keeps newer versions of torch away, as these have it."""
    mine = {old.node for old in script.torch.newest if old.anew}
    for old in script.torch.newest:
        if old.anew and old.node is not None and not _is_one_of_several(old.node, mine):
            edits = tuple(_anew(old.node, old.anew))
            since = SINCE.get(old.anew)
            yield Finding(old.node, old.why, edits=edits, key=old.node, renews=True, torch=since)


def _is_one_of_several(node: ast.AST, mine: set[ast.AST | None]) -> bool:
    """Whether other ``loss.data[0]`` of the same statement would stay, and stop on newer versions
    all the same.
    """
    for part in ast.walk(statement_of(node)):
        match part:
            case ast.Subscript(slice=ast.Constant(value=0)) if read_of_old(part) is not None:
                if part not in mine:
                    return True
    return False


def _anew(node: ast.AST, anew: str) -> Iterator[Edit]:
    match node:
        case ast.Subscript() if (tensor := read_of_old(node)) is not None:
            yield Rewrite(node, f"{{tensor}}.{anew}()", {"tensor": tensor}, moot=True)
        case ast.stmt():
            yield Replace(node, anew)
        case ast.Call() if "=" in anew:
            old, new = anew.split("=")
            given = keyword_of(node, old)
            assert given is not None
            yield DropKeyword(node, old)
            yield Keyword(node, new, ast.unparse(given))
        case ast.Call(func=ast.Attribute(value=value) as func):
            yield Rewrite(func, f"{{value}}.{anew}", {"value": value})


def old_reductions(script: Script) -> Iterator[Finding]:
    """``size_average=False`` → ``reduction="sum"``."""
    for _, site in script.log.each():
        call = site.node
        if site.kind != "new":
            name = site.kind
        else:
            name = next((getattr(o.this, "name", "") for o in site), "")
        short = last_part(name)
        functional = name.startswith("torch.nn.functional.") and short in FUNCTIONAL_LOSSES
        if not isinstance(call, ast.Call) or not (
            functional or (site.kind == "new" and is_loss(name))
        ):
            continue
        old = {k.arg: k.value for k in call.keywords if k.arg in ("size_average", "reduce")}
        if not old:
            continue
        message = "size_average and reduce are deprecated for reduction"
        flags = {key: script.constant(value) for key, value in old.items()}
        if not all(map(_is_flag, old.values())) or may_give(call, "reduction"):
            yield Finding(call, message, refusal="which reduction they mean here is not certain")
            continue
        size_average, reduce = flags.get("size_average"), flags.get("reduce")
        if size_average is None and reduce is None:
            continue
        new = "none" if reduce is False else "sum" if size_average is False else "mean"
        drops = tuple(DropKeyword(call, key) for key in old)
        edits = (*drops, Keyword(call, "reduction", f'"{new}"'))
        yield Finding(call, message, edits=edits, asks=TODAY)


def _is_flag(value: ast.expr) -> bool:
    """Spelled out: what others decide, as ``self.size_average``, would be lost."""
    match value:
        case ast.Constant(value=True | False | None):
            return True
    return False
