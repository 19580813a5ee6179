"""Tensors that are made on the host in every step, and what makes them on the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from autofast.edit.edits import Edit, Keyword, Remove, Rewrite
from autofast.model.calls import arguments_of
from autofast.model.events import CallFrame, LoopFrame, Site, Stack, inside
from autofast.model.names import FACTORIES, LEGACY_TENSORS
from autofast.model.script import Script, Transfer
from autofast.model.source import at, block_of, parent_of, source_of, statement_of
from autofast.model.tensors import device_kinds, is_dtype
from autofast.model.values import (
    Arg,
    Const,
    Num,
    Ref,
    Seq,
    Tensor,
    Unknown,
    Values,
    const,
    library_names,
)
from autofast.rule import Effect
from autofast.techniques.transfers.composed import chain, hides, parts
from autofast.techniques.transfers.filled import constructor, made_there
from autofast.techniques.transfers.listed import listed
from autofast.write.spelling import spelled

KEEPS = frozenset(  # methods that do the same on every device
    """float double half bfloat16 long int bool view reshape unsqueeze squeeze expand repeat
    flatten""".split()
    + ["permute", "transpose", "t", "contiguous", "clone", "fill_", "zero_"]
)


# what reads a tensor among its arguments as a number
SIZED = frozenset(f"torch.{n}" for n in ("arange", "range", "eye", "randperm"))


COMPUTED = frozenset({"linspace", "logspace"})  # each device rounds in its own way


# What makes the same on the device, and with the dtype, of another tensor.
ALIKE = {"torch.zeros": "new_zeros", "torch.ones": "new_ones"}


# What makes contiguous tensors of the default dtype where none is named.
FLOATS = frozenset(f"torch.{name}" for name in ("zeros", "ones", "rand", "randn", "eye"))


DATA = frozenset({"tensor", "normal", "bernoulli"})  # made from data: only where these are numbers


DRAWS = {  # NumPy's draws and constants: the method that makes the same of a new tensor, and where the shape is given
    "numpy.random.normal": ("normal_", 2),
    "numpy.random.randn": ("normal_", -1),
    "numpy.random.standard_normal": ("normal_", 0),
    "numpy.random.uniform": ("uniform_", 2),
    "numpy.random.random": ("uniform_", 0),
    "numpy.random.random_sample": ("uniform_", 0),
    "numpy.random.rand": ("uniform_", -1),
    "numpy.ones": ("fill_(1)", 0),
    "numpy.zeros": ("zero_()", 0),
}


# What Lightning calls for each batch.
HOOKS = frozenset({"training_step", "validation_step", "test_step", "forward"})


SPLITS = {  # what deals out data, by the generator that it draws from
    "torch": ("torch.utils.data.random_split", "torch.randperm"),
    "numpy": (
        "numpy.random.permutation",
        "numpy.random.shuffle",
        "numpy.random.choice",
        "sklearn.model_selection.train_test_split",
        "sklearn.model_selection.ShuffleSplit",
    ),
}


@dataclass(frozen=True, eq=False)
class Creation:
    """A tensor that is made on the host, and what makes it on the device.

    ``asked``: the place has to ask whether there is one. ``moves``: the copies that others make of it, of which none is left.
    """

    call: ast.Call
    site: Site
    edits: tuple[Edit, ...]
    effect: Effect
    asked: bool = False
    moves: tuple[ast.Call, ...] = ()


def loops_of_steps(script: Script) -> frozenset[int]:
    """The loops around training steps and evaluations, those over epochs too."""
    stacks = [o.stack for step in script.steps for b in step.backwards for o in b.site]
    stacks += [o.stack for e in script.evaluations for site in e.forwards for o in site]
    return frozenset(
        id(f.node)
        for stack in stacks
        for f in stack
        if isinstance(f, LoopFrame) and isinstance(f.node, (ast.For, ast.While))
    )


def again_and_again(script: Script, stack: Stack, hot: frozenset[int]) -> bool:
    if any(id(f.node) in hot for f in stack):
        return True
    calls = [f.func for f in stack if isinstance(f, CallFrame)]
    return (
        "lightning" in script.frameworks
        and bool(calls)
        and calls[0].name in HOOKS
        and calls[0].owner is not None
    )


def moved(script: Script, hot: frozenset[int]) -> Iterator[Creation]:
    """Factories whose result goes to the device at once, or in a later statement of the same block."""
    for transfer in script.transfers:
        func = transfer.node.func
        where = _device(script, transfer)
        if not isinstance(func, ast.Attribute) or where is None:
            continue
        if not any(again_and_again(script, o.stack, hot) for o in transfer.site):
            continue
        call, gate = factory(script, func.value), None
        if call is None and (bound := _bound(script, transfer, func.value)) is not None:
            call, gate = bound
        if call is not None and _is_there(script, transfer, call):
            continue
        if call is not None and (gate is None or _is_switch(script, gate.test)):
            yield from _made_there(script, transfer, call, where, gate)
        elif call is None:
            yield from _all_made_there(script, transfer, func.value, where, hot)


def _all_made_there(
    script: Script, transfer: Transfer, expr: ast.expr, where: str, hot: frozenset[int]
) -> Iterator[Creation]:
    """Several tensors that become one, or one that is reworked over several statements: all are made there, or none."""
    stmt = statement_of(transfer.node)
    needed = {n.id for n in ast.walk(ast.parse(where)) if isinstance(n, ast.Name)}
    gate = None
    if isinstance(expr, ast.Name):
        if not _is_bound_to(stmt, transfer.node, expr.id):
            return
        calls = chain(script, stmt, expr.id, needed, factory)
        above = parent_of(stmt)
        if not calls and isinstance(above, ast.If) and above.body == [stmt] and not above.orelse:
            needed |= {n.id for n in ast.walk(above.test) if isinstance(n, ast.Name)}
            if _is_switch(script, above.test):
                gate, calls = above, chain(script, above, expr.id, needed, factory)
    else:
        found = parts(script, expr, factory)
        calls = found.calls if found is not None else ()
    if gate is not None:
        beside = _device_asked(script, gate.test) if where == '"cuda"' else ""
        where = beside or f"{where} if {source_of(gate).segment(gate.test)} else None"
    made = [created(script, call, where) for call in calls]
    there = any(_is_there(script, transfer, call) for call in calls)
    if not calls or there or None in made or any(hides(call, needed) for call in calls):
        return
    first, *others = (m for m in made if m is not None)
    if any(against(script, other, hot) for other in others):
        return
    edits = list(first.edits)
    if only_moves(transfer):
        whole = gate if gate is not None else stmt
        if isinstance(expr, ast.Name) and getattr(stmt, "value", None) is transfer.node:
            edits.append(Remove(whole))
        else:
            edits.append(Rewrite(transfer.node, "{made}", {"made": expr}))
    together = [*edits, *(e for other in others for e in other.edits)]
    effect = max(m.effect for m in (first, *others))
    yield replace(first, edits=tuple(together), effect=effect)


def _is_there(script: Script, transfer: Transfer, call: ast.Call) -> bool:
    """Whether it is made where it goes, as ``torch.zeros_like(x).cuda()`` is of a batch that is there: nothing is copied.

    What is not certainly on the host is taken to be there: else the copy stays as it was.
    """
    names = library_names(script.values(call.func))
    if not call.args or not names or not all(name.endswith("_like") for name in names):
        return False
    devices = {t.device if isinstance(t, Tensor) else "?" for t in script.values(call.args[0])}
    if "cpu" in transfer.kinds and not transfer.to_device:
        return False
    return devices != {"cpu"}


def _is_switch(script: Script, test: ast.expr) -> bool:
    """A condition that can be asked twice: ``use_cuda``, ``not args.cpu``, ``torch.cuda.is_available()``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_switch(script, test.operand)
    if isinstance(test, ast.Call):
        found = script.values(test.func)
        return found == {Ref("torch.cuda.is_available")}
    while isinstance(test, ast.Attribute):
        test = test.value
    return isinstance(test, ast.Name)


