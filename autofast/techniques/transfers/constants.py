"""What a method computes anew at each call, though it comes out the same: the constructor computes
it once, and keeps it as a buffer of the module, or as an attribute."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from autofast.edit.edits import (
    After,
    Before,
    Decorator,
    Edit,
    Edits,
    Import,
    Remove,
    Rewrite,
    Wrap,
    plain_code,
)
from autofast.edit.order import Rank
from autofast.facts.invariants import Invariants, own_constructor
from autofast.facts.loaded import loads_networks
from autofast.facts.of_numbers import OfObject, needed, written
from autofast.facts.parts import moved_with
from autofast.facts.read_only import ReadOnly
from autofast.facts.unread import unread
from autofast.flow.callgraph import CallGraph
from autofast.flow.positions import happens_in
from autofast.flow.program import Flow, holder_of
from autofast.flow.scopes import binds, defaults, mentions, own_nodes, parameters
from autofast.model.calls import (
    arguments_of,
    is_method,
    is_name,
    keyword_of,
    only_target,
    short_name,
    variable_name,
)
from autofast.model.kinds import is_module
from autofast.model.names import MODULE_BASES, SETTINGS_FILES
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import grouped, is_numeric, not_none, surely, wordset
from autofast.model.source import (
    Nodes,
    block_of,
    contains_kind,
    function_of,
    is_at_top,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    within,
    within_any,
    within_statement,
)
from autofast.model.syntax import COMPREHENSIONS, DEFS, LOOPS, is_stored
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Arg,
    Cls,
    Const,
    Inst,
    Setting,
    Thing,
    Unknown,
    of_kind,
    one,
)
from autofast.read.library.frameworks import is_lightning
from autofast.techniques.transfers.buffers import OWN, SINCE, buffers, changes_buffers, goes_beside
from autofast.techniques.transfers.factories import factory, runs_often
from autofast.techniques.transfers.single_numbers import as_number, since
from autofast.techniques.transfers.tables import number_name, tables
from autofast.techniques.transfers.uploads import Once, uploads
from autofast.write.spelling import chooses_gpu_late

STORES = wordset("torch.save pickle.dump pickle.dumps joblib.dump dill.dump")
WORK = (*LOOPS, *COMPREHENSIONS)
BLOCKS = (*LOOPS, ast.If)  # whose comments their code has
PLAIN = ("builtins.object", "torch.", "torchvision.")  # bases whose objects take any attribute
COUNTS = (ast.Add, ast.Sub, ast.Div, ast.FloorDiv, ast.Pow)  # with a number, of no list or dict
FEW = 3  # calls of a function that is not worth an attribute
TAKEN = "training forward float double half type dtype device name T".split()  # of every module


Slot: TypeAlias = tuple[ast.AST, str]  # a constructor, or a class without, and a name
# A class without a constructor, the method, what keeps something, what that is, and the rest.
Without: TypeAlias = "tuple[ast.ClassDef, ast.FunctionDef, str, ast.expr, Constant]"


@dataclass(frozen=True, eq=False)
class Constant:
    """``node``, in code that runs in every step, or for each item, and what makes it once.

    ``copied``: to the device, each time; ``worked``: computed by functions of some work. ``made``:
    what goes elsewhere with it. There are no edits where others may have a tensor that a module
    keeps.
    """

    node: ast.expr
    edits: Edits
    copied: bool = False
    worked: bool = False
    made: tuple[ast.AST, ...] = ()
    slot: Slot | None = None  # what it is kept by
    since: tuple[int, int] | None = None  # the oldest torch that takes it so, where not all do
    unread: str = ""  # the variable that gets what is computed of it, which nobody reads
    stored: bool = False  # whether files hold whole objects, which would have no such attribute


def constants(
    script: Script, hot: frozenset[ast.AST], halves: Nodes | None = None
) -> Iterator[Constant]:
    """One for each expression in a method, and for each function whose result stays the same; what
    nobody reads stays as it is.

    ``halves`` go under autocast: beside a tensor of 16 bits, one of 32 bits gives 32, and a number
    16.
    """
    for constant in _constants(script, hot, halves or set()):
        name = unread(script, constant.node)
        yield replace(constant, edits=(), unread=name) if name else constant


def _constants(script: Script, hot: frozenset[ast.AST], halves: Nodes) -> Iterator[Constant]:
    often, kept = _run_often(script, hot), set[ast.AST]()
    loaded = loads_networks(script)
    names: dict[Slot, tuple[str, Edit | None]] = {}  # what is kept, and what keeps it
    without, stored = list[Without](), list[Constant]()
    for transfer in script.transfers:
        often_there = runs_often(transfer.site, hot) and _goes_there(script, transfer)
        is_half = any(happens_in(o, transfer.node, halves) for o in transfer.site)
        if often_there and transfer.only_moves and not is_half:
            if (number := as_number(script, transfer.node)) is not None:
                kept.add(transfer.node)
                copy = transfer.node
                yield Constant(copy, (number,), True, made=(copy,), since=since(script, copy))
    for copy, buffer in buffers(script, hot):
        kept.add(copy)
        yield Constant(copy, buffer, True)
    every = (*_copied(script, hot), *uploads(script, hot, often), *_computed(script, often))
    for once_made in every:
        node, made, copied = once_made.node, once_made.made, once_made.copied
        idle, spelled = once_made.idle, once_made.code
        method = function_of(node)
        if not isinstance(method, ast.FunctionDef):
            continue  # code of a file: no object has it
        init, cls = own_constructor(method), class_of(script, method)
        module = cls is not None and bool(cls.external & MODULE_BASES)
        before = _made_before(script, made, method, init)
        if (
            cls is None
            or (init is None and not (module and copied and cls.find("__init__") is None))
            or not script.analysis(Invariants).holds(made, method, bool(before), once_made.safe)
            or (init is not None and _is_hidden([made, *before], method, init))
            or ReadOnly(script).follow(node, None)
        ):
            continue
        if is_stored_whole(script, cls) or (module and loaded):
            stored += [Constant(node, (), copied, stored=True)] if once_made.safe else []
            continue
        this = method.args.args[0].arg
        others = [init] if init else [m for c, m, *_ in without if c is cls.node]
        if any(other.args.args[0].arg != this for other in others):
            continue
        # None that needs statements is shared.
        said = f"{spelled} {copied} {before or ast.unparse(made)}"
        stem = once_made.stem or number_name(made)
        begin = called_like(script, node, stem or "constant")
        called = (free_name(script, cls, f"{begin}{n}") for n in ("", "_2", "_3", "_4"))
        slots: list[Slot] = [(init or cls.node, n) for n in not_none(called)]
        slot = next((s for s in slots if s not in names or names[s][0] == said), None)
        if slot is None or within_any(node, kept):
            continue  # what another constant is computed of is not asked for any more
        name = slot[1]
        code = f"{this}.{name} = {spelled}"
        moved: Edits | None = ()
        if copied and module:
            code = f'{this}.register_buffer("{name}", {spelled}, persistent=False)'
            moved = _moved_there(script, method, cls)
        if moved is None:
            continue
        kept.add(node)
        idle = (*idle, *(Remove(s, contains_kind(s, *BLOCKS)) for s in before))
        code = "".join(f"{plain_code(segment)}\n" for segment in map(_code, before)) + code
        gone = *(e.stmt for e in of_kind(idle, Remove)), *(e.expr for e in of_kind(idle, Rewrite))
        holes = {"like": once_made.like} if once_made.like is not None else {}
        edits = Rewrite(node, f"{this}.{name}{once_made.behind}", holes), *moved, *idle
        found = Constant(node, edits, copied, _has_work(script, made), gone, slot=slot)
        if init is None:
            names[slot] = said, None
            without.append((cls.node, method, code, made, found))
            continue
        once = names[slot][1] if slot in names else None
        once = once or After(init.body[-1], code, {"made": made}, rank=Rank.MOVED)
        names[slot] = said, once
        yield replace(found, edits=(once, *edits))
    yield from _with_constructors(without)
    for table in tables(script, hot, kept):
        kept |= {*table.made}
        yield Constant(table.node, table.edits, True, made=table.made)
    yield from (c for c in stored if not within_any(c.node, kept))
    for function in often:
        if isinstance(function, ast.FunctionDef) and _has_one_result(script, function):
            graph = script.analysis(CallGraph)
            sites = [s for s in graph.sites(function) if not graph.is_decorated(function_of(s))]  # type: ignore[arg-type]
            if left := [s for s in sites if not within_any(s, kept) and function_of(s) in often]:
                cached = Decorator(function, "functools.lru_cache(maxsize=None)")
                yield Constant(left[0], (cached, Import(source_of(function), "import functools")))


def _with_constructors(without: list[Without]) -> Iterator[Constant]:
    """What classes keep that have no constructor: each gets one, for all of it."""
    for cls, parts in grouped((part[0], part) for part in without).items():
        method = parts[0][1]
        code = {code: made for _, _, code, made, _ in parts}
        lines = [c.replace("{made}", f"{{made{n}}}") for n, c in enumerate(code)]
        body = textwrap.indent("\n".join(["super().__init__()", *lines]), "    ")
        told = " -> None" if method.returns else ""
        text = f"def __init__({method.args.args[0].arg}){told}:\n{body}\n"
        holes = {f"made{n}": made for n, made in enumerate(code.values())}
        once = Before(of_kind(cls.body, DEFS)[0], text, holes, rank=Rank.MOVED)
        for *_, found in parts:
            yield replace(found, edits=(once, *found.edits))


def _goes_there(script: Script, transfer: Transfer) -> bool:
    return transfer.to_device or goes_beside(script, transfer)


def _copied(script: Script, hot: frozenset[ast.AST]) -> Iterator[Once]:
    """Copies to the device: of a module that is moved there what is copied is kept, of other
    objects the copy."""
    for transfer in script.transfers:
        node = transfer.node
        method = function_of(node)
        if (
            _goes_there(script, transfer)
            and is_method(node, "to", "cuda")
            and isinstance(method, ast.FunctionDef)
            and runs_often(transfer.site, hot)
            and (cls := class_of(script, method)) is not None
        ):
            inner, module = node.func.value, cls.external & MODULE_BASES
            if isinstance(inner, ast.Name) and module:
                made = script.analysis(Flow).value(inner)
                again = _bound_again(script, transfer, inner)
                alone = script.analysis(Flow).value_of_its_own(inner) is not None
                if made is not None and (again is not None or alone):
                    here = again is not None and not ReadOnly(script).follow(node, None)
                    if here or alone:
                        idle = (Remove(again),) if here and again else ()
                        yield Once(made, made, True, idle)
                        if factory(script, made) is None:
                            yield from (Once(core, core, True, idle) for core in _cores(made))
                yield Once(node, inner, True)
            elif contains_kind(inner, ast.Call):
                yield Once(node, inner if module else node, True)
                if module and transfer.only_moves and factory(script, inner) is None:
                    plain = Rewrite(node, "{made}", {"made": inner})
                    yield from (Once(core, core, True, (plain,)) for core in _cores(inner))


def _cores(made: ast.expr) -> Iterator[ast.expr]:
    """What it is made of by methods: ``eye.view(1, 9)`` of ``eye.view(1, 9).repeat(len(x), 1)``, of
    which the first that stays the same is kept."""
    match made:
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner)):
            yield inner
            yield from _cores(inner)


def _made_before(
    script: Script, made: ast.expr, method: ast.FunctionDef, init: ast.FunctionDef | None
) -> list[ast.stmt]:
    """The statements that an expression needs, and nothing else does, where the constructor could
    run them, too: ``weight = torch.tensor(self.counts)``, ``weight = weight / weight.sum()``."""
    stmt, known = statement_of(made), OfObject(script, method, init)
    block = block_of(stmt)
    above, target = needed(known, block[: block.index(stmt)], made), only_target(stmt)
    rest = [n for v in set().union(*map(written, above)) for n in mentions(method, v)]
    alone = all(
        within_any(n, [*above, made])
        or (is_name(target, n.id) and not within_any(n, block[: block.index(stmt)]))
        for n in rest
    )
    if not alone or not all(map(known.takes, above)) or not known.is_given(made):
        return []
    return above if known.is_set_by([*above, stmt]) else []


def _is_hidden(trees: list[ast.AST], method: ast.FunctionDef, init: ast.FunctionDef) -> bool:
    """Whether a name of the module is another thing in the constructor."""
    names = (n for tree in trees for n in nodes_in(tree, ast.Name))
    return any(binds(init, n.id) for n in names if holder_of(n) is not method)


def _code(stmt: ast.stmt) -> str:
    return textwrap.dedent(" " * stmt.col_offset + source_of(stmt).segment(stmt))


def _bound_again(script: Script, transfer: Transfer, name: ast.Name) -> ast.stmt | None:
    """``w = w.to(x.device)``, or ``if x.is_cuda: w = w.cuda()``, where it does nothing else."""
    stmt = statement_of(transfer.node)
    if not transfer.only_moves or getattr(stmt, "value", None) is not transfer.node:
        return None
    if not is_name(only_target(stmt), name.id):
        return None
    match parent_of(stmt):
        case ast.If(test=ast.Attribute(attr="is_cuda"), body=[_], orelse=[]) as gate:
            return gate
        case ast.FunctionDef():
            return stmt
    return None


def _run_often(script: Script, hot: frozenset[ast.AST]) -> dict[ast.AST, None]:
    """The functions that run in every step, or for each item of a data set."""
    calls = script.analysis(CallGraph)
    items = [d.getitem for x in script.loaders for d in x.datasets if d.getitem is not None]
    often = [f for loop in hot for f in calls.run_in(loop, often=True)]  # type: ignore[arg-type]
    return dict.fromkeys([*often, *(f for item in items for f in calls.runs(item))])


def _computed(script: Script, often: Iterable[ast.AST]) -> Iterator[Once]:
    """Calls, in methods, of functions of the project that have something to do."""
    calls = script.analysis(CallGraph)
    for function in often:
        if isinstance(function, ast.FunctionDef) and isinstance(parent_of(function), ast.ClassDef):
            for call in of_kind(own_nodes(function), ast.Call):
                run = [c.function for c in calls.callees(call)]
                if run and all(map(works, run)):
                    yield Once(call, call, False)


def works(function: ast.AST) -> bool:
    """Whether a function has something to do: loops, or more than a few calls."""
    return contains_kind(function, *WORK) or len([*nodes_in(function, ast.Call)]) > FEW


def _has_work(script: Script, made: ast.expr) -> bool:
    callees = script.analysis(CallGraph).callees
    return any(works(c.function) for call in nodes_in(made, ast.Call) for c in callees(call))


def _has_one_result(script: Script, function: ast.FunctionDef) -> bool:
    """Whether a function of the module, of some work, computes the same for the same few constants
    in all its calls, and nobody writes to what it gives."""
    calls = script.analysis(CallGraph)
    if (
        parent_of(function) is not source_of(function).tree
        or not contains_kind(function, *WORK)
        or calls.complete(function)
        or not script.analysis(Invariants).is_pure(function)
        or _is_of_both(script, function)
    ):
        return False
    given = [a for call in calls.sites(function) for a in arguments_of(call)]
    given += not_none(defaults(function).values())
    counted = all(_is_counted_with(function, p.arg) for p in parameters(function))
    return all(_is_option(script, a, counted) for a in given) and not any(
        ReadOnly(script).follow(call, None) for call in calls.sites(function)
    )


def _is_of_both(script: Script, function: ast.FunctionDef) -> bool:
    """Whether evaluations and training ask for a tensor: one that is made under
    ``inference_mode`` could not be saved for a backward."""
    calls = script.analysis(CallGraph)
    ways = ([e.node for e in script.evaluations], [step.loop for step in script.steps])
    return any(tensors_in(script.values(call)) for call in calls.sites(function)) and all(
        any(function in calls.run_in(node) for node in way)  # type: ignore[arg-type]
        for way in ways
    )


def _is_option(script: Script, expr: ast.expr, counted: bool) -> bool:
    """A constant, or an option of the command line or of a file that is one (``counted``: or else
    the function would fail)."""
    return surely(
        isinstance(t, (Const, Setting))
        or (isinstance(t, Arg) and keyword_of(t.node, "nargs") is None)
        or (counted and isinstance(t, Unknown) and t.name in SETTINGS_FILES)
        for t in script.values(expr)
    )


def _is_counted_with(function: ast.FunctionDef, name: str) -> bool:
    """Whether each call takes the argument for a number: ``name // 2``, where nothing decides
    whether the function comes to it."""
    return any(
        isinstance(n, ast.BinOp)
        and isinstance(n.op, COUNTS)
        and is_name(n.left, name)
        and isinstance(n.right, ast.Constant)
        and is_numeric(n.right.value)
        and all(_is_come_to(n, outer) for outer in within_statement(n))
        for stmt in of_kind(function.body, ast.Assign)
        for n in ast.walk(stmt)
    )


def _is_come_to(node: ast.AST, outer: ast.AST) -> bool:
    """Whether what has ``node`` in it computes that in any case."""
    if isinstance(outer, COMPREHENSIONS):
        return within(node, outer.generators[0].iter)
    return not isinstance(outer, (ast.Lambda, ast.IfExp, ast.BoolOp))


def class_of(script: Script, method: ast.FunctionDef) -> Cls | None:
    """The class of all objects whose method it is, which may get an attribute; None where there are
    several."""
    if not method.args.args:
        return None
    cls = one({t.cls if isinstance(t, Inst) else None for t in _objects(script, method)})
    if cls is None or cls.node is not parent_of(method) or cls.find("__slots__"):
        return None
    plain = (base.startswith(PLAIN) or base in MODULE_BASES for base in cls.external)
    return cls if all(plain) else None


def _objects(script: Script, method: ast.FunctionDef) -> set[Thing]:
    """All whose method it is, also where it does not ask for them."""
    this = mentions(method, method.args.args[0].arg)
    made = of_kind((o.this for site in script.log.of("new") for o in site), Inst)
    asked = {t for n in this for t in script.values(n)}
    return asked or {t for t in made if any(c.node is parent_of(method) for c in t.cls.lineage())}


def _moved_there(script: Script, method: ast.FunctionDef, cls: Cls) -> Edits | None:
    """What moves such a module to the device, where nothing does yet; None where it cannot be, or
    where a buffer would be more than an attribute there."""
    if (
        not cls.external <= MODULE_BASES
        or script.torch.rules_out(SINCE)
        or any(cls.find(n) is not None for n in OWN)
        or changes_buffers(script)
    ):
        return None
    moved = [o.this for s in script.methods("to", "cuda") for o in s if o.this]
    inside = moved_with(*moved, *_moved_by_lightning(script))
    objects = of_kind(_objects(script, method), Inst)
    if all(id(t) in inside or any(_is_copy_of(t, o) for o in inside.values()) for t in objects):
        return ()
    made = {t.node for t in objects}
    edits = [_move(script, node) for node in made]
    return tuple(edits) if all(edits) else None  # type: ignore[arg-type]


def _is_copy_of(thing: Inst, other: Thing) -> bool:
    """Whether it is a copy, made where the other object is, or in what is called there."""
    return (
        isinstance(other, Inst)
        and thing.node is other.node
        and thing.made[: len(other.made)] == other.made
    )


def _moved_by_lightning(script: Script) -> list[Thing]:
    """Its modules, where a Trainer of it takes them to its device."""
    if not any(t.framework == "lightning" for t in script.trainers):
        return []
    every = {o.this for site in script.log.of("new") for o in site}
    return [t for t in every if isinstance(t, Inst) and is_lightning(t)]


def _move(script: Script, made: ast.AST | None) -> Edit | None:
    """``Loss().to(device)``, with the device that a network is moved to in the same function; or
    ``loss = loss.cuda()``, below the condition that the network's copy stands below."""
    flow, stmt = script.analysis(Flow), statement_of(made) if made is not None else None
    for site in (site for m in script.models for site in m.moves):
        match site.node, parent_of(statement_of(site.node)):
            case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Name() as device]), _ if (
                isinstance(made, ast.Call)
                and function_of(made) is function_of(site.node)
                and (
                    (
                        (bound := flow.definition(device)) is not None
                        and flow.graph(made).dominates(bound.node, made)
                    )
                    or (not is_at_top(made) and script.analysis(Invariants).is_bound_once(device))
                )
            ):
                return Wrap(made, f"{{}}.to({device.id})")
            case ast.Call(func=ast.Attribute(attr="cuda"), args=[], keywords=[]), _ if (
                isinstance(made, ast.Call)
                and function_of(made) is function_of(site.node)
                and flow.graph(made).dominates(site.node, made)
                and not chooses_gpu_late(script, statement_of(made))
            ):
                return Wrap(made, "{}.cuda()")
            case ast.Call(func=ast.Attribute(attr="cuda"), args=[]), ast.If(
                test=ast.Name(id=switch) as test, body=[_], orelse=[]
            ) as gate if (
                isinstance(stmt, ast.Assign)
                and stmt.value is made
                and isinstance(name := only_target(stmt), ast.Name)
                and stmt in block_of(gate)[block_of(gate).index(gate) :]
                and sum(map(is_stored, mentions(holder_of(test), switch))) < 2
            ):
                return After(stmt, f"if {switch}:\n    {name.id} = {name.id}.cuda()")
    return None


