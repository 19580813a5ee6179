"""compile: run the model as a few fused kernels that torch.compile makes, instead of one kernel for each operation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.edits import After, Edit
from autofast.finding import Effect, Finding, Options, rule
from autofast.read.build import unwrapped
from autofast.read.events import CallFrame, LoopFrame, Stack
from autofast.read.kinds import is_module, is_optimizer
from autofast.read.names import DDP, MODULE_BASES, WRAPPERS
from autofast.read.source import function_of, parent_of, source_of, statement_of
from autofast.read.values import NOTHING, Ext, Inst, Seq, Thing, Values
from autofast.script import Model, Script

from ._compiled import against, against_replaced_forward, against_script, is_there, traces
from ._hazards import Code
from ._layout import draws
from ._places import block, index, nodes_of
from ._torch import torch_in

COST = "; compiling takes minutes and pays back in long runs only, which `autofast verify` measures"
NORMS = "; torch 2.10 to 2.13 may compute wrong gradients for chained LayerNorms (TORCHINDUCTOR_MIX_ORDER_REDUCTION=0 avoids it)"
PARALLEL = ("torch.nn.DataParallel", "torch.nn.parallel.data_parallel", "torch.nn.parallel.replicate", "torch.nn.parallel.parallel_apply")
SETS_UP = frozenset({"to", "cuda", "cpu", "float", "apply", "load_state_dict", "requires_grad_", "to_empty", "train", "eval"})
LOOPS = (ast.For, ast.While, ast.AsyncFor)
NEVER = 10**12


@dataclass(eq=False)
class Place:
    """Where models are compiled: after ``statement``, by ``name``, an expression that is nothing but ``things`` there."""

    statement: ast.stmt
    name: str
    node: ast.expr
    things: frozenset[Thing]
    models: list[Model] = field(default_factory=list)


@rule("compile", Effect.ROUNDING, default=False)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Compile the model, so that forward and backward run as a few fused kernels."""
    if is_there(script):
        return
    general = against_script(script)
    refused: dict[Thing, str] = {}
    places: dict[tuple[int, str], Place] = {}
    for model in trained(script):
        why = general or against(script, model, Code(script, (), (model.thing,)))
        place = place_of(script, model)
        if isinstance(place, Place):
            places.setdefault((id(place.statement), place.name), place).models.append(model)
        elif isinstance(model.thing, Inst) or (why or place) not in refused.values():  # not once for each layer
            yield Finding(_node(model), _message(model), refusal=why or place)
        if why or isinstance(place, str):
            refused[model.thing] = why or str(place)
    for place in places.values():
        why = next((refused[t] for t in [*(m.thing for m in place.models), *place.things] if t in refused), "")
        yield Finding(place.node, _message(place.models[0]), refusal=why) if why else _finding(script, place)


def _node(model: Model) -> ast.AST:
    return model.node if isinstance(model.node, ast.expr) else model.forwards[0].node


def _message(model: Model) -> str:
    return f"{model.name} runs one kernel for each operation"


def trained(script: Script) -> Iterator[Model]:
    """The models that take part in training and have weights that an optimizer gets, as far as that is known."""
    used = {id(inner) for step in script.steps for t in step.models for inner in unwrapped(t)}
    owned = {id(inner): inner for o in script.optimizers for t in o.params for inner in unwrapped(t)}
    inside = {part for t in owned.values() for part in _parts(t)}
    open_ended = any(not o.params for o in script.optimizers) or not script.optimizers
    for model in script.models:
        if id(model.thing) in used and (id(model.thing) in inside or (model.layers and (open_ended or owned.keys() & _parts(model.thing)))):
            yield model


def _parts(thing: Thing) -> dict[int, Thing]:
    """A module and all modules below it, by id."""
    found: dict[int, Thing] = {}
    todo: list[Thing] = [thing]
    while todo:
        part = todo.pop()
        if id(part) in found:
            continue
        found[id(part)] = part
        if isinstance(part, (Inst, Ext)):
            todo.extend(t for v in part.attrs.values() for t in v if is_module(t) or isinstance(t, Seq))
        if isinstance(part, Ext):
            todo.extend(t for g in (*part.args.positional, *part.args.named.values()) for t in g.values)
        elif hasattr(part, "any"):
            todo.extend(part.any())
    return found


