"""Tensors that are made on the host in every step, and what makes them on the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.edit.edits import Edit, Edits, Keyword, Remove, Rewrite
from autofast.facts.loaders import DEVICE_DEFAULTS
from autofast.flow.memory import Memory, base_of
from autofast.flow.program import Flow
from autofast.flow.scopes import mentions, own_nodes, stored_in
from autofast.model.calls import (
    arguments_of,
    call_of,
    is_name,
    is_path,
    keyword_of,
    names_in,
    only_target,
    receiver_of,
    variable_name,
)
from autofast.model.events import Site
from autofast.model.names import FACTORIES, last_part
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import (
    function_of,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    within,
    within_statement,
)
from autofast.model.syntax import VARIABLES, is_attribute, is_read
from autofast.model.tensors import is_dtype
from autofast.model.values import Arg, Num, Ref, Tensor, Thing, Unknown, all_of, any_of, const
from autofast.rule import Effect
from autofast.techniques.transfers.composed import Parts, assignment_chain, composed_parts, hides
from autofast.techniques.transfers.factories import (
    DRAWN,
    KEEPS,
    Creation,
    ends_here,
    factory,
    held_by,
    is_bound_to,
    is_replaced,
    runs_often,
)
from autofast.techniques.transfers.filled import constructor, made_there
from autofast.techniques.transfers.host_random_draws import why_not_on_device
from autofast.techniques.transfers.literal_tensors import listed
from autofast.techniques.transfers.numpy_made import is_drawn_by_numpy, numpy_made
from autofast.write.spelling import argument_expression

COMPUTED = wordset("linspace logspace")  # each device rounds in its own way


# What makes the same on the device, and with the dtype, of another tensor.
ALIKE = {"torch.zeros": "new_zeros", "torch.ones": "new_ones"}

# Casts, each with the name of its dtype in torch.
CASTS = tuple("double float half bfloat16 long int short bool".split())


def moved_creations(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """Factories whose result goes to the device at once, or in a later statement of the same
    block."""
    for transfer in script.transfers:
        moved = transfer.operand
        where = device_of(script, transfer)
        if moved is None or where is None:
            continue
        if not runs_often(transfer.site, hot):
            continue
        call, gate = factory(script, moved), None
        if call is None and (bound := held_by(script, transfer, moved)) is not None:
            call, gate = bound
        if call is not None and _is_there(script, transfer, call):
            continue
        if call is not None and (gate is None or is_switch(script, gate.test)):
            yield from _made_there(script, transfer, call, where, gate)
        elif call is None:
            yield from _all_made_there(script, transfer, moved, where, hot)


def _all_made_there(
    script: Script, transfer: Transfer, expr: ast.expr, where: str, hot: frozenset[ast.AST]
) -> Iterator[Creation]:
    """Several tensors that become one, or one that is reworked over several statements: all are
    made there, or none."""
    stmt = statement_of(transfer.node)
    needed = names_in(ast.parse(where))
    gate: ast.If | ast.IfExp | None = None
    move: ast.expr = transfer.node
    again = False
    if isinstance(expr, ast.Name):
        match parent_of(move):
            case ast.IfExp(test=test, body=copied, orelse=ast.Name(here)) as chosen if (
                copied is move and here == expr.id and is_switch(script, test)
            ):
                needed |= names_in(test)
                move = gate = chosen
        again = is_bound_to(stmt, move, expr.id) or is_replaced(stmt, expr)
        if not (again or ends_here(stmt, expr)) or _needs_memory(script, expr):
            return
        whole = assignment_chain(script, stmt, expr.id, needed, factory)
        match parent_of(stmt):
            case ast.If(test=test, body=body, orelse=[]) as above if (
                not whole.calls
                and gate is None
                and not any(
                    expr.id in names_in(s) or needed & stored_in(s)
                    for s in body[: body.index(stmt)]
                )
            ):
                needed |= names_in(test)
                if is_switch(script, test):
                    gate, whole = above, assignment_chain(script, above, expr.id, needed, factory)
    else:
        whole = composed_parts(script, expr, factory, inside=expr) or Parts()
        if not all(_is_known_at(script, transfer, statement_of(call)) for call in whole.calls):
            return
    calls = tuple(dict.fromkeys(whole.calls))
    if whole.rounds and _becomes_whole(script, transfer.node):
        return
    where = _behind(script, gate, where)
    made = [creation_of(script, call, where) for call in calls]
    there = any(_is_there(script, transfer, call) for call in calls)
    if not calls or there or None in made or any(hides(call, needed) for call in calls):
        return
    first, *others = (m for m in made if m is not None)
    if any(why_not_on_device(script, other, hot) for other in others):
        return
    edits = list(first.edits)
    if transfer.only_moves:
        if again and getattr(stmt, "value", None) is move:
            alone = isinstance(gate, ast.If) and gate.body == [stmt]
            edits.append(Remove(statement_of(gate) if gate is not None and alone else stmt))
        else:
            edits.append(Rewrite(move, "{made}", {"made": expr}))
    together = [*edits, *(e for other in others for e in other.edits)]
    rounds = Effect.ROUNDING if whole.rounds else Effect.EXACT
    effect = max(rounds, *(m.effect for m in (first, *others)))
    yield replace(first, edits=tuple(together), effect=effect)


def _is_known_at(script: Script, transfer: Transfer, above: ast.stmt) -> bool:
    """Whether the device of a copy is the same at another statement."""
    stmt, flow = statement_of(transfer.node), script.analysis(Flow)
    names = (n for a in arguments_of(transfer.node) for n in nodes_in(a, ast.Name))
    return above is stmt or all(flow.means_the_same(n, above) for n in names if is_read(n))


def copied_alike(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """``x.new_tensor(torch.arange(n))``: what is copied to where ``x`` is, and nothing else has, is
    made there."""
    for site in script.methods("new_tensor"):
        match site.node:
            case ast.Call(func=ast.Attribute(value=like), args=[data]) as call if is_path(like):
                found = script.values(like)
            case _:
                continue
        if not runs_often(site, hot) or not surely(
            isinstance(t, Tensor) and t.device != "cpu" for t in found
        ):
            continue
        where, stmt = f"{source_of(call).segment(like)}.device", statement_of(call)
        needed = names_in(like)
        whole = composed_parts(script, data, factory) or Parts()
        if script.analysis(Flow).value_of_its_own(data) is not None:  # type: ignore[arg-type]
            whole = assignment_chain(script, stmt, variable_name(data), needed, factory)
        made = [creation_of(script, c, where) for c in whole.calls]
        if None in made or any(hides(c, needed) for c in whole.calls):
            continue
        known = [m for m in made if m is not None and not why_not_on_device(script, m, hot)]
        if known and len(known) == len(made):
            effect = max(
                Effect.ROUNDING if whole.rounds else Effect.EXACT, *(m.effect for m in known)
            )
            edits = tuple(e for m in known for e in m.edits)
            yield replace(known[0], edits=edits, effect=effect)


def _needs_memory(script: Script, made: ast.Name) -> bool:
    """Whether something is written to what was spread out by ``expand``, or views it otherwise: a
    copy has given it memory of its own."""
    function, memory = function_of(made), script.analysis(Memory)
    uses = [parent_of(n) for n in mentions(function, made.id)]
    if not any(is_attribute(use, "expand", "expand_as") for use in uses):
        return False
    written = (e for n in own_nodes(function) for e in memory.written(n))
    return any(is_attribute(use, "view") for use in uses) or any(
        is_name(base_of(e), made.id) or memory.sources(made) & memory.sources(e) for e in written
    )


def _is_there(script: Script, transfer: Transfer, call: ast.Call) -> bool:
    """Whether it is made where it goes, as ``torch.zeros_like(x).cuda()`` is of a batch that is
    there: nothing is copied.

    What is not certainly on the host is taken to be there: else the copy stays as it was.
    """
    names = script.library_functions(call)
    if not call.args or not surely(name.endswith("_like") for name in names):
        return False
    devices = {t.device if isinstance(t, Tensor) else "?" for t in script.values(call.args[0])}
    if "cpu" in transfer.kinds and not transfer.to_device:
        return False
    return devices != {"cpu"}


def is_switch(script: Script, test: ast.expr) -> bool:
    """A condition that can be asked twice: ``use_cuda``, ``not args.cpu``,
    ``torch.cuda.is_available()``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return is_switch(script, inner)
    return is_path(test) or script.is_call(test, "torch.cuda.is_available")


