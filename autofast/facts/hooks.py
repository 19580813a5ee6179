"""Functions that torch runs on what a pass, or a backward, gives: hooks of modules and tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.positions import common_frames, happens_in, nodes_of
from autofast.flow.program import graph_of
from autofast.flow.scopes import parameters
from autofast.model.calls import call_of, names_in, short_name
from autofast.model.contents import members, with_contents
from autofast.model.events import LoopFrame, Occurrence
from autofast.model.kinds import is_module
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ancestors, function_of, nodes_in, statement_of, within
from autofast.model.syntax import LOOPS, is_attribute, is_read
from autofast.model.values import Bound, Func, Tensor, Thing, ordered

# Of modules, which give themselves first; of all modules.
FORWARD = wordset("""register_forward_hook register_forward_pre_hook register_module_forward_hook
    register_module_forward_pre_hook""")
BACKWARD = wordset("""register_backward_hook register_full_backward_hook register_full_backward_pre_hook
    register_module_backward_hook register_module_full_backward_hook
    register_module_full_backward_pre_hook""")
# Of tensors, and of the nodes of a graph. Gradients of parameters have their own type.
OF_TENSORS = wordset("register_hook register_prehook register_multi_grad_hook")
NAMES = FORWARD | BACKWARD | OF_TENSORS
DIRECT = wordset("_forward_hooks _forward_pre_hooks _backward_hooks _backward_pre_hooks")


@dataclass(frozen=True)
class Hook:
    """``functions`` are those of the project that it runs; ``given`` is what was registered."""

    call: ast.Call
    given: ast.expr
    functions: tuple[Callee, ...]

    @property
    def name(self) -> str:
        return short_name(self.call.func)

    @property
    def is_forward(self) -> bool:
        """Whether it runs within the pass, and not in the backward."""
        return self.name in FORWARD

    @property
    def tensors(self) -> Iterator[ast.arg]:
        """The parameters of the project's functions that are given tensors."""
        for code in self.functions:
            kept = len(code.kept.positional) if code.kept is not None else 0
            first = int(code.is_bound) + kept + (self.name not in OF_TENSORS)
            spec = code.function.args
            defaults = {*spec.kwonlyargs, *spec.args[len(spec.args) - len(spec.defaults) :]}
            yield from (p for p in parameters(code.function)[first:] if p not in defaults)