# ------------------------------------------------------------------------------------------------ the edit
def _finding(script: Script, place: Place) -> Finding:
    things = [m.thing for m in place.models]
    message = _message(place.models[0]) + COST + (NORMS if any("LayerNorm" in m.layers for m in place.models) else "")
    torch, needed = torch_in(source_of(place.statement))
    imports: tuple[Edit, ...] = ()
    if any(is_container(t) for t in things):
        if why := against_replaced_forward(script, things):
            return Finding(place.node, message, refusal=why)
        code, imports = f"{place.name}.forward = {torch}.compile({place.name}.forward)", needed
    else:
        code = f"{place.name}.compile()"
    if any(_is_copied(script, t) for t in things):  # the copies that run in threads would all call the original
        code, imports = f"if {torch}.cuda.device_count() < 2:\n    {code}", needed
    random = any(draws(script, m, Code(script, (), (m.thing,)), NEVER) for m in place.models)
    edit = After(place.statement, code.replace("{", "{{").replace("}", "}}"))
    return Finding(place.node, message, edits=(edit, *imports), effect=Effect.SAMPLING if random else None)


def _is_copied(script: Script, thing: Thing) -> bool:
    """DataParallel may copy the model, or a part of it, to several GPUs."""
    parts = _parts(thing)
    for site in script.calls(*PARALLEL):
        for occurrence in site:
            given = [inner for t in (occurrence.args.get(0, "module") if occurrence.args else ()) for inner in unwrapped(t)]
            if not given or any(id(t) in parts or not isinstance(t, Inst) for t in given):
                return True
    return False


def is_container(thing: Thing) -> bool:
    """``forward`` is code of torch.nn itself, which ``module.compile()`` leaves as it is."""
    if isinstance(thing, Inst):
        return thing.cls.find("forward") is None and any(_of_torch(n) for n in thing.cls.external)
    return isinstance(thing, Ext) and _of_torch(thing.name)


def _of_torch(name: str) -> bool:
    return name.startswith("torch.nn.") and name not in MODULE_BASES


# ------------------------------------------------------------------------------------------------ the place
def place_of(script: Script, model: Model) -> Place | str:
    """The end of the model's set-up: behind the last move to a device, and what follows it there, before optimizer and training."""
    moves = [(s.node, o.stack) for s in model.moves for o in s if not _in_loop(o.stack)]
    made: list[tuple[ast.AST, Stack]] = [(model.node, model.thing.made)] if model.node is not None else []
    mine = {id(model.thing)}
    traced = traces(script, mine)
    for node, stack in [*reversed(moves), *made]:
        for call in (node, *(f.node for f in reversed(stack) if isinstance(f, CallFrame))):  # its makers return it to their callers
            if not isinstance(call, ast.expr):
                break
            name, things = _name(script, model, statement_of(call), call)
            if name and (first := _lifted(script, statement_of(call), name)) is not None:
                last = _end_of_set_up(script, model, first, {id(n) for n in traced})
                done = nodes_of(block(last)[: index(block(last), last) + 1])
                if all(id(n) in done for n in traced):
                    return Place(last, name, call, things)
    if traced:
        return f"line {traced[0].lineno} traces the model, perhaps after it is set up, and a compiled one cannot be traced"
    return f"{model.name} is not kept in a variable or attribute of its own where it is made: put it into one"


def _in_loop(stack: Stack) -> bool:
    return any(isinstance(f, LoopFrame) and isinstance(f.node, LOOPS) for f in stack)