def is_stored_whole(script: Script, cls: Cls) -> bool:
    """Whether such objects, or networks with them, are written to files as they are: those of
    older files have no such attribute."""
    given = (o.args.get(0, "obj") for s in script.calls(*STORES) for o in s)
    return any(t.cls is cls or is_module(t) for g in given for t in of_kind(g or (), Inst))


def called_like(script: Script, node: ast.expr, begin: str) -> str:
    """What to call it: like the variable, or what it is made from."""
    target, up = only_target(statement_of(node)), parent_of(node)
    whole = getattr(statement_of(node), "value", node)
    if isinstance(target, ast.Name) and node in (whole, *_cores(whole)):
        return target.id
    if isinstance(up, ast.keyword) and up.arg:
        return up.arg
    made = node.func.value if is_method(node, "to", "cuda") else node
    if isinstance(made, ast.Call) and script.analysis(CallGraph).callees(made):
        return short_name(made.func).strip("_")
    return (made is not node and variable_name(made)) or begin


def free_name(script: Script, cls: Cls, begin: str) -> str | None:
    """A name that no object of the class has."""
    used = {
        n.attr
        for n in script.each(ast.Attribute)
        if not (found := script.values(n.value))
        or any(not isinstance(t, Inst) or t.cls is cls for t in found)
    }
    names = (begin, f"fixed_{begin}")
    free = (n for n in names if n not in used and n not in TAKEN and cls.find(n) is None)
    return next(free, None)
