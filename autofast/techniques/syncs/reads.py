"""Reads of a tensor's value by the host - ``loss.item()``, ``float(loss)`` - and how the tensor is kept to be read later."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.flow.iterations import Loop, loop_of, position, within
from autofast.flow.reflection import is_spelled
from autofast.flow.scopes import binds, mentions
from autofast.model.kinds import is_loss, is_module
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, parent_of, statement_of
from autofast.model.values import Bound, Const, Ext, Func, Inst, Method, Ref, Tensor, Thing, const
from autofast.ops import draws, is_in_place, may_share


@dataclass(frozen=True, eq=False)
class Read:
    """One read.

    Attributes:
        node: the expression that is the number: ``loss.detach().cpu().item()``.
        core: the tensor that is read: ``loss``.
        how: ``item``, ``float``, ``int`` or ``numpy`` (an array without dimensions).
        ready: ``core`` is a variable that has been given a tensor to keep, where it had been given the number.
    """

    node: ast.expr
    core: ast.expr
    how: str
    ready: bool = False

    @property
    def statement(self) -> ast.stmt:
        return statement_of(self.node)

    @property
    def key(self) -> str:
        return ast.dump(self.core)

    def of(self, tensor: str) -> str:
        """The code that reads ``tensor`` in the same way."""
        return reading(self.how).replace("{}", tensor)


def reading(how: str) -> str:
    """The template that reads a tensor."""
    return {"item": "{}.item()", "numpy": "{}.cpu().numpy()"}.get(how, f"{how}({{}})")


def reads(script: Script) -> list[Read]:
    """The reads of single numbers that may make the host wait for a device, in the order of the code of each file."""
    found = []
    for site in script.log.of("sync"):
        node = site.node
        how = site.occurrences[-1].data.get("how", "item")
        if how == "numpy" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            core = _peeled(node.func.value)
            if any(_on_device(t) for t in script.values(core)) and is_scalar(script, core, 0):
                found.append(Read(node, core, how))
        if not any(_on_device(o.this) for o in site):
            continue
        if isinstance(node, ast.Subscript):  # ``loss.data[0]``
            found.append(Read(node, _peeled(node.value), "item"))
        if not isinstance(node, ast.Call):
            continue
        if how == "item" and isinstance(node.func, ast.Attribute):
            found.append(Read(node, _peeled(node.func.value), how))
        elif how in ("float", "int") and len(node.args) == 1 and not node.keywords:
            found.append(Read(node, _peeled(node.args[0]), how))
    # what may be None besides would be an error at this place already
    found = [r for r in found if all(isinstance(t, Tensor) or t == Const(None) for t in script.values(r.core))]
    return [r for r in found if not is_spelled(r.node)]


def _on_device(thing: object) -> bool:
    return isinstance(thing, Tensor) and thing.device != "cpu"


def _peeled(expr: ast.expr) -> ast.expr:
    """``loss`` of ``loss.detach().cpu()`` and ``loss.data``."""
    while True:
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and not expr.args and not expr.keywords:
            if expr.func.attr not in ("detach", "cpu"):
                return expr
            expr = expr.func.value
        elif isinstance(expr, ast.Attribute) and expr.attr == "data":
            expr = expr.value
        else:
            return expr


# ------------------------------------------------------------------------------------------------ keeping a tensor
def kept(script: Script, core: ast.expr) -> str:
    """The template (hole ``{core}``) of what is kept of a tensor: without its graph, and safe from changes in place."""
    values = script.values(core)
    if isinstance(core, ast.Call) and values and all(isinstance(t, Tensor) and t.dtype == "int" and not t.grad for t in values):
        return "{core}"  # a count
    if is_fresh(script, core, loop_of(core), 0) and not _graphs(script) and not script.unread:
        return "{core}.detach()"
    return "{core}.detach().clone()"


def _graphs(script: Script) -> bool:
    """Whether outputs may be overwritten by the next run of a CUDA graph."""
    for site in script.calls("torch.compile"):
        for occurrence in site:
            if occurrence.args is None or set(occurrence.args.named) & {"options"}:
                return True
            if "mode" in occurrence.args.named and const(occurrence.args.named["mode"].values) not in (None, "default"):
                return True
    return bool(script.calls("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"))


def is_fresh(script: Script, expr: ast.expr, loop: Loop | None, depth: int) -> bool:
    """Whether ``expr`` is a tensor of its own that nothing changes in place after it has been made."""
    if isinstance(expr, (ast.BinOp, ast.UnaryOp, ast.Compare)):
        return True
    if isinstance(expr, ast.Call):
        return _makes_fresh(script, expr, loop, depth)
    if isinstance(expr, ast.Name) and depth < 8:
        return _is_stable(script, expr, loop, depth)
    return False


def _makes_fresh(script: Script, call: ast.Call, loop: Loop | None, depth: int) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute) and any(isinstance(t, Tensor) for t in script.values(func.value)):
        if is_in_place(func.attr, flags=True):
            return False
        return not may_share(func.attr) or is_fresh(script, func.value, loop, depth)
    callees = script.values(func)
    return bool(callees) and all(_gives_fresh(script, t, depth) for t in callees)


def _gives_fresh(script: Script, callee: Thing, depth: int) -> bool:
    if functions := code_of(callee):
        return all(_returns_fresh(script, f, depth) for f in functions)
    if not isinstance(callee, (Ref, Ext)) or not callee.name.startswith("torch."):
        return False
    return not may_share(callee.name)


def code_of(callee: Thing) -> list[Func]:
    """The project's functions that a call of ``callee`` runs."""
    if isinstance(callee, Bound):
        return [callee.func]
    if isinstance(callee, Inst) and is_module(callee):
        return [t for t in callee.cls.find("forward") or () if isinstance(t, Func)]
    return [callee] if isinstance(callee, Func) else []