def _made_there(
    script: Script, transfer: Transfer, call: ast.Call, where: str, gate: ast.If | None
) -> Iterator[Creation]:
    where = _behind(script, gate, where)
    creation = creation_of(script, call, where)
    if creation is None:
        return
    moved = transfer.operand
    assert moved is not None
    if gate is None and (like := _made_alike(script, transfer, call)) is not None:
        yield replace(creation, edits=(like,))
        return
    edits = [*creation.edits, *idle(script, call)]
    if transfer.only_moves:
        stmt = statement_of(transfer.node)
        alone = (
            isinstance(stmt, ast.Assign)
            and stmt.value is transfer.node
            and stmt is not statement_of(call)
            and ast.unparse(stmt.targets[0]) == ast.unparse(moved)
        )
        whole = gate if gate is not None and gate.body == [stmt] else stmt
        typed = _with_type(script, call, transfer.node) if moved is call else ()
        made = Rewrite(transfer.node, "{made}", {"made": moved})
        edits += typed or (Remove(whole) if alone else made,)
    elif (cast := cast_to(transfer)) is not None:
        holes = {"made": moved, "dtype": cast}
        edits.append(Rewrite(transfer.node, "{made}.to({dtype})", holes))
    yield replace(creation, edits=_without_idle(call, edits))