class Hooks:
    """``script.analysis(Hooks)``: ``found`` are those of the script; ``odd`` is where it may set
    one in another way than by a call of the method.
    """

    def __init__(self, script: Script):
        self.script, self.calls = script, script.analysis(CallGraph)
        self.found = [h for c in script.each(ast.Call) for h in self._of(c)]
        self.odd = next(filter(self._is_odd, script.nodes), None)

    def _is_odd(self, node: ast.AST) -> bool:
        """``set_it = layer.register_forward_hook``, ``layer._forward_hooks[0] = f``"""
        if isinstance(node, ast.Attribute):
            return node.attr in DIRECT or (
                node.attr in NAMES
                and call_of(node) is None
                and is_read(node)
                and not self.script.must_be(node, Bound)
            )
        return isinstance(node, ast.Constant) and node.value in NAMES

    def _of(self, call: ast.Call) -> Iterator[Hook]:
        name, script = short_name(call.func), self.script
        if name not in NAMES or not script.reached(call):
            return
        if script.must_be(call.func, Bound, Func) or self._is_dead(call):
            return
        on = script.values(call.func.value) if isinstance(call.func, ast.Attribute) else frozenset()
        if surely(isinstance(t, Tensor) and t.param for t in on):
            return
        place = int(name == "register_multi_grad_hook")
        named = [k.value for k in call.keywords if k.arg in ("hook", "fn")]
        for given in [*call.args[place : place + 1], *named][:1]:
            code = [c for t in ordered(script.values(given)) for c in code_of(t)]
            yield Hook(call, given, tuple(code))

    def _is_dead(self, call: ast.Call) -> bool:
        """Whether it stands in functions that nothing runs."""
        around = self.calls.running([function_of(call)])
        tops = [f for f in around if isinstance(f, ast.Module) or not self.calls.entries(f)]
        return surely(not isinstance(f, ast.Module) and self.calls.is_unused(f) for f in tops)

    def during(self, statements: Iterable[ast.AST], models: Iterable[Model]) -> list[Hook]:
        """Those that may run in passes of these models that stand in ``statements``, or in a
        backward of them.
        """
        statements = list(statements)
        here = nodes_of(statements)
        forwards = ((s.node, o) for s in self.script.log.of("forward") for o in s)
        passes = [o for node, o in forwards if happens_in(o, node, here)]
        parts = {t for m in models for t in _parts(m)}
        return [
            h for h in self.found if self._lives(h, statements, passes) and self._is_of(h, parts)
        ]

    def _is_of(self, hook: Hook, parts: set[Thing]) -> bool:
        """Whether what it is set on may be one of these modules, or what they give."""
        func = hook.call.func
        on = self.script.values(func.value) if isinstance(func, ast.Attribute) else frozenset()
        others = {t for m in self.script.models for t in _parts(m)} - parts
        return not surely(is_module(t) and t in others for t in on)

    def _lives(self, hook: Hook, statements: list[ast.AST], passes: list[Occurrence]) -> bool:
        """Whether it may be set when one of the passes runs: not behind all of them, and not taken
        away again by the function that sets it, which runs none of them.
        """
        mine = [o for (_, n), s in self.script.log.each() if n is hook.call for o in s]
        if mine and not any(_runs_behind(p, o) for p in passes for o in mine):
            return False
        home = function_of(hook.call)
        if isinstance(home, ast.Module) or not self._is_removed(hook.call, home):
            return True
        return any(within(s, f) for s in statements for f in self.calls.runs(home))

    def _is_removed(self, call: ast.Call, home: ast.AST) -> bool:
        """Whether ``remove()`` runs behind it, on every way; also of all that a list holds."""
        graph, statement = graph_of(self.script, call), statement_of(call)
        for node in nodes_in(home, ast.Call):
            if is_attribute(node.func, "remove") and not node.args and function_of(node) is home:
                loops = (n for n in ancestors(node) if isinstance(n, LOOPS))
                if any(graph.postdominates(n, statement) for n in (statement_of(node), *loops)):
                    return True
        return False


def _parts(model: Model) -> Iterator[Thing]:
    todo: list[Thing] = [model.thing]
    return with_contents(todo, members)


def _runs_behind(later: Occurrence, first: Occurrence) -> bool:
    common = later.stack[: common_frames(later.stack, first.stack)]
    return later.order > first.order or any(isinstance(f, LoopFrame) for f in common)


def only_scales(script: Script, hook: ast.expr) -> bool:
    """Whether code that is given a gradient only gives it back multiplied by something else: then
    it is the same whether gradients are averaged before or after it.
    """
    code = [c for t in script.values(hook) for c in code_of(t)]
    return bool(code) and all(_is_multiple(c) for c in code)


def _is_multiple(code: Callee) -> bool:
    names = [p.arg for p in parameters(code.function)[int(code.is_bound) :]]
    match code.function.body:
        case [ast.Return(value=ast.expr() as result)]:
            pass
        case ast.expr() as result:
            pass
        case _:
            return False
    return len(names) == 1 and _multiplies(result, names[0])


def _multiplies(expr: ast.AST, name: str) -> bool:
    match expr:
        case ast.Name(id=read):
            return read == name
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _multiplies(inner, name)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            if name not in names_in(right):
                return _multiplies(left, name)
            return (
                isinstance(op, ast.Mult) and name not in names_in(left) and _multiplies(right, name)
            )
    return False