def _made_there(
    script: Script, transfer: Transfer, call: ast.Call, where: str, gate: ast.If | None
) -> Iterator[Creation]:
    if gate is not None:
        beside = _device_asked(script, gate.test) if where == '"cuda"' else ""
        where = beside or f"{where} if {source_of(gate).segment(gate.test)} else None"
    creation = created(script, call, where)
    if creation is None:
        return
    func = transfer.node.func
    assert isinstance(func, ast.Attribute)
    if gate is None and (like := _made_alike(script, transfer, call)) is not None:
        yield replace(creation, edits=(like,))
        return
    edits = [*creation.edits, *_idle(script, call)]
    if only_moves(transfer):
        stmt = statement_of(transfer.node)
        alone = (
            isinstance(stmt, ast.Assign)
            and stmt.value is transfer.node
            and stmt is not statement_of(call)
        )
        whole = gate if gate is not None and gate.body == [stmt] else stmt
        cast = _cast_behind(script, transfer.node, call) if func.value is call else None
        if cast is not None:
            outer, dtype = cast
            edits.append(Keyword(call, "dtype", source_of(call).segment(dtype)))
            edits.append(Rewrite(outer, "{made}", {"made": call}))
        else:
            edits.append(
                Remove(whole) if alone else Rewrite(transfer.node, "{made}", {"made": func.value})
            )
    yield replace(creation, edits=tuple(edits))


