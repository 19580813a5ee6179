"""Statements that may as well run behind a later one of the same block.

``log["loss"] = loss.item()``, ``writer.add_scalar("loss", loss.item(), step)``, ``total += n``:
each only puts numbers away, or shows them. It may wait where nothing on the way looks at what it
fills or shows anything itself, and nothing changes what it computes with.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, field

from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.effects import Effects
from autofast.flow.loops import loop_of
from autofast.flow.memory import Memory
from autofast.flow.positions import block, index
from autofast.flow.program import Flow
from autofast.flow.scopes import declared, loaded_in, mentions, stored_in
from autofast.model.calls import call_of, is_method, root_of
from autofast.model.events import CallFrame
from autofast.model.kinds import is_loss
from autofast.model.script import Script
from autofast.model.source import function_of, nodes_in, parent_of, walk
from autofast.model.syntax import COMPREHENSIONS, VARIABLES, is_read
from autofast.model.values import (
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
    certainly,
)
from autofast.ops import draws, is_in_place, op
from autofast.techniques.syncs.freshness import is_fresh, writes
from autofast.techniques.syncs.handlers import catchers
from autofast.techniques.syncs.sinks import not_a_keeper

PLAIN = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Dict, ast.List, ast.Tuple,
    ast.JoinedStr, ast.FormattedValue, ast.Call, ast.keyword, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip
PURE = frozenset(
    f"builtins.{n}" for n in "float int round abs min max sum pow str len bool dict".split()
)
TORCH = frozenset(
    "device dtype no_grad enable_grad is_tensor is_grad_enabled manual_seed get_rng_state save load Size Generator".split()
)
NUMPY_WRITES = frozenset(
    "copyto put put_along_axis place putmask fill_diagonal random.shuffle".split()
)  # to an argument
QUIET = PURE | set(
    "builtins.print builtins.isinstance builtins.range builtins.enumerate builtins.zip".split()
)
HELD = (Dict, Seq, Inst)
SHOWN = frozenset(  # methods of loggers, writers and progress bars
    "add_scalar add_scalars set_postfix set_postfix_str set_description set_description_str debug info warning log scalar_summary".split()
)
FILLS = frozenset({"update", "append", "setdefault"})
LOOKS_AT = frozenset(f"builtins.{n}" for n in ("enumerate", "zip", "isinstance"))
LOOKS = frozenset({"items", "values", "keys", "get", "format", "join"})
PARTS = (*PLAIN, *COMPREHENSIONS, ast.comprehension, ast.Starred, ast.boolop, ast.BoolOp)
SILENT = ("torch.", "math.", "numpy.", "builtins.", "apex.", "accelerate.", "time.", "copy.")
SPEAKS = ("torch.utils.tensorboard.", "builtins.print", "builtins.input", "builtins.exec")


@dataclass(eq=False)
class Waiting:
    """What statements that wait need, and do.

    Attributes:
        names: the variables that they read; ``bound``: those that they set.
        looked: the dicts, lists and objects that they look at; ``filled``: those that they change.
        attributes: of objects, that they ask for.
        memory: where the tensors come from that something may write to (``Memory.sources``).
        loose: they take tensors out of something, so that any write may be to one of them.
        tied: one may be a parameter, or a view of one, which an update changes.
        shows: something that they do is seen outside of the program.
    """

    script: Script
    names: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    looked: set[Thing] = field(default_factory=set)
    filled: set[Thing] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    memory: set[int] = field(default_factory=set)
    loose: bool = False
    tied: bool = False
    shows: bool = False

    # ---------------------------------------------------------------------- what they are
    def add(self, statement: ast.stmt) -> bool:
        """Takes a statement in; False where it is none that may wait."""
        own = Waiting(self.script)
        if not own._take(statement, frozenset()) or loaded_in(statement) & self.script.analysis(
            _rebound
        ):
            return False
        self.names |= loaded_in(statement)
        self.bound |= stored_in(statement)
        for fact in ("looked", "filled", "attributes", "memory", "loose", "tied", "shows"):
            setattr(self, fact, getattr(self, fact) | getattr(own, fact))
        return True

    def _take(self, statement: ast.stmt, local: frozenset[str]) -> bool:
        match statement:
            case ast.Expr(value=ast.Call() as call):
                return self._acts(call, local)
            case ast.Assign(targets=[target], value=value):
                return self._gets(target, local) and self._is_pure(value, local)
            case ast.AugAssign(target=target, value=value):
                plain = isinstance(target, ast.Subscript) or certainly(
                    self.script.values(target), Num, Const
                )
                return plain and self._gets(target, local) and self._is_pure(value, local)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._is_pure(test, local) and all(
                    self._take(s, local) for s in (*body, *orelse)
                )
            case ast.For(target=target, iter=over, body=body, orelse=[]):
                inner = local | stored_in(target)
                return self._is_pure(over, local) and all(self._take(s, inner) for s in body)
        return False

    def _gets(self, target: ast.expr, local: frozenset[str]) -> bool:
        match target:
            case ast.Name():
                scope = function_of(target)
                return target.id not in declared(scope) and all(
                    function_of(n) is scope for n in mentions(scope, target.id)
                )
            case ast.Tuple(elts=parts):
                return all(isinstance(p, ast.Name) and self._gets(p, local) for p in parts)
            case ast.Subscript(value=base, slice=key):
                return self._fills(base) and self._is_pure(key, local) and self._reads(base, local)
        return False

    def _fills(self, base: ast.expr) -> bool:
        found = self.script.values(base)
        self.filled |= found
        return certainly(found, Dict, Seq)

    def _acts(self, call: ast.Call, local: frozenset[str]) -> bool:
        """A call that fills something, or shows something."""
        func = call.func
        given = [*call.args, *(k.value for k in call.keywords)]
        if not all(self._is_pure(a, local) for a in given):
            return False
        found = self.script.values(func)
        if any(isinstance(t, Ref) for t in found):
            self.shows = True
            return all(
                isinstance(t, Ref)
                and (t.name in ("builtins.print", "wandb.log") or t.name.startswith("logging."))
                for t in found
            )
        if not isinstance(func, ast.Attribute):
            return False
        held = self.script.values(func.value)
        if func.attr in FILLS and certainly(held, Dict, Seq):
            return self._fills(func.value) and self._reads(func.value, local)
        if certainly(held, Inst) and not not_a_keeper(self.script, func):
            self.filled |= held
            return self._reads(func.value, local)
        outside = not any(isinstance(t, (*HELD, Tensor, Func)) for t in held)
        if func.attr in SHOWN and outside:
            self.shows = True
            return self._is_reference(func.value, local)
        return False

    # ---------------------------------------------------------------------- what they compute
    def _is_pure(self, expr: ast.expr, local: frozenset[str]) -> bool:
        local |= {n for c in nodes_in(expr, ast.comprehension) for n in stored_in(c.target)}
        for node in walk(expr):
            if not isinstance(node, PARTS):
                return False
            if isinstance(node, ast.Call) and not self._computes(node):
                return False
        asked = [n for n in nodes_in(expr, ast.expr) if isinstance(n, VARIABLES) and is_read(n)]
        return all(self._reads(n, local) for n in asked if call_of(n) is None)

    def _computes(self, call: ast.Call) -> bool:
        if any(self.script.log.at(kind, call) is not None for kind in ("sync", "loss")):
            return True
        if isinstance(call.func, ast.Attribute):
            of = self.script.values(call.func.value)
            if certainly(of, Tensor):
                name = call.func.attr
                return not is_in_place(name, flags=True) and not draws(name)
            if call.func.attr in LOOKS and certainly(of, Dict, Const):
                return True
        found = self.script.values(call.func)
        if writes(self.script, call):
            return False
        return bool(found) and all(
            is_loss(t) or (isinstance(t, Ref) and _only_computes(t.name)) for t in found
        )

    def _reads(self, node: ast.expr, local: frozenset[str]) -> bool:
        """Whether it is known well enough what a name or attribute stands for."""
        found = self.script.values(node)
        tensors = [t for t in found if isinstance(t, Tensor)]
        if isinstance(node, ast.Attribute):
            if certainly(self.script.values(node.value), Tensor):
                return node.attr in ("data", "shape", "dtype", "device")
            if any(isinstance(t, Ext) for t in self.script.values(node.value)):
                return False  # which its methods may change
            self.attributes.add(node.attr)
        elif isinstance(node, ast.Name) and node.id in local:
            self.loose |= bool(tensors)
            return not any(t.param for t in tensors)
        if _is_base(node) and not tensors:  # what is asked of it counts
            return True
        self.looked |= {t for t in found if isinstance(t, HELD)}
        if tensors and not is_fresh(self.script, node):
            made = all(t.loss or t.models or t.batch or t.rank == "0d" for t in tensors)
            self.tied |= not made or any(t.param for t in tensors) or not isinstance(node, ast.Name)
            self.loose |= not isinstance(node, ast.Name)
            self.memory |= self.script.analysis(Memory).sources(node)
        return all(
            isinstance(t, (Num, Const, Ref, Func, Dict, Seq, Method, Tensor))
            or (isinstance(t, Ext) and t.name == "torch.device")
            for t in found
        ) and bool(found)

    def _is_reference(self, node: ast.expr, local: frozenset[str]) -> bool:
        """A name or attribute by which something of a library is found."""
        if not isinstance(node, VARIABLES):
            return False
        self.attributes |= {n.attr for n in nodes_in(node, ast.Attribute)}
        return isinstance(root_of(node, ast.Attribute), ast.Name)

    # ---------------------------------------------------------------------- what they pass
    def passes(self, over: ast.AST) -> bool:
        """Whether they may as well run behind ``over``, a statement that follows them."""
        if self.names & stored_in(over) or self.bound & (loaded_in(over) | stored_in(over)):
            return False
        if any(isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await)) for n in walk(over)):
            return False
        entered = self._entered(over)
        if self.tied and (entered or works(self.script, over)):
            return False
        if self.shows and not self._is_silent(over, entered):
            return False
        return all(self._leaves(n, direct=True) for n in walk(over)) and all(
            self._leaves(n, direct=False) for f in entered for n in walk(f)
        )

    def _entered(self, over: ast.AST) -> list[Function]:
        """The functions that a statement runs."""
        calls = self.script.analysis(CallGraph)
        found = {id(g): g for n in walk(over) for f in calls.entered(n) for g in calls.runs(f)}
        return list(found.values())

    def _leaves(self, node: ast.AST, direct: bool) -> bool:
        """Whether a node changes nothing that they need, and looks at nothing that they change."""
        values = self.script.values
        if isinstance(node, ast.expr) and self.filled & values(node):
            return False
        if isinstance(node, ast.Call) and direct and self._gets_tensor(node):
            return False
        for write in self.script.analysis(Effects).of(node):
            if write.base is None:
                continue
            if write.name in self.attributes or write.computed:
                return False
            if values(write.base) & self.looked:
                return False
            if direct and self._is_ours(write.base):
                return False
        return True

    def _is_ours(self, base: ast.expr) -> bool:
        """Whether what is written to may be a tensor that they read."""
        found = self.script.values(base)
        tensors = [t for t in found if isinstance(t, Tensor) and (self.tied or not t.param)]
        if not tensors and found:
            return False
        return (
            self.loose
            or self.tied
            or bool(self.memory & self.script.analysis(Memory).sources(base))
        )

    def _gets_tensor(self, call: ast.Call) -> bool:
        """Whether a call that may write to what it is given gets what they read."""
        found = self.script.values(call.func)
        if _leaves_arguments(self.script, call):
            return False
        if found and all(_is_library_object(t) for t in found) and not writes(self.script, call):
            return False
        given = [*call.args, *(k.value for k in call.keywords)]
        names = [n for a in given for n in nodes_in(a, ast.Name)]
        return any(self.script.values(n) & self.looked or self._is_ours(n) for n in names)

    def _is_silent(self, over: ast.AST, entered: list[Function]) -> bool:
        """Whether nothing that a statement runs can be seen outside of the program."""
        calls = self.script.analysis(CallGraph)
        return all(
            (calls.callees(c) and not calls.may_run_others(c)) or self._is_quiet(c)
            for part in (over, *entered)
            for c in nodes_in(part, ast.Call)
        )

    def _is_quiet(self, call: ast.Call) -> bool:
        found = self.script.values(call.func)
        if is_method(call) and certainly(self.script.values(call.func.value), Tensor, Dict, Seq):
            return True
        names = [_name(t) for t in found]
        return bool(names) and all(n.startswith(SILENT) and not n.startswith(SPEAKS) for n in names)


def _leaves_arguments(script: Script, call: ast.Call) -> bool:
    """Whether a call changes nothing that is there."""
    if script.log.at("sync", call) is not None:
        return True
    if writes(script, call):
        return False
    of = script.values(call.func.value) if isinstance(call.func, ast.Attribute) else frozenset()
    if of and all(
        isinstance(t, Tensor) or (isinstance(t, Const) and isinstance(t.value, str)) for t in of
    ):
        return not is_in_place(call.func.attr, flags=True)  # type: ignore[attr-defined]
    found = script.values(call.func)
    return bool(found) and all(isinstance(t, Ref) and _leaves_all(t.name) for t in found)


def _leaves_all(name: str) -> bool:
    """Whether a function that is none of torch's writing operations changes no argument."""
    root, _, rest = name.partition(".")
    if root == "torch":
        return op(name) is not None or rest.startswith("cuda.") or rest in TORCH
    return name in QUIET or (
        root in ("math", "time", "numpy", "logging")
        and name.removeprefix("numpy.") not in NUMPY_WRITES
    )