def _name(script: Script, model: Model, statement: ast.stmt, call: ast.expr) -> tuple[str, frozenset[Thing]]:
    """The variable or attribute that is nothing but models after ``statement``, this one among them, and all of them."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple) and len(target.elts) == len(statement.value.elts):
                pairs += zip(target.elts, statement.value.elts, strict=True)
            else:
                pairs.append((target, statement.value))
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        pairs.append((statement.target, statement.value))
    elif isinstance(statement, ast.Expr):
        value: ast.expr = statement.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SETS_UP:
            value = value.func.value
        pairs.append((value, value))
    for target, value in pairs:
        if _is_path(target) and any(n is call for n in ast.walk(statement)):
            found = script.values(value)
            if found and all(is_module(t) for t in found) and any(t is model.thing for f in found for t in unwrapped(f)):
                wrappers = {t.name for t in found if isinstance(t, Ext) and t.name in WRAPPERS}
                things = frozenset(inner for t in found for inner in unwrapped(t))
                if not wrappers:
                    return ast.unparse(target), things
                if wrappers == {DDP} and all(isinstance(t, Ext) and t.name == DDP for t in found):
                    return f"{ast.unparse(target)}.module", things
    return "", NOTHING


def _is_path(expr: ast.expr) -> bool:
    """``model``, ``self.model``, ``self.parts.model``."""
    while isinstance(expr, ast.Attribute):
        expr = expr.value
    return isinstance(expr, ast.Name)


def _lifted(script: Script, statement: ast.stmt, name: str) -> ast.stmt | None:
    """The statement out of the conditions around it, where the name is bound whatever they are; None where it may be a wrapper then."""
    while isinstance(outer := parent_of(statement), ast.If) and (_assigns(outer, name) or _is_bound(outer, name)):
        if any(_is_wrapper(t) for n in ast.walk(outer) if isinstance(n, ast.Call) for t in script.values(n)):
            return None
        statement = outer
    return statement


def _is_wrapper(thing: Thing) -> bool:
    return isinstance(thing, Ext) and thing.name in WRAPPERS


def _assigns(statement: ast.stmt, name: str) -> bool:
    """Whether a statement certainly binds the name, or leaves the function."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        parts = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
        return any(name in (u, f"{u}.module") for u in map(ast.unparse, parts))
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and all(any(_assigns(s, name) for s in arm) for arm in (statement.body, statement.orelse))
    return isinstance(statement, (ast.Raise, ast.Return)) or (isinstance(statement, ast.Expr) and _exits(statement.value))


def _exits(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and ast.unparse(expr.func) in ("exit", "sys.exit", "quit", "parser.error")


def _is_bound(statement: ast.stmt, name: str) -> bool:
    """Whether the name is bound before ``statement``, there or as a parameter."""
    scope = function_of(statement)
    spec = getattr(scope, "args", None)
    if isinstance(spec, ast.arguments) and any(a.arg == name for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)):
        return True
    here: ast.AST | None = statement
    while isinstance(here, ast.stmt) and here is not scope:
        around = block(here)
        if any(_assigns(s, name) and not isinstance(s, (ast.Raise, ast.Return, ast.Expr)) for s in around[: max(index(around, here), 0)]):
            return True
        here = parent_of(here)
    return False


def _end_of_set_up(script: Script, model: Model, statement: ast.stmt, traced: set[int]) -> ast.stmt:
    """The last of the statements behind ``statement`` that still sets the model up: before an optimizer or a wrapper is made of it,
    but behind what traces it, and before it is run."""
    around = block(statement)
    mine = {id(model.thing)}
    last, is_set_up = statement, True
    for other in around[index(around, statement) + 1 :]:
        calls = [n for n in ast.walk(other) if isinstance(n, ast.Call)]
        if any(_runs(script, call, mine) for call in calls) or isinstance(other, (ast.Return, ast.FunctionDef, ast.ClassDef)):
            break
        is_set_up = is_set_up and not any(is_optimizer(t) or _is_wrapper(t) for call in calls for t in script.values(call))
        if any(id(call) in traced or (is_set_up and _sets_up(script, call, mine)) for call in calls):
            last = other
    return last


def _is_mine(values: Values, mine: set[int]) -> bool:
    return any(id(inner) in mine for t in values for inner in unwrapped(t))


def _sets_up(script: Script, call: ast.Call, mine: set[int]) -> bool:
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr in SETS_UP and _is_mine(script.values(func.value), mine)


def _runs(script: Script, call: ast.Call, mine: set[int]) -> bool:
    """It calls the model, or a function that does."""
    for site in script.log.of("forward"):
        for occurrence in site:
            if occurrence.this is not None and _is_mine(frozenset({occurrence.this}), mine):
                if site.node is call or any(f.node is call for f in occurrence.stack):
                    return True
    return False