def _without_idle(call: ast.Call, edits: list[Edit]) -> Edits:
    """These edits, without the statement of a call where they leave ``z = z`` of it."""
    stmt, whole = statement_of(call), ("{made}", "{array}")
    kept = {e.expr: e for e in edits if isinstance(e, Rewrite) and e.template in whole}
    value = getattr(stmt, "value", None)
    while value in kept:
        (value,) = kept[value].holes.values()
    if not (name := variable_name(value)) or not is_name(only_target(stmt), name):
        return tuple(edits)
    others = (e for e in edits if not (isinstance(e, Rewrite) and within(e.expr, stmt)))
    return (*others, Remove(stmt))


def idle(script: Script, made: ast.Call) -> Iterator[Edit]:
    """What changes nothing behind a factory: ``torch.arange(n).view(n, 1).long()``,
    ``torch.zeros(n).contiguous()``.
    """
    call, name = made, script.library_function(made)
    whole = name == "torch.arange" and _effect(script, "arange", made) is Effect.EXACT
    while is_attribute(method := parent_of(made), *KEEPS):
        if (outer := call_of(method)) is None or outer.keywords:
            return
        typed = _with_type(script, call, made) if made is call else ()
        is_cast = whole and not call.keywords and method.attr == "long"
        if not typed and (is_cast or (method.attr == "contiguous" and made is call)):
            yield Rewrite(outer, "{made}", {"made": made})
        yield from typed
        made = outer


def _with_type(script: Script, call: ast.Call, made: ast.Call) -> Edits:
    """The factory ``call`` with the dtype that ``made``, it or its copy, is cast to directly, in
    the place of both: ``torch.ones(n).to(device).double()``; nothing where none can be given.
    """
    method, func = parent_of(made), call.func
    cast = call_of(method) if is_attribute(method, *CASTS) else None
    if not is_attribute(method) or cast is None or cast.args or cast.keywords or call.keywords:
        return ()
    if not is_attribute(func) or script.library_function(call) not in ALIKE:
        return ()
    dtype = f"{source_of(func).segment(func.value)}.{method.attr}"
    return Keyword(call, "dtype", dtype), Rewrite(cast, "{made}", {"made": call})


def _behind(script: Script, gate: ast.If | ast.IfExp | None, where: str) -> str:
    """The device ``where``, only under the condition that a copy stands behind."""
    if gate is None:
        return where
    beside = _device_asked(script, gate.test) if where == '"cuda"' else ""
    return beside or f"{where} if {source_of(gate).segment(gate.test)} else {without_gpu(script)}"


def without_gpu(script: Script) -> str:
    """The device of what is made, and not moved, as code."""
    return "None" if script.calls(*DEVICE_DEFAULTS) else '"cpu"'


def _device_asked(script: Script, test: ast.expr) -> str:
    """``x.device`` for the condition ``x.is_cuda`` of a tensor; empty for any other."""
    if not is_attribute(test, "is_cuda") or not any_of(script.values(test.value), Tensor):
        return ""
    tensor = test.value
    if is_attribute(tensor, "data") and any_of(script.values(tensor.value), Tensor):
        tensor = tensor.value  # `.data` is where the tensor is
    return f"{source_of(test).segment(tensor)}.device"


def _made_alike(script: Script, transfer: Transfer, call: ast.Call) -> Edit | None:
    """``y.new_zeros(n)`` for ``torch.zeros(n).to(y)`` and ``torch.zeros(n).type_as(y)``; None where
    it is another copy."""
    func, names = (transfer.node.func, script.library_functions(call))
    if not isinstance(func, ast.Attribute) or func.value is not call or call.keywords:
        return None
    if len(transfer.node.args) != 1 or transfer.node.keywords or not names <= set(ALIKE):
        return None
    like = transfer.node.args[0]
    found = script.values(like)
    if not isinstance(like, VARIABLES) or not found:
        return None
    if not all_of(found, Tensor) or not names:
        return None
    holes = {"like": like} | {f"d{n}": a for n, a in enumerate(call.args)}
    sizes = ", ".join(f"{{d{n}}}" for n in range(len(call.args)))
    return Rewrite(transfer.node, f"{{like}}.{ALIKE[names.pop()]}({sizes})", holes)