def may_run_at(
    script: Script, statement: ast.stmt, to: ast.stmt, with_it: Collection[int] = ()
) -> bool:
    """Whether a statement may as well run right before a later one of its block (or in its body).

    ``with_it`` are the ids of statements that move there, too.
    """
    here, waiting = block(statement), Waiting(script)
    between = here[index(here, statement) + 1 : index(here, to)]
    return (
        waiting.add(statement)
        and next(catchers(script, statement, loop_of(statement)), None) is None
        and all(waiting.passes(s) for s in between if id(s) not in with_it)
        and (not isinstance(to, ast.If) or waiting.passes(to.test))
        and script.analysis(Flow).graph(to).postdominates(to, statement)
    )


def _only_computes(name: str) -> bool:
    if name.startswith("torch."):
        return op(name) is not None and not draws(name)
    return name in PURE or name.startswith("math.") or name in LOOKS_AT


def _is_library_object(thing: Thing) -> bool:
    return isinstance(thing, Ext) or (isinstance(thing, Method) and isinstance(thing.this, Ext))


def works(script: Script, part: ast.AST) -> bool:
    """Whether a statement starts a forward or backward pass, or an update."""
    working = script.analysis(_working)
    return any(id(n) in working for n in walk(part))


def _working(script: Script) -> set[int]:
    sites = script.log.of("forward", ".backward", ".step")
    calls = {id(f.node) for s in sites for o in s for f in o.stack if isinstance(f, CallFrame)}
    return calls | {id(s.node) for s in sites}


def _rebound(script: Script) -> set[str]:
    """The variables that functions set which are not theirs."""
    stated = (n for n in script.nodes if isinstance(n, (ast.Global, ast.Nonlocal)))
    return {name for n in stated for name in n.names}


def _name(thing: Thing) -> str:
    if isinstance(thing, Method):
        return _name(thing.this) + "."
    return thing.name if isinstance(thing, (Ref, Ext)) else ""


def _is_base(node: ast.expr) -> bool:
    """Whether only an attribute of it is asked for, or a method called."""
    parent = parent_of(node)
    return isinstance(parent, ast.Attribute) and parent.value is node
