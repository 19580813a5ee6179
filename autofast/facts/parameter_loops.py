"""Loops over the parameters of one module, or of several side by side, and whether two modules have
the same ones.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from autofast.facts.parts import handed_parameter, moved_models, parts_of, trained_models
from autofast.facts.used_parameters import WITHOUT, parameters_of
from autofast.flow.callgraph import CallGraph
from autofast.flow.holders import Holders
from autofast.flow.memory import Memory
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import (
    arguments_of,
    call_of,
    is_method,
    is_name,
    names_in,
    only_target,
    receiver_of,
)
from autofast.model.contents import members, with_contents, without_wrappers
from autofast.model.events import LoopFrame, Occurrence
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import (
    Nodes,
    at,
    function_of,
    nodes_in,
    parent_of,
    source_of,
    within,
)
from autofast.model.syntax import is_attribute, is_read, is_stored
from autofast.model.values import (
    OBJECTS,
    STATE_DICT,
    Arguments,
    Const,
    Dict,
    Ext,
    Func,
    Given,
    Inst,
    Seq,
    Tensor,
    Thing,
    Values,
    any_of,
    are_parameters,
    is_weight,
)
from autofast.read.library.module_parts import MORE
from autofast.rule import Refusal

GIVES = ("parameters", "named_parameters")
SHARDED = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_shard",
    "deepspeed.initialize",
)
KEEP_NOTHING = ("load_state_dict", "save", "deepcopy")  # of the tensors of a state_dict
PLAIN = ("data", "detach")  # what gives the same memory, without a gradient


@dataclass(frozen=True, eq=False)
class ParameterLoop:
    """``for p in net.parameters()``, ``for p, q in zip(net.parameters(), other.parameters())``,
    also of ``named_parameters()``; or of states, ``for k, v in net.state_dict().items()``.

    ``lists`` has for each variable that is a parameter the call that gives them; of states also for
    ``state[k]``. ``taken`` are statements that take a parameter by its name, ``q = others[name]``
    with ``others = dict(net.named_parameters())``, and what is asserted of it.
    """

    node: ast.For
    lists: Mapping[str, ast.Call]
    taken: tuple[ast.stmt, ...] = ()

    @property
    def is_of_states(self) -> bool:
        """Whether it goes over all that a ``state_dict()`` has, integers too."""
        return any(is_method(call, "state_dict") for call in self.lists.values())

    def element(self, expr: ast.expr) -> tuple[str, str] | None:
        """The variable, and ``param`` or ``grad``, where ``expr`` is a parameter of the loop or its
        gradient, whole.
        """
        kind = "param"
        while not isinstance(expr, (ast.Name, ast.Subscript)):
            if is_method(expr, "detach") and not arguments_of(expr):
                expr = expr.func
            if not is_attribute(expr, *PLAIN, "grad"):
                return None
            if expr.attr == "grad":
                if kind == "grad":
                    return None
                kind = "grad"
            expr = expr.value
        word = ast.unparse(expr)
        return (word, kind) if word in self.lists else None

    def mentions(self, expr: ast.AST) -> bool:
        """Whether a variable of the loop occurs in ``expr``."""
        return bool(names_in(expr) & names_in(self.node.target))


def parameter_loops(script: Script) -> Iterator[ParameterLoop]:
    """All that the script comes to, and whose variables nothing reads below them."""
    for node in script.nodes:
        if not isinstance(node, ast.For) or node.orelse or not script.values(node.iter):
            continue
        lists = _lists(script, node.target, node.iter) or _states(script, node)
        if lists and not lists.keys() & definitions_of(script, node).live_after(node):
            others, taken = _by_name(script, node) if len(lists) == 1 else ({}, ())
            yield ParameterLoop(node, {**lists, **others}, taken)


def named_tensors(script: Script, loop: ast.For) -> tuple[str, str, ast.Call] | None:
    """The names, the tensors and what gives both, of ``for name, p in net.named_parameters()`` and
    ``for k, v in net.state_dict().items()``.
    """
    match loop.target, loop.iter:
        case ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=value)]), ast.Call() as over:
            found = _lists(script, loop.target, over).get(value)
            if is_method(over, "items") and not arguments_of(over):
                found = _state(script, over.func.value, loop)
            if is_method(found, "named_parameters", "state_dict") and not loop.orelse:
                return key, value, found
    return None


def _by_name(script: Script, loop: ast.For) -> tuple[dict[str, ast.Call], tuple[ast.stmt, ...]]:
    """The parameters that the body takes by the name of the one that has its turn."""
    match loop.target:
        case ast.Tuple(elts=[ast.Name(id=key), ast.Name()]):
            pass
        case _:
            return {}, ()
    found: dict[str, ast.Call] = {}
    taken: list[ast.stmt] = []
    before: set[str] = set()
    for statement in loop.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as part) if (
                is_name(part.slice, key)
                and name not in before
                and (call := _named(script, part.value, loop)) is not None
            ):
                found[name] = call
            case ast.Assert(test=ast.Compare(left=ast.Name(), comparators=[ast.Name()])) if found:
                pass
            case _:
                before |= names_in(statement)
                continue
        taken.append(statement)
    return (found, tuple(taken)) if len(found) == 1 else ({}, ())


def _named(script: Script, held: ast.expr, loop: ast.For) -> ast.Call | None:
    """``net.named_parameters()`` of ``dict(net.named_parameters())``, in a variable of which
    nothing but the loop takes anything.
    """
    flow = script.analysis(Flow)
    made = flow.definition(held)
    match made.value if made is not None else None:
        case ast.Call(args=[ast.Call() as call], keywords=[]) as whole if script.is_call(
            whole, "builtins.dict"
        ) and is_method(call, "named_parameters"):
            uses = flow.definitions(held).uses(made)  # type: ignore[arg-type]
            alone = only_target(made.statement) is made.node  # type: ignore[union-attr]
            plain = alone and all(
                within(u, loop) and isinstance(parent_of(u), ast.Subscript) for u in uses
            )
            read = all(is_read(parent_of(u)) for u in uses if plain)  # type: ignore[arg-type]
            whole_model = not arguments_of(call) and all(map(are_parameters, script.values(call)))
            return call if plain and read and whole_model else None
    return None


def _lists(script: Script, target: ast.expr, over: ast.expr) -> dict[str, ast.Call]:
    """For each variable of ``target`` that is a parameter, the call that gives them; none where
    there is anything else in it.
    """
    if not isinstance(over, ast.Call) or any(k.arg != "strict" for k in over.keywords):
        return {}
    if script.is_call(over, "builtins.zip"):
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(over.args):
            return {}
        each = [_lists(script, t, a) for t, a in zip(target.elts, over.args, strict=True)]
        return {k: v for found in each for k, v in found.items()} if all(each) else {}
    if not is_attribute(over.func, *GIVES) or bool(over.args or over.keywords):
        return {}
    if not all(are_parameters(t) for t in script.values(over)):
        return {}
    if over.func.attr == "named_parameters":
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
            return {}
        target = target.elts[1]
    return {target.id: over} if isinstance(target, ast.Name) else {}


def _states(script: Script, loop: ast.For) -> dict[str, ast.Call]:
    """The same of ``for k, v in net.state_dict().items()``, with ``state[k]`` of another one."""
    match loop.target, loop.iter:
        case ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=name)]), ast.Call(
            func=ast.Attribute(value=state, attr="items")
        ):
            inside = (n for n in nodes_in(loop, ast.Subscript) if is_name(n.slice, key))
            held = {name: state, **{ast.unparse(n): n.value for n in inside}}
            found = {word: _state(script, expr, loop) for word, expr in held.items()}
            if len(found) == 2 and None not in found.values():
                return found  # type: ignore[return-value]
    return {}


def _state(script: Script, expr: ast.expr, loop: ast.For) -> ast.Call | None:
    """``net.state_dict()``, also in a variable that nothing but the loop reads."""
    flow = script.analysis(Flow)
    made = flow.definition(expr) if isinstance(expr, ast.Name) else None
    if made is not None and all(within(use, loop) for use in flow.definitions(expr).uses(made)):
        expr = made.value or expr
    plain = is_method(expr, "state_dict") and not arguments_of(expr)
    return expr if plain and script.values(expr) == {STATE_DICT} else None  # type: ignore[return-value]


def are_tied(script: Script, call: ast.Call) -> bool:
    """Whether two names of the ``state_dict()`` may stand for the same memory: of a layer that is
    there twice, of ``self.head.weight = self.embedding.weight``.
    """
    parts, memory = parts_of(*looped_modules(script, call)), script.analysis(Memory)
    once: list[object] = []  # what must not be there again
    for part in parts.values():
        inside = (t for t in members(part) if isinstance(t, OBJECTS) and id(t) in parts)
        found = [t for t in inside if last_part(getattr(t, "name", "")) not in WITHOUT]
        if _is_open(part) and not all(any_of(t.made, LoopFrame) for t in found):
            return True  # one that is made outside of the loop may be there many times
        once += found
    buffers = [arguments_of(c) for c in script.each(ast.Call) if is_method(c, "register_buffer")]
    if any(len(given) < 2 for given in buffers):
        return True  # `register_buffer(*pair)`
    held = [given[1] for given in buffers]
    held += [e for _, e in memory.handed if not isinstance(parent_of(e), ast.Attribute)]
    once += [made for expr in held for made in memory.made_by(expr) or {None}]
    return None in once or len({*once}) < len(once) or bool(handed_parameter(script))


def _is_open(part: Thing) -> bool:
    """Whether what it holds is not known one by one."""
    if isinstance(part, Ext):
        return bool(part.attrs) or not part.args.known
    return MORE in part.attrs if isinstance(part, Inst) else getattr(part, "exact", None) is None


def norms(script: Script) -> Nodes:
    """Norms of whole parameters or of their gradients in such loops, or in others over parameters,
    if all are on one device: their modules are moved to one, and no part of them by itself.
    """
    moved = [parts_of(*without_wrappers(t)) for t in moved_models(script)]

    def are_together(modules: Iterable[Thing]) -> bool:
        return surely(
            any(id(m) in parts for parts in moved)
            and all(id(m) in parts or parts.keys().isdisjoint(parts_of(m)) for parts in moved)
            for m in modules
        )

    if script.calls(*SHARDED):
        return set()
    sites = [(s.call, receiver_of(s.call)) for s in script.log.of(".norm") if s.call is not None]
    plain = [(c, n) for c, n in sites if n is not None and len(c.args) < 2 and not c.keywords]
    every = are_together(t for m in script.models for t in without_wrappers(m.thing))
    found: Nodes = {c for c, n in plain if every and _is_whole(script, n)}
    for loop in parameter_loops(script):
        if all(are_together(looped_modules(script, call)) for call in loop.lists.values()):
            found |= {c for c, n in plain if within(c, loop.node) and loop.element(n) is not None}
    return found


def _is_whole(script: Script, expr: ast.expr) -> bool:
    """A parameter, or its gradient."""
    part = expr
    while not isinstance(part, ast.Name):
        if not is_attribute(part, "data", "grad"):
            return False
        part = part.value
    return surely(isinstance(t, Tensor) and bool(t.param) for t in script.values(expr))


def is_norm(script: Script, expr: ast.expr) -> bool:
    """Whether it is one of these, or a variable that holds one."""
    return not script.analysis(norms).isdisjoint({expr, script.analysis(Flow).value(expr)})


def looped_modules(script: Script, call: ast.Call) -> list[Thing]:
    """The modules whose parameters ``call`` gives, without what is wrapped around them; none where
    some are not known.
    """
    assert isinstance(call.func, ast.Attribute)
    found = [t for given in script.values(call.func.value) for t in without_wrappers(given)]
    return found if all(is_module(t) for t in found) else []


def has_parameters(script: Script, call: ast.Call) -> bool:
    """Whether there certainly is one: an optimizer has no others, or what is trained, or is among
    what one has, does not only hold layers without any.
    """
    looped = list(looped_modules(script, call))
    if any(_is_being_made(script, t, call) for t in looped):
        return False
    for optimizer in script.optimizers:
        given = [x for t in optimizer.params for x in without_wrappers(t)]
        if given and all(x in looped for x in given):
            return True  # an empty list is an error to it
    owners: list[Thing] = [m.thing for m in trained_models(script)]
    owners += [t for o in script.optimizers for t in o.params]
    mine = parts_of(*(x for t in owners for x in without_wrappers(t)))
    return surely(id(t) in mine and not _has_none(t) for t in looped)


def _is_being_made(script: Script, module: Thing, place: ast.AST) -> bool:
    """Whether a place may run before its constructor has given a module all that it has."""
    made = module.cls.find("__init__") if isinstance(module, Inst) else None
    runs = script.analysis(CallGraph).runs
    return any(function_of(place) in runs(f.node) for f in of_kind(made or (), Func))


def _has_none(module: Thing) -> bool:
    """Whether all that a module holds is known, and no parameter is among it."""
    try:
        return not any(True for _ in parameters_of(module))
    except Refusal:
        return False


# ------------------------------------------------------------------------------ the same parameters
def are_alike(script: Script, a: ast.Call, b: ast.Call) -> bool:
    """Whether the modules of two calls certainly have as many parameters, of the same shapes, in
    every way the script comes there.
    """
    ways = [site for call in (a, b) if (site := _site(script, call))]
    if len(ways) < 2:
        return False
    left, right = ways
    if len(left) == len(right):
        pairs = list(zip(left, right, strict=True))
    else:
        pairs = [(x, y) for x in left for y in right]
    return all(
        x is not None and y is not None and _alike(script, x, y)
        for x, y in ((o.this, p.this) for o, p in pairs)
    )


def _site(script: Script, call: ast.Call) -> list[Occurrence]:
    assert isinstance(call.func, ast.Attribute)
    return script.log.ways(f".{call.func.attr}", call)


def _alike(script: Script, a: Thing, b: Thing) -> bool:
    firsts, seconds = without_wrappers(a), without_wrappers(b)
    if a is b and isinstance(a, Ext) and not any_of(a.made, LoopFrame):
        return True  # a wrapper, whatever the one network in it is, and its copies
    return all(x is y or _is_made_alike(x, y, 0) for x in firsts for y in seconds)


def _is_kin(a: Thing, b: Thing) -> bool:
    if isinstance(a, Inst) and isinstance(b, Inst):
        return a.cls is b.cls
    return isinstance(a, Ext) and isinstance(b, Ext) and a.name == b.name


def _is_made_alike(a: Thing, b: Thing, depth: int) -> bool:
    """Two modules of the same class, made with the same arguments."""
    if a is b or (isinstance(a, Const) and a == b):
        return True
    if depth > 6:
        return False
    if isinstance(a, Seq) and isinstance(b, Seq):
        if a.exact is None or b.exact is None or len(a.exact) != len(b.exact):
            return False
        return all(_same(x, y, depth) for x, y in zip(a.exact, b.exact, strict=True))
    if not _is_kin(a, b):
        return False
    assert isinstance(a, OBJECTS) and isinstance(b, OBJECTS)
    # A copy that still has what that has; what is made in a loop stands for several.
    looped = any_of((*a.made, *b.made), LoopFrame)
    is_copy = a.args is b.args and a.attrs == b.attrs and not looped
    known = a.args is not None and b.args is not None
    return known and (is_copy or _same_arguments(a.args, b.args, depth))  # type: ignore[arg-type]


def _same_arguments(a: Arguments, b: Arguments, depth: int) -> bool:
    if a.open or b.open or a.dicts or b.dicts or a.named.keys() != b.named.keys():
        return False
    if len(a.positional) != len(b.positional):
        return False
    pairs = [*zip(a.positional, b.positional, strict=True)]
    pairs += [(given, b.named[name]) for name, given in a.named.items()]
    return all(_same_given(x, y, depth) for x, y in pairs)


def _same_given(a: Given, b: Given, depth: int) -> bool:
    """The same constant or module, or the same words in one file."""
    if _same(a.values, b.values, depth):
        return True
    if a.expr is None or b.expr is None or any_of(with_contents(a.values), Dict):
        return False
    words = ast.unparse(a.expr) == ast.unparse(b.expr)
    return words and source_of(a.expr) is source_of(b.expr) and a.values == b.values


def _same(a: Values, b: Values, depth: int) -> bool:
    return len(a) == len(b) == 1 and _is_made_alike(next(iter(a)), next(iter(b)), depth + 1)


def kept_memory(script: Script) -> str:
    """A place where the memory of parameters gets another name, that of a ``state_dict()``, of
    ``p.data`` or ``p[0]``, which outlives the functions that it comes to.
    """
    holders = script.analysis(Holders)
    found: list[ast.AST] = [site.node for site in script.methods("state_dict")]
    found += (n for n in script.nodes if _is_view(script, n))
    return next((at(n) for n in found if any(holders.beyond(n))), "")  # type: ignore[arg-type]


def _is_view(script: Script, node: ast.AST) -> bool:
    plain = isinstance(node, ast.expr) and not is_stored(node) and call_of(node) is None
    viewed = script.analysis(Memory).viewed(node) if plain else ()  # type: ignore[arg-type]
    return any(is_weight(t) for inner in viewed for t in script.values(inner))
