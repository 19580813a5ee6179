"""Whether a copy may stand in for a tensor: only where nobody writes to it afterwards, under this
name or another one.

Not who holds it (``flow/holders.py``): things that are read have no addresses, so this asks the
other way round: is there any write in the whole script that is not certainly to another tensor, and
not certainly over before the copy is made?
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from autofast.facts.loaders import loader_argument
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.effects import Effects, outputs
from autofast.flow.memory import (
    LEGACY,
    PASSING_LAYERS,
    Memory,
    base_of,
    is_false,
    passes_on,
)
from autofast.flow.program import definitions_at, graph_of
from autofast.flow.scopes import own_nodes, variables_of
from autofast.model.calls import (
    arguments_of,
    is_augmented,
    is_method,
    keyword_of,
    unstarred,
)
from autofast.model.contents import elements, with_contents
from autofast.model.events import CallFrame, Frame, LoopFrame, Occurrence
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import not_none, of_kind, surely, wordset
from autofast.model.source import (
    ancestors,
    at,
    function_of,
    is_same_function,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import VARIABLES, is_number, is_stored, is_text
from autofast.model.values import (
    STATE_DICT,
    Arg,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    all_of,
    any_named,
    any_of,
    certainly,
    const,
    consts,
    library_names,
)
from autofast.ops import is_in_place, is_view

SHARING = wordset("from_numpy as_tensor asarray frombuffer from_dlpack numpy to_numpy __array__")
PLAIN = frozenset(Ref(f"builtins.{name}") for name in ("int", "float", "str", "bool"))
NUMPY_WRITES = wordset("sort fill put partition resize itemset setfield byteswap ctypes")
WRITING = tuple(  # how functions begin that write to their arguments, or to what these hold
    """numpy.copyto numpy.put numpy.place numpy.random.shuffle random.shuffle torch.distributed.
    numpy.ndarray. numpy.nditer torch._foreach_ torch.ops. torch.utils.swap_tensors operator.setitem operator.iadd operator.iand
    operator.iconcat operator.ifloordiv operator.ilshift operator.imatmul operator.imod operator.imul
    operator.ior operator.ipow operator.irshift operator.isub operator.itruediv operator.ixor""".split()
)
REDUCTIONS = "torch.distributed.ReduceOp"  # constants among them
MEMORY = wordset("data_ptr untyped_storage storage")  # by which anybody may write
KEEPING = wordset("Parameter Buffer register_buffer from_pretrained")
HANDED = Unknown("what another function calls, at any time")
# A place that writes, what it writes to, and the expression for that.
Write = tuple[ast.AST, Values, ast.expr | None]


def why_trainable(script: Script, expr: ast.expr) -> str:
    """Why what ``expr`` holds may be a leaf that an optimizer updates; empty where it cannot be."""
    if any(t.param or t.grad for t in of_kind(script.values(expr), Tensor)):
        return "is a parameter, or needs a gradient"
    for node in script.nodes:
        match node:
            case ast.Call(func=func, keywords=keywords) if any(
                k.arg == "requires_grad" and not is_false(k.value) for k in keywords
            ):
                if not all(
                    isinstance(t, Ref) and t.name.endswith(".Parameter")
                    for t in script.values(func)
                ):
                    return f"may need a gradient ({at(node)})"
            case (
                ast.Attribute(value=target, attr="requires_grad_")
                | ast.Attribute(value=target, attr="requires_grad", ctx=ast.Store())
            ) if may_be(script, script.values(target), expr):
                return f"may need a gradient ({at(node)})"
            case ast.Call(func=func, keywords=keywords) if any(
                isinstance(t, (Ref, Method)) and last_part(t.name) in KEEPING
                for t in script.values(func)
            ) and not any(k.arg == "requires_grad" and is_false(k.value) for k in keywords):
                if any(
                    may_be(script, script.values(data), expr)
                    for data in arguments_of(node)
                    if not script.analysis(Memory).is_fresh(data)
                ):
                    return f"may be a parameter ({at(node)})"
            case ast.Attribute(value=target, attr="grad", ctx=ast.Store()) if may_be(
                script, script.values(target), expr
            ):
                return f"may be a parameter ({at(node)})"
            case ast.Attribute(value=target, attr=attr) if (
                is_view(attr) and attr not in ("to", "detach") and _is_data(script, target)
            ):
                return f"may be a view of a parameter ({at(node)})"
            case ast.Subscript(value=target, ctx=ast.Load()) if _is_data(script, target):
                return f"may be a view of a parameter ({at(node)})"
    return ""


def written_after(script: Script, expr: ast.expr, made: Sequence[Occurrence]) -> str:
    """A place that may write to what ``expr`` holds after it was copied (in ``made``), in words;
    empty where there is none.
    """
    found = script.values(expr)
    if not found or not all_of(found, Tensor):
        return "it is not known what is copied"
    shared, every = script.analysis(tensor_writes)
    mine = (w for w in every if may_be(script, w[1], expr, arrays=shared))
    if why := _later(script, mine, expr, made):
        return why
    for node, handed in script.analysis(Memory).handed:
        if may_be(script, script.values(handed), expr, arrays=True):
            return f"{at(node)} gives its memory to another tensor"
    return ""


def array_written_after(
    script: Script, origins: Collection[ast.AST], expr: ast.expr, made: Sequence[Occurrence]
) -> str:
    """The same for an array that comes from one of these expressions."""
    return _later(script, writes_to(script, origins), expr, made)


def _later(
    script: Script, found: Iterable[Write], expr: ast.expr, made: Sequence[Occurrence]
) -> str:
    """The first of these writes that may come after the copy, in words."""
    for node, target, written in found:
        if (HANDED in target or not _is_before(script, node, expr, made)) and not _is_own(
            script, node, written, expr, made
        ):
            return f"{at(node)} may write to it"
    return ""


def written_to(script: Script) -> frozenset[ast.AST]:
    """What gave variables the lists, arrays and tensors that something writes to: by a view of
    them, or in a function that is given them, too.
    """
    memory, calls = script.analysis(Memory), script.analysis(CallGraph)

    def below(node: ast.AST) -> Iterable[ast.AST]:
        if isinstance(node, ast.arg):
            return not_none(calls.gives(Definition(node.arg, node)))
        return memory.below(node)

    writes = script.analysis(Effects).writes
    bases: list[ast.AST] = [w.base for w in writes if w.base is not None]
    return frozenset(with_contents(bases, below))


def writes_to(script: Script, origins: Collection[ast.AST]) -> Iterator[Write]:
    """The writes that may be to an array that comes from one of these expressions."""
    memory = script.analysis(Memory)
    for node, target, written in script.analysis(array_writes):
        if isinstance(node, ast.AugAssign) and memory.begins_as_number(node.target):
            continue
        own = memory.made_by(written) if written is not None else None
        if own is None or not own.isdisjoint(origins):
            if any(_may_share(script, t, {None}, arrays=True) for t in target):
                yield node, target, written


def _is_data(script: Script, expr: ast.expr) -> bool:
    """``p.data`` or ``p.detach()``: views of it look like any tensor; optimizers write to it."""
    return any(t.param == "param" and not t.grad for t in of_kind(script.values(expr), Tensor))


# ------------------------------------------------------------------------------------------- writes
def tensor_writes(script: Script) -> tuple[bool, list[Write]]:
    """Every write to a tensor (or, where there are any, to an array that may share its memory),
    with what is written to, and the expression for it.
    """
    shared = any(
        isinstance(n, VARIABLES) and (n.attr if isinstance(n, ast.Attribute) else n.id) in SHARING
        for n in script.nodes
    ) or any(
        s.call is not None and not script.analysis(Memory).is_fresh(s.call)
        for s in script.calls(*LEGACY)
    )
    return shared, _every_write(script, shared)


def array_writes(script: Script) -> list[Write]:
    """Every write to a tensor or an array."""
    return _every_write(script, True)


def _every_write(script: Script, shared: bool) -> list[Write]:
    found = [(node, *target) for node in script.nodes for target in _written(script, node, shared)]
    for (kind, _), site in script.log.each():
        if (
            is_in_place(kind.removeprefix("."))
            and kind.startswith(".")
            and isinstance(site.node, ast.Call)
        ):
            # getattr(x, "mul_")(2).
            if not (isinstance(site.node.func, ast.Attribute) and is_in_place(site.node.func.attr)):
                things = frozenset(site.owners)
                found.append((site.node, things, None))
    return found


def _written(
    script: Script, node: ast.AST, shared: bool
) -> Iterator[tuple[Values, ast.expr | None]]:
    if isinstance(node, ast.AugAssign):
        if _writes_itself(script, node) and not _is_counter(script, node.target):
            site = script.log.at("augment", node)
            old: Values = (
                frozenset().union(*(o.data["old"] for o in site))
                if site is not None
                else script.values(node.target)
            )
            if any_of(old, Tensor) or not any_of(old, Const):
                yield old, node.target
        return
    targets = script.analysis(Memory).written(node)
    match node:
        case ast.Attribute(ctx=ast.Store(), attr="data", value=value):
            targets.append(value)
        case ast.Attribute(ctx=ast.Load(), attr=attr, value=value) if attr in MEMORY or (
            shared and attr in NUMPY_WRITES
        ):
            targets.append(value)
        case ast.Call(func=func, args=args):
            names = library_names(script.values(func))
            if any(n.startswith(WRITING) or n.endswith(".at") for n in names):
                targets += args
            if _by_another(script, node, names):
                yield frozenset({HANDED}), None
            for name in names:
                if name == "numpy.nan_to_num" and keyword_of(node, "copy"):
                    targets += args
            targets += outputs(node, names)
    for target in targets:
        found = script.values(unstarred(target))
        if not found and any(map(script.values, of_kind(ancestors(target), ast.Lambda))):
            yield frozenset({HANDED}), None
        if isinstance(node, ast.Attribute) and certainly(found, Num):
            yield frozenset({Unknown("an item of an array")}), None  # no number has such a method
        yield found, target
        if isinstance(node, ast.Call) and not script.analysis(Memory).is_given_entries(
            node, target
        ):  # torch._foreach_mul_([x], 2), out=(x, order)
            yield frozenset(e for t in found for e in elements(t)), None


def _by_another(script: Script, call: ast.Call, names: set[str]) -> bool:
    """Whether a function that writes is handed to code that is not the project's, to be called
    there: ``map(torch.Tensor.neg_, rows)``; or text is run that may write.
    """
    if names & {"builtins.exec", "builtins.eval"} and call.args:
        text = [n.value for n in ast.walk(call.args[0]) if is_text(n)]
        return "builtins.exec" in names or bool(re.search(r"_\b|=", " ".join(map(str, text))))
    if "operator.methodcaller" in names and call.args:
        named = map(str, consts(script.values(call.args[0])) or ["_"])
        return all(is_in_place(name) or name in NUMPY_WRITES for name in named)
    given = [t for a in arguments_of(call) for t in script.values(a) if isinstance(t, Ref)]
    return any(
        (t.name.startswith(WRITING) and not t.name.startswith(REDUCTIONS))
        or (t.name.startswith("torch.") and is_in_place(t.name))
        for t in given
    ) and not script.analysis(CallGraph).callees(call)


def _writes_itself(script: Script, node: ast.AugAssign) -> bool:
    """Whether nothing else says what `target += ...` writes to: of arrays, `rows[0] += 1` stores
    into `rows`; of lists, it changes what they hold. No tensor takes text.
    """
    added, target = node.value, node.target
    while isinstance(added, ast.BinOp):
        added = added.left  # `line += ", " + name`
    if is_text(added) or isinstance(added, ast.JoinedStr):
        return False
    if not isinstance(target, ast.Subscript):
        return True
    return script.may_be(target.value, Seq, Dict)


def _is_counter(script: Script, target: ast.expr) -> bool:
    """A sum that begins with a constant, and that no tensor is made of without a copy."""
    if isinstance(target, ast.Attribute):
        return _begins_with_numbers(script, target)
    if not isinstance(target, ast.Name) or not script.analysis(Memory).begins_as_number(target):
        return False
    table = variables_of(target)
    variable = table.of(target)
    named = (n for n in source_of(target).each(ast.Name) if n.id == target.id)
    names = [n for n in named if table.of(n) == variable]
    return not any(isinstance(t, Tensor) for n in names for t in script.values(n)) and not any(
        _is_wrapped(n) for n in names
    )


def _begins_with_numbers(script: Script, target: ast.Attribute) -> bool:
    """``self.epochs += 1`` where nothing but numbers that are written out, and sums of integers, is
    ever kept under the name.
    """
    found = (parent_of(n) for n in script.attributes(target.attr) if is_stored(n))
    added = [node.value for node in found if isinstance(node, ast.AugAssign)]
    return script.analysis(Memory).begins_as_number(target) and all(map(is_number, added))


def _is_wrapped(name: ast.Name) -> bool:
    """``torch.from_numpy(name)``"""
    call = parent_of(name)
    return (
        isinstance(call, ast.Call)
        and name is not call.func
        and last_part(ast.unparse(call.func)) in SHARING
    )


# ------------------------------------------------------------------------------------- which tensor
def may_be(script: Script, target: Values, expr: ast.expr, arrays: bool = False) -> bool:
    """Whether ``target`` may share memory with what ``expr`` holds."""
    memory = script.analysis(Memory)
    tensors = (t.made if isinstance(t, Tensor) else None for t in script.values(expr))
    made = {node for t in tensors for node in memory.memory_of(t)}
    if None in made and (own := memory.made_by(expr)) is not None:
        made = made - {None} | own  # computed, and so in memory that no factory made
    return any(_may_share(script, t, made, arrays) for t in target)


def _may_share(script: Script, thing: Thing, made: set[ast.AST | None], arrays: bool) -> bool:
    if isinstance(thing, Tensor):
        if any_named(thing.models, Ext, PASSING_LAYERS):
            return True
        if not thing.loss and any(map(passes_on, thing.models)):
            return True  # `nn.Sequential()`
        if thing.param or thing.grad or thing.loss or thing.models:
            return False
        if surely(collates_anew(script, t) for t in thing.batch):
            return False
        memory = script.analysis(Memory)
        return memory.may_be_one(memory.memory_of(thing.made), made)
    if isinstance(thing, Num) and thing.synced is not None:
        return arrays and _may_share(script, thing.synced, made, arrays)
    if isinstance(thing, Method) and isinstance(thing.this, Unknown):
        return _may_share(script, thing.this, made, arrays)
    if thing == STATE_DICT:
        return False  # buffers: see why_trainable()
    if isinstance(thing, (Num, Method)):
        return arrays and not (isinstance(thing, Num) and thing.pattern)
    if isinstance(thing, Ext) and not thing.name.startswith(("torch.nn.", "torch.optim.")):
        return any(_may_share(script, t, made, arrays) for g in thing.args.all() for t in g)
    if isinstance(thing, Arg) and _is_plain(script, thing):
        return any(_may_share(script, t, made, arrays) for t in thing.default)
    return not isinstance(thing, (Const, Seq, Dict, Func, Inst, Ext, Ref))


def _is_plain(script: Script, option: Arg) -> bool:
    """What the user says is a number or text: the project makes nothing else of it."""
    made = keyword_of(option.node, "type")
    return made is None or script.values(made) <= PLAIN


def collates_anew(script: Script, thing: Thing) -> bool:
    """A loader whose batches are collated: copies of the items."""
    mine = [x for x in script.loaders if thing in x.things]
    return surely(_collates(x) for x in mine)


def _collates(loader: object) -> bool:
    size, collate = loader_argument(loader, "batch_size"), loader_argument(loader, "collate_fn")  # type: ignore[arg-type]
    return (size is None or const(size.values) is not None) and (
        collate is None or const(collate.values) is None
    )


# --------------------------------------------------------------------------------------------- when
def _is_before(script: Script, node: ast.AST, expr: ast.expr, made: Sequence[Occurrence]) -> bool:
    """Whether the write is certainly over when the copy is made."""
    if not made or script.log.full or _waits(function_of(node)):
        return False
    there, loops = function_of(node), any(isinstance(f, LoopFrame) for o in made for f in o.stack)
    if there is function_of(expr):
        return not loops and len(made) == 1 and _is_over(script, node, expr)
    ways = [[n for n, f in enumerate(o.stack) if _calls_from(f, node)] for o in made]
    if any(ways):
        # Loops below the call come back to the copy, not to the write.
        return all(
            len(way) == 1
            and not any_of(o.stack[: way[0]], LoopFrame)
            and _is_over(script, node, o.stack[way[0]].node)
            for way, o in zip(ways, made, strict=True)
        )
    if loops:
        return False
    found = [
        o
        for o in script.everything
        if any(f.func.node is there for f in of_kind(o.stack, CallFrame))
    ]
    return bool(found) and max(o.order for o in found) < min(o.order for o in made)


def _waits(function: ast.AST | None) -> bool:
    """A generator, which may be in the middle at any time."""
    return isinstance(function, ast.FunctionDef) and any_of(
        own_nodes(function), ast.Yield, ast.YieldFrom
    )


def _calls_from(frame: Frame, node: ast.AST) -> bool:
    """Whether a call stands in the function (or at the top level of the file) of a node."""
    return (
        isinstance(frame, CallFrame)
        and is_same_function(frame.node, node)
        and source_of(frame.node) is source_of(node)
    )


def _is_own(
    script: Script,
    node: ast.AST,
    written: ast.expr | None,
    expr: ast.expr,
    made: Sequence[Occurrence],
) -> bool:
    """What it writes to is made after the copy, or by the function of the write, which is not
    running when the copy is made.
    """
    home = function_of(node)
    if written is None or not made or script.log.full:
        return False
    memory, base = script.analysis(Memory), base_of(written)
    makers = memory.made_by(base)
    if makers is not None and _made_later(script, makers, made):
        return True
    if not isinstance(home, ast.FunctionDef) or _waits(home):
        return False
    runs = any(isinstance(f, CallFrame) and f.func.node is home for o in made for f in o.stack)
    if runs or home in {*ancestors(expr)}:
        return False
    return memory.made_by(base, own=True) is not None or _is_copy(script, written)


def _made_later(script: Script, makers: frozenset[ast.AST], made: Sequence[Occurrence]) -> bool:
    """Whether what is written to is memory that is made only after the copies."""
    if any(isinstance(f, LoopFrame) for o in made for f in o.stack):
        return False
    sites = [site for _, site in script.log.each() if site.node in makers]
    begins = [o.order for site in sites for o in site]
    found = {site.node for site in sites} == makers
    return found and min(begins, default=0) > max(o.order for o in made)


def _is_copy(script: Script, written: ast.expr) -> bool:
    """A variable that holds `x.copy()`: of an array a copy of all, of a list or dict one of the
    list alone.
    """
    around = parent_of(written)
    if not isinstance(written, ast.Name) or around is None:
        return False
    if is_augmented(around):
        return False  # `rows[0] += 1` writes to what the list holds
    made = [d for d in definitions_at(script, written) if not d.is_augmented]
    return surely(
        is_method(d.value, "copy")
        and function_of(d.node) is function_of(written)
        and not arguments_of(d.value)
        and not script.may_be(d.value.func.value, Inst)
        for d in made
    )


def _is_over(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """Whether, in one activation of their function, a statement never runs after (or as a part of)
    another one.
    """
    return statement_of(node) is not statement_of(other) and not graph_of(script, other).may_follow(
        node, other
    )