def creation_of(script: Script, call: ast.Call, where: str) -> Creation | None:
    """A call that :func:`factory` has found, with the device ``where``; None where it has one."""
    old = made_there(script, call, "") is not None
    filled = old and not constructor(script, call)
    first = (receiver_of(call) if filled else None) or call
    site = _site(script, first)
    if site is None or _placed(site):
        return None
    short = last_part(site.kind)
    there = made_there(script, call, where) if old else Keyword(call, "device", where)
    drawn = any(is_attribute(n, *DRAWN) for n in within_statement(call))
    effect = Effect.EXACT if old else _effect(script, "rand" if drawn else short, call)
    if effect is Effect.ROUNDING and _becomes_whole(script, call):
        return None  # a last digit less, and the integer is another
    if (said := listed(script, call, where)) is not None:
        there, effect = said, Effect.EXACT
    if made := numpy_made(script, call, where):
        drawn = is_drawn_by_numpy(script, call)
        return Creation(call, site, made, Effect.SAMPLING if drawn else Effect.EXACT)
    return Creation(call, site, () if there is None else (there,), effect)


def _becomes_whole(script: Script, made: ast.expr) -> bool:
    """Whether a method behind it, ``made.to(device).long()``, gives integers of its numbers."""
    while is_attribute(attribute := parent_of(made)):
        call = call_of(attribute)
        if call is None:
            break
        if any(t.dtype == "int" for t in script.values(call) if isinstance(t, Tensor)):
            return True
        made = call
    return False


def _site(script: Script, made: ast.expr) -> Site | None:
    names = script.called(made)
    return next((script.log.at(t.name, made) for t in names if isinstance(t, Ref)), None)


def _placed(site: Site) -> bool:
    return any({"device", "out", "pin_memory"} & o.args.named.keys() for o in site)


def _is_integer(script: Script, option: Thing) -> bool:
    """An option of the command line that takes integers."""
    said = keyword_of(option.node, "type") if isinstance(option, Arg) else None
    return said is not None and script.values(said) == {Ref("builtins.int")}


def _effect(script: Script, short: str, call: ast.Call) -> Effect:
    if FACTORIES.get(short):
        return Effect.SAMPLING
    whole = all(
        isinstance(const(found := script.values(a)), int)
        or any(not t.pattern for t in of_kind(found, Num))
        or (bool(found) and all(_is_integer(script, t) for t in found))
        for a in call.args
    )
    floats = any(
        isinstance(n, ast.Div) or (isinstance(n, ast.Constant) and isinstance(n.value, float))
        for a in call.args
        for n in ast.walk(a)
    )
    if short in COMPUTED or (short == "arange" and (floats or not whole)):
        return Effect.ROUNDING
    return Effect.EXACT


def device_of(script: Script, transfer: Transfer) -> str | None:
    """The device that a copy goes to, as an expression; None where it is no copy to a device."""
    target, node = transfer.target, transfer.node
    expr = argument_expression(node, target)
    if transfer.how == "cuda":
        if target is None:
            return '"cuda"'
        if expr is not None:
            return source_of(node).segment(expr)
        return None
    if (
        transfer.how not in ("to", "type_as")
        or target is None
        or expr is None
        or transfer.kinds <= {"cpu"}
    ):
        return None
    text = source_of(node).segment(expr)
    if transfer.how == "type_as" or all_of(target.values, Tensor):
        beside = _beside(script, expr)
        return f"{ast.unparse(beside)}.device" if beside is not None else None
    named = any(k.arg == "device" for k in node.keywords)
    no_device: tuple[type, ...] = () if named else (Tensor, Unknown)
    if no_device and isinstance(expr, ast.Attribute) and expr.attr == "device":
        no_device = (Tensor,)  # the device of something that is not known
    return None if any(isinstance(t, no_device) or is_dtype(t) for t in target.values) else text


def _beside(script: Script, expr: ast.expr) -> ast.expr | None:
    """A variable that is where a tensor is, and that nothing has to be computed for: ``x`` of ``(x
    != 0).data``.
    """
    match expr:
        case ast.Attribute(value=of, attr="data"):
            return _beside(script, of)
        case ast.Compare(left=of) if script.must_be(of, Tensor):
            return _beside(script, of)
    return expr if is_path(expr) else None


def cast_to(transfer: Transfer) -> ast.expr | None:
    """The dtype of ``.to(device, dtype)``, which does nothing else; None for other copies."""
    node = transfer.node
    given = arguments_of(node)
    dtype = keyword_of(node, "dtype") or (node.args[1] if len(node.args) == 2 else None)
    names = {k.arg for k in node.keywords}
    plain = len(given) == 2 and names <= {"device", "dtype"} and "tensor" not in transfer.kinds
    return dtype if transfer.how == "to" and plain else None