def _cast_behind(
    script: Script, node: ast.Call, call: ast.Call
) -> tuple[ast.Call, ast.expr] | None:
    """``.to(y.dtype)`` right behind the copy of zeros or ones, and the dtype: they are as good made in it."""
    names = library_names(script.values(call.func))
    if not names or not names <= set(ALIKE) or call.keywords:
        return None
    attribute = parent_of(node)
    outer = parent_of(attribute) if isinstance(attribute, ast.Attribute) else None
    match outer:
        case ast.Call(
            func=ast.Attribute(attr="to") as method,
            args=[ast.Attribute(value=ast.Name(), attr="dtype") as dtype],
            keywords=[],
        ) if method is attribute:
            found = script.values(dtype.value)
            return (outer, dtype) if found and all(isinstance(t, Tensor) for t in found) else None
    return None


def _device_asked(script: Script, test: ast.expr) -> str:
    """``x.device`` for the condition ``x.is_cuda`` of a tensor; empty for any other."""
    if isinstance(test, ast.Attribute) and test.attr == "is_cuda":
        found = script.values(test.value)
        if found and all(isinstance(t, Tensor) for t in found):
            return f"{source_of(test).segment(test.value)}.device"
    return ""


def _made_alike(script: Script, transfer: Transfer, call: ast.Call) -> Edit | None:
    """``y.new_zeros(n)`` for ``torch.zeros(n).to(y)`` and ``torch.zeros(n).type_as(y)``; None where it is another copy."""
    func, names = (
        transfer.node.func,
        library_names(script.values(call.func)),
    )
    if not isinstance(func, ast.Attribute) or func.value is not call or call.keywords:
        return None
    if len(transfer.node.args) != 1 or transfer.node.keywords or not names <= set(ALIKE):
        return None
    like = transfer.node.args[0]
    found = script.values(like)
    if not isinstance(like, (ast.Name, ast.Attribute)) or not found:
        return None
    if not all(isinstance(t, Tensor) for t in found) or not names:
        return None
    holes = {"like": like} | {f"d{n}": a for n, a in enumerate(call.args)}
    sizes = ", ".join(f"{{d{n}}}" for n in range(len(call.args)))
    return Rewrite(transfer.node, f"{{like}}.{ALIKE[names.pop()]}({sizes})", holes)


def _idle(script: Script, call: ast.Call) -> Iterator[Edit]:
    """``.float()`` and ``.contiguous()`` right behind a factory that gives just that."""
    names = library_names(script.values(call.func))
    if not names or not names <= FLOATS or any(k.arg == "dtype" for k in call.keywords):
        return
    if script.calls("torch.set_default_dtype", "torch.set_default_tensor_type"):
        return
    outer, last = call, call
    while (
        isinstance(attribute := parent_of(outer), ast.Attribute)
        and isinstance(method := parent_of(attribute), ast.Call)
        and method.func is attribute
        and not method.args
        and not method.keywords
        and attribute.attr in ("float", "contiguous")
    ):
        outer = last = method
    if last is not call:
        yield Rewrite(last, "{made}", {"made": call})


def created(script: Script, call: ast.Call, where: str) -> Creation | None:
    """A call that :func:`factory` has found, with the device ``where``; None where it has one."""
    old = made_there(script, call, "") is not None
    first = call.func.value if old and isinstance(call.func, ast.Attribute) else call
    site = _site(script, first)
    if site is None or _placed(site):
        return None
    short = site.kind.rsplit(".", 1)[-1]
    there = made_there(script, call, where) if old else Keyword(call, "device", where)
    effect = Effect.EXACT if old else _effect(script, short, call)
    if (said := listed(script, call, where)) is not None:
        there, effect = said, Effect.EXACT
    return Creation(call, site, () if there is None else (there,), effect)