def _returns_fresh(script: Script, func: Func, depth: int) -> bool:
    """Whether each tensor that a function of the project returns is fresh."""
    if depth >= 3 or isinstance(func.node, ast.Lambda):
        return False
    results = [n for n in ast.walk(func.node) if isinstance(n, ast.Return) and function_of(n) is func.node]
    parts = [e for n in results if n.value is not None for e in (n.value.elts if isinstance(n.value, ast.Tuple) else [n.value])]
    return bool(parts) and all(
        is_fresh(script, e, loop_of(e), depth + 1) for e in parts if any(isinstance(t, Tensor) for t in script.values(e))
    )


def _is_stable(script: Script, name: ast.Name, loop: Loop | None, depth: int) -> bool:
    """Whether a variable gets a fresh tensor in each turn before ``name`` is read, and nothing changes that one afterwards."""
    scope = function_of(name)
    if not isinstance(scope, ast.Module) and not binds(scope, name.id):
        return False
    every = sorted(mentions(scope, name.id), key=position)
    made: ast.AST | None = None  # where it is certainly made anew
    for node in every:
        if function_of(node) is not scope:
            return False
        if isinstance(node.ctx, ast.Store) and position(node) < position(name) and not isinstance(parent_of(node), ast.AugAssign):
            statement = statement_of(node)
            sure = _dominates(statement, name, loop)
            if not isinstance(statement, ast.Assign) or not _assigns_fresh(script, statement, node, loop, depth):
                if sure or made is not None:
                    return False
            elif sure and made is None:
                made = node
    if made is None:
        return False
    for node in every:
        early = position(made) <= position(node) <= position(name)
        if node is name or (early and not isinstance(node.ctx, ast.Load)) or (loop is not None and not within(node, loop)):
            continue
        if isinstance(parent_of(node), ast.AugAssign) and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node.ctx, ast.Load) and not _is_harmless(script, node):
            return False
    return True


def _assigns_fresh(script: Script, statement: ast.Assign, node: ast.Name, loop: Loop | None, depth: int) -> bool:
    if any(t is node for t in statement.targets):
        return is_fresh(script, statement.value, loop, depth + 1)
    callees = script.values(statement.value.func) if isinstance(statement.value, ast.Call) else frozenset()
    return bool(callees) and all(_gives_fresh(script, t, depth) for t in callees)


def _dominates(statement: ast.stmt, node: ast.AST, loop: Loop | None) -> bool:
    """Whether ``statement`` (or another arm of its condition, looked at by itself) runs before ``node`` in each turn."""
    if loop is not None and not within(statement, loop):
        return False
    outer = parent_of(statement)
    while not any(a is outer for a in ancestors(node)):
        if not isinstance(outer, (ast.If, ast.With, ast.AsyncWith)) or (isinstance(outer, ast.If) and not outer.orelse):
            return False
        outer = parent_of(outer)
    return True


def _is_harmless(script: Script, node: ast.expr) -> bool:
    """Whether this use can neither change the tensor nor give it another name."""
    parent = parent_of(node)
    if isinstance(parent, ast.Attribute):
        call = parent_of(parent)
        if isinstance(call, ast.Call) and call.func is parent:
            if is_in_place(parent.attr, flags=True):
                return False
            return not may_share(parent.attr) or _is_harmless(script, call)
        return isinstance(parent.ctx, ast.Load) and (not may_share(parent.attr) or _is_harmless(script, parent))
    if isinstance(parent, ast.keyword):
        if parent.arg == "out":
            return False
        parent = parent_of(parent)
    if isinstance(parent, ast.Call):
        callees = script.values(parent.func)
        return bool(callees) and all(_only_looks(t) for t in callees)
    return isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.FormattedValue, ast.Expr, ast.If, ast.Assert))