def _site(script: Script, made: ast.expr) -> Site | None:
    names = script.values(made.func) if isinstance(made, ast.Call) else frozenset()
    return next((script.log.at(t.name, made) for t in names if isinstance(t, Ref)), None)


def _placed(site: Site) -> bool:
    return any(
        o.args is not None and {"device", "out", "pin_memory"} & o.args.named.keys() for o in site
    )


def _effect(script: Script, short: str, call: ast.Call) -> Effect:
    if FACTORIES.get(short):
        return Effect.SAMPLING
    whole = all(
        isinstance(const(script.values(a)), int) or Num() in script.values(a) for a in call.args
    )
    floats = any(
        isinstance(n, ast.Constant) and isinstance(n.value, float)
        for a in call.args
        for n in ast.walk(a)
    )
    return (
        Effect.ROUNDING
        if short in COMPUTED or (short == "arange" and (floats or not whole))
        else Effect.EXACT
    )


def _device(script: Script, transfer: Transfer) -> str | None:
    """The device that a copy goes to, as an expression; None where it is no copy to a device."""
    target, node = transfer.target, transfer.node
    expr = spelled(node, target)
    if transfer.how == "cuda":
        return (
            '"cuda"'
            if target is None
            else source_of(node).segment(expr)
            if expr is not None
            else None
        )
    if (
        transfer.how not in ("to", "type_as")
        or target is None
        or expr is None
        or transfer.kinds <= {"cpu"}
    ):
        return None
    text = source_of(node).segment(expr)
    if transfer.how == "type_as" or all(isinstance(t, Tensor) for t in target.values):
        return f"{text}.device" if isinstance(expr, (ast.Name, ast.Attribute)) else None
    named = any(k.arg == "device" for k in node.keywords)
    if any(isinstance(t, (Tensor, Unknown)) and not named or is_dtype(t) for t in target.values):
        return None
    return text


def only_moves(transfer: Transfer) -> bool:
    """The copy does nothing else: no cast, nothing like ``copy=True``."""
    node = transfer.node
    names = {k.arg for k in node.keywords}
    return (
        transfer.how in ("to", "cuda")
        and "tensor" not in transfer.kinds
        and len(node.args) <= 1
        and names <= {"device", "non_blocking"}
    )


def factory(script: Script, expr: ast.expr) -> ast.Call | None:
    """``torch.zeros(...)`` in ``torch.zeros(...).long().unsqueeze(0)`` or ``Variable(torch.zeros(...))``.

    Of an old constructor it is the call that fills the tensor: ``torch.FloatTensor(n).zero_()``.
    """
    while isinstance(expr, ast.Call):
        found = script.values(expr.func)
        names = library_names(found)
        if listed(script, expr, "") is not None:
            return expr
        if len(names) == len(found) == 1:
            name = next(iter(names))
            if name.startswith("torch.") and name.removeprefix("torch.") in FACTORIES:
                return expr if _from_numbers(script, name, expr) else None
            if name != "torch.autograd.Variable" or len(expr.args) != 1 or expr.keywords:
                return None
            expr = expr.args[0]
        elif isinstance(expr.func, ast.Attribute) and expr.func.attr in KEEPS:
            made = expr.func.value
            if isinstance(made, ast.Call) and constructor(script, made):
                return expr if made_there(script, expr, "") is not None else None
            expr = made
        else:
            return None
    return None


def _from_numbers(script: Script, name: str, call: ast.Call) -> bool:
    """No tensor of the host has a part in it, but one whose shape is taken."""
    if name.endswith("_like"):
        return True
    if (
        name == "torch.tensor"
        and len(call.args) == 1
        and isinstance(call.args[0], (ast.List, ast.Tuple))
    ):
        return _is_display(script, call.args[0])
    values = [
        t for a in call.args for t in script.values(a.value if isinstance(a, ast.Starred) else a)
    ]
    values += [t for k in call.keywords for t in script.values(k.value)]
    if name.removeprefix("torch.") in DATA and any(
        isinstance(t, (Unknown, Num, Seq)) for t in values
    ):
        return False
    return name in SIZED or not any(isinstance(t, Tensor) for t in values)


def _is_display(script: Script, data: ast.expr) -> bool:
    """``[a, b]`` with numbers, written out."""
    if isinstance(data, (ast.List, ast.Tuple)):
        return all(_is_display(script, part) for part in data.elts)
    found = script.values(data)
    return bool(found) and all(
        isinstance(t, (Const, Arg)) or (isinstance(t, Num) and t.synced is None) for t in found
    )


def _bound(
    script: Script, transfer: Transfer, expr: ast.expr
) -> tuple[ast.Call, ast.If | None] | None:
    """The factory call of ``x = torch.zeros(...)`` where ``x = x.to(device)`` follows in the same block, and nothing uses ``x`` before.

    Or in the body of an ``if`` in that block, which is given as well.
    """
    stmt = statement_of(transfer.node)
    if not isinstance(expr, ast.Name) or not _is_bound_to(stmt, transfer.node, expr.id):
        return None
    needed = {
        n.id for a in arguments_of(transfer.node) for n in ast.walk(a) if isinstance(n, ast.Name)
    }
    made = _earlier(script, stmt, expr.id, needed)
    gate = parent_of(stmt)
    if made is None and isinstance(gate, ast.If) and not gate.orelse:
        needed |= {n.id for n in ast.walk(gate.test) if isinstance(n, ast.Name)}
        inside_it = [n for s in gate.body[: gate.body.index(stmt)] for n in ast.walk(s)]
        if any(isinstance(n, ast.Name) and n.id == expr.id for n in inside_it):
            return None
        made = _earlier(script, gate, expr.id, needed)
        return (made, gate) if made is not None else None
    return (made, None) if made is not None else None


def _is_bound_to(stmt: ast.stmt, value: ast.expr, name: str) -> bool:
    """``name = value``, alone or as one of ``a, name = other, value``."""
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    target, given = stmt.targets[0], stmt.value
    if isinstance(target, ast.Tuple) and isinstance(given, ast.Tuple):
        pairs = list(zip(target.elts, given.elts, strict=False))
        return len(target.elts) == len(given.elts) and any(
            v is value and isinstance(t, ast.Name) and t.id == name for t, v in pairs
        )
    return given is value and isinstance(target, ast.Name) and target.id == name


def _earlier(script: Script, stmt: ast.stmt, name: str, needed: set[str]) -> ast.Call | None:
    """The factory call that ``name`` is bound to before ``stmt`` in its block, where nothing uses it, or binds what is ``needed``, between."""
    block = block_of(stmt)
    for earlier in reversed(block[: block.index(stmt)]):
        if isinstance(earlier, ast.Assign) and [ast.unparse(t) for t in earlier.targets] == [name]:
            return factory(script, earlier.value)
        names = {
            (n.id, isinstance(n.ctx, ast.Load))
            for n in ast.walk(earlier)
            if isinstance(n, ast.Name)
        }
        if any(found == name or (found in needed and not load) for found, load in names):
            return None
    return None


def from_numpy(script: Script, hot: frozenset[int]) -> Iterator[Creation]:
    """``Tensor(np.ones(shape))`` where ``Tensor`` may be ``torch.cuda.FloatTensor``: made there by its own methods."""
    for site in script.log.of(*(f"torch.cuda.{name}" for name in LEGACY_TENSORS)):
        call = site.node
        if (
            not isinstance(call, ast.Call)
            or len(call.args) != 1
            or call.keywords
            or not isinstance(call.args[0], ast.Call)
        ):
            continue
        inner = call.args[0]
        names = [t.name for t in script.values(inner.func) if isinstance(t, Ref)]
        if (
            len(names) != 1
            or names[0] not in DRAWS
            or not any(again_and_again(script, o.stack, hot) for o in site)
        ):
            continue
        if (
            "FloatTensor" not in site.kind
            or (template := _in_place(script, names[0], inner)) is None
        ):
            continue
        text, holes = template
        effect = Effect.SAMPLING if "random" in names[0] else Effect.EXACT
        yield Creation(
            call, site, (Rewrite(call, "{tensor}" + text, {"tensor": call.func, **holes}),), effect
        )