def _only_looks(callee: Thing) -> bool:
    """A call that leaves its arguments as they are: of torch (but collectives), of Python, of a library's object."""
    if isinstance(callee, Ref):
        root = callee.name.split(".")[0]
        pure = root == "torch" and not callee.name.startswith("torch.distributed") and not is_in_place(callee.name, flags=True)
        return pure or root in ("builtins", "math", "numpy", "wandb", "logging") or callee.name == "apex.amp.scale_loss"
    return isinstance(callee, Ext) or (isinstance(callee, Method) and isinstance(callee.this, (Ext, Tensor)))


def is_scalar(script: Script, expr: ast.expr, depth: int) -> bool:
    """Whether an expression is certainly a tensor without dimensions, or with one of length 1: a loss, a mean, arithmetic with such."""
    found = script.values(expr)
    if found and all(isinstance(t, Tensor) and t.rank == "0d" for t in found) and not script.unread:
        return True
    if isinstance(expr, ast.BinOp):
        parts = [p for p in (expr.left, expr.right) if any(isinstance(t, Tensor) for t in script.values(p))]
        return all(is_scalar(script, p, depth) for p in parts)
    if isinstance(expr, ast.UnaryOp):
        return is_scalar(script, expr.operand, depth)
    if isinstance(expr, ast.Call):
        return _calls_scalar(script, expr, depth)
    if isinstance(expr, ast.Name) and depth < 5:
        made = reaching(expr)
        return bool(made) and all(_makes_scalar(script, n, statement_of(n), depth + 1) for n in made)
    return False


def reaching(name: ast.Name) -> list[ast.Name]:
    """The assignments that may have given a variable the value it has at ``name``."""
    stores = sorted((n for n in mentions(function_of(name), name.id) if isinstance(n.ctx, ast.Store)), key=position)
    before = [n for n in stores if position(n) < position(name)]
    loop = loop_of(name)
    for k in range(len(before) - 1, -1, -1):
        plain = not isinstance(parent_of(before[k]), ast.AugAssign)
        if plain and any(a is parent_of(statement_of(before[k])) for a in ancestors(name)):
            if loop is None or within(before[k], loop):
                return before[k:]
    return stores


def _makes_scalar(script: Script, target: ast.Name, statement: ast.stmt, depth: int) -> bool:
    if isinstance(statement, ast.AugAssign):
        return not any(isinstance(t, Tensor) for t in script.values(statement.value)) or is_scalar(script, statement.value, depth)
    if not isinstance(statement, ast.Assign):
        return False
    if not script.reached(statement.value):
        return True
    if any(t is target for t in statement.targets):
        return not any(isinstance(t, Tensor) for t in script.values(statement.value)) or is_scalar(script, statement.value, depth)
    return False


def _calls_scalar(script: Script, call: ast.Call, depth: int) -> bool:
    func = call.func
    plain = not call.keywords and not any(isinstance(a, ast.Starred) for a in call.args)
    if isinstance(func, ast.Attribute) and any(isinstance(t, Tensor) for t in script.values(func.value)):
        if func.attr in ("mean", "sum", "max", "min") and plain and not call.args:
            return True
        same = ("detach", "clone", "float", "double", "cpu", "to", "abs", "sqrt", "exp", "log")
        return func.attr in same and is_scalar(script, func.value, depth)
    for thing in script.values(func):
        if is_loss(thing) or (isinstance(thing, Ref) and script.log.at("loss", call) is not None):
            if not all(t.loss for t in script.values(call) if isinstance(t, Tensor)):
                return False
        elif isinstance(thing, Ref) and thing.name in ("torch.mean", "torch.sum", "torch.max", "torch.min"):
            if not plain or len(call.args) != 1:
                return False
        elif functions := code_of(thing):
            if depth >= 4 or not all(_returns_scalar(script, f, depth + 1) for f in functions):
                return False
        else:
            return False
    return bool(script.values(func))


def _returns_scalar(script: Script, func: Func, depth: int) -> bool:
    results = [n for n in ast.walk(func.node) if isinstance(n, ast.Return) and function_of(n) is func.node]
    return bool(results) and all(n.value is not None and is_scalar(script, n.value, depth) for n in results)


def by_statement(found: list[Read]) -> list[tuple[ast.stmt, list[Read]]]:
    """The reads of each statement."""
    groups: dict[int, tuple[ast.stmt, list[Read]]] = {}
    for read in found:
        groups.setdefault(id(read.statement), (read.statement, []))[1].append(read)
    return list(groups.values())


def gives_the_same(script: Script, expr: ast.expr) -> bool:
    """Whether an expression gives the same when it is computed twice: nothing in it draws numbers, or takes the next of something."""
    for node in ast.walk(expr):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield)):
            return False
        if isinstance(node, ast.Call):
            of = script.values(node.func.value) if isinstance(node.func, ast.Attribute) else frozenset()
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            tensors = bool(of) and all(isinstance(t, Tensor) for t in of) and not is_in_place(name, flags=True) and not draws(name)
            if not tensors and name not in ("len", "size", "numel", "float", "int"):
                return False
    return True