def _in_place(
    script: Script, name: str, call: ast.Call
) -> tuple[str, Mapping[str, ast.expr]] | None:
    """``(n, m).normal_(0, 1)`` for ``np.random.normal(0, 1, (n, m))``."""
    method, at = DRAWS[name]
    given = {k.arg: k.value for k in call.keywords}
    shape = given.pop("size", None) or given.pop("shape", None)
    bounds, sizes = (call.args[:at], call.args[at:]) if at >= 0 else ([], call.args)
    if (
        given
        or (shape is not None and (at < 0 or sizes))
        or (at >= 0 and len([*sizes, shape]) - (shape is None) != 1)
    ):
        return None
    if shape is not None:
        sizes = [shape]
    holes: dict[str, ast.expr] = {}
    dims = _each(sizes, holes) if at < 0 else _dims(script, sizes[0], holes)
    if not dims:
        return None
    holes.update((f"b{i}", bound) for i, bound in enumerate(bounds))
    arguments = ", ".join(f"{{b{i}}}" for i in range(len(bounds)))
    return f"({dims}).{method}" + ("" if method.endswith(")") else f"({arguments})"), holes


def _dims(script: Script, shape: ast.expr, holes: dict[str, ast.expr]) -> str | None:
    """A shape as arguments of the legacy constructor, which takes sizes one by one (it takes a tuple for data)."""
    if isinstance(shape, (ast.Tuple, ast.List)):
        return _each(shape.elts, holes)
    found = script.values(shape)
    if isinstance(const(found), int):
        return _each([shape], holes)
    if (
        isinstance(shape, ast.Attribute)
        and shape.attr == "shape"
        or found
        and all(isinstance(t, Seq) or isinstance(const(found), tuple) for t in found)
    ):
        holes["d0"] = shape
        return "*{d0}"
    return None


def _each(sizes: list[ast.expr], holes: dict[str, ast.expr]) -> str:
    texts = []
    for i, size in enumerate(sizes):
        holes[f"d{i}"] = size.value if isinstance(size, ast.Starred) else size
        texts.append(f"{'*' if isinstance(size, ast.Starred) else ''}{{d{i}}}")
    return ", ".join(texts)


def against(script: Script, creation: Creation, hot: frozenset[int]) -> str:
    """Why this tensor must stay where it is made; empty where nothing speaks against."""
    for o in creation.site:
        if o.args is None or creation.call.func is None:
            continue
        if o.args.open and o.args.dicts:
            return f"it may be given a device already: {o.args.open}"
        if "requires_grad" in o.args.named and o.args.named["requires_grad"].values != {
            Const(False)
        }:
            return "it requires a gradient, which would then belong to the tensor on the device"
        if "generator" in o.args.named and creation.effect is Effect.SAMPLING:
            return "it has a generator of its own, which belongs to one device"
    if creation.effect is not Effect.SAMPLING:
        return ""
    if script.deterministic:
        return f"determinism is asked for ({at(script.deterministic[0])}): the device would draw other numbers"
    return _splits(script, creation, hot)


def _splits(script: Script, creation: Creation, hot: frozenset[int]) -> str:
    """A place that deals out the data by the numbers that the host draws next: others may be held out then than in the run before."""
    kind = (
        "numpy"
        if any(
            isinstance(t, Ref) and t.name in DRAWS
            for a in creation.call.args
            for t in _made_by(script, a)
        )
        else "torch"
    )
    first = min((o.order for o in creation.site), default=0)
    for site in script.calls(*SPLITS[kind]):
        line = f"{at(site.node)}"
        for o in site:
            if (
                o.args is not None
                and "generator" in o.args.named
                and o.args.named["generator"].values != {Const(None)}
            ):
                continue
            if o.args is not None and {"random_state", "seed"} & o.args.named.keys():
                continue
            if o.args is not None and "device" in o.args.named:
                kinds = device_kinds(o.args.named["device"].values)
                if {"accel", "cuda"} & kinds and "cpu" not in kinds:
                    continue  # drawn there, or all is on the host
            around = any(
                inside(o.stack, f.node) for c in creation.site for f in c.stack if id(f.node) in hot
            )
            repeated = again_and_again(script, o.stack, hot)
            shuffles = repeated and site.kind != "torch.utils.data.random_split"  # of each epoch
            if around and not shuffles or (o.order > first and not repeated):
                return f"what {line} deals out depends on how many numbers the host has drawn"
    return ""


def _made_by(script: Script, expr: ast.expr) -> Values:
    return script.values(expr.func) if isinstance(expr, ast.Call) else frozenset()
