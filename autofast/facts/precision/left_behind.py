"""What a pass under autocast leaves behind in 16 bits, for fp32 code to find: in attributes
(``self.feature = x``), lists and dicts, global variables, and in what hooks get.

Code under autocast takes any dtype; all other code is asked by what it does with the value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.forwards import evaluation_regions, training_regions
from autofast.facts.hooks import Hook, Hooks
from autofast.facts.precision.code import Code
from autofast.facts.precision.half_values import FACTS, IN_TORCH, LOOKS, NUMBERS, Half
from autofast.facts.precision.left_places import (
    ARITHMETIC,
    EMPTIES,
    FILLS,
    GIVES,
    Places,
)
from autofast.flow.callgraph import Function
from autofast.flow.memory import Memory
from autofast.flow.positions import happens_in, nodes_of
from autofast.flow.program import graph_of
from autofast.flow.scopes import own_nodes, owner
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, Verdict, first_reason
from autofast.model.calls import is_call_of, is_method
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import Nodes, at, function_of, parent_of, source_of, statement_of
from autofast.model.syntax import is_attribute, is_read, is_stored
from autofast.model.values import (
    COLLECTIONS,
    Const,
    Inst,
    Method,
    Ref,
    Tensor,
    Thing,
    are_numbers,
)
from autofast.ops import autocast

OF_ARRAYS = ("numpy.", "scipy.", "sklearn.", "matplotlib.", "PIL.", "cv2.", "pandas.")
# What is read off a tensor in few digits: norms, means, bounds, for a log.
SUMMARIES = wordset("norm mean sum std var amax amin median abs numel count_nonzero square")
SHOWS = LOOKS | wordset("print str repr format", "builtins.")
TO_NUMPY = ("numpy", "__array__")
# What gives a tensor of the type that it is given one of, with numbers alone.
KEEPING = wordset("""clamp clamp_ clamp_min clamp_max clip clone contiguous detach neg abs nan_to_num sign
    mul mul_ div div_ flip view reshape squeeze unsqueeze zeros_like type_as view_as""")
STEPS = 3  # calls that are followed upwards


def left_behind(code: Code) -> str:
    """Where fp32 code would find what was left in 16 bits, or a hook would get it, in words; empty
    where nobody minds.
    """
    return first_reason(Left(code).reasons())


def carried_over(code: Code, inside: Nodes) -> str:
    """Where a pass outside of ``inside``, in fp32, would go on with what one inside has left in 16
    bits, in words; empty where none would.
    """
    classes = {cls for m in code.models for cls in m.classes}
    is_outside = any(
        isinstance(o.this, Inst)
        and o.this.cls.node in classes
        and not happens_in(o, s.node, inside)
        for s in code.script.log.of("forward")
        for o in s
        if o.data["outer"]
    )
    return Left(code).carried() if is_outside else ""


class Left(Half):
    """Follows what code under autocast leaves behind; of a place, it has to know whether it is in a
    function that is called under autocast.
    """

    def __init__(self, code: Code):
        super().__init__(code.script, code.here, code.target or "cuda", code.probabilities)
        self.code = code
        others = (p for p in self.script.analysis(_Regions).parts if not code.here & p)
        self.around = code.here.union(*others)
        self.places = Places(code)

    def reasons(self) -> Iterator[str]:
        for place in self.places.all():
            if why := self.places.lost(place):
                yield why
            for read in self.places.read_from(place):
                if read in self.places.networks and self._is_entered(read):
                    continue  # what is put elsewhere there is asked about on its own
                if why := self.follow(read, self._is_entered(read)):
                    text = source_of(read).segment(read)
                    yield f"`{text}` is left by a pass in 16 bits, and {why}: keep it as .float()"
        if (odd := self.script.analysis(Hooks).odd) is not None:
            yield f"{at(odd)} sets a hook in a way that is not followed, which may get 16-bit tensors"
        for hook in self.code.hooks:
            if why := self._hooked(hook):
                yield f"the hook of {at(hook.call)} would get 16-bit tensors, and {why}"

    def _is_entered(self, node: ast.AST) -> bool:
        return node in self.code.all and node not in self.code.here

    def _read_badly(self, place: ast.expr) -> str:
        reads = self.places.read_from(place)
        return self.places.lost(place) or first_reason(
            self.follow(n, self._is_entered(n)) for n in reads
        )

    def carried(self) -> str:
        """Where a pass in fp32 would go on with what one under autocast has left."""
        for place in self.places.all():
            for read in filter(self._is_entered, self.places.read_from(place)):
                if not self._is_put_above(ast.unparse(read), read, STEPS) and (
                    why := self.follow(read, False)
                ):
                    text = source_of(read).segment(read)
                    return f"`{text}` is left by a pass in 16 bits, another one is in fp32, and {why}: keep it as .float()"
        return ""

    def _is_put_above(self, text: str, node: ast.AST, deeper: int) -> bool:
        """Whether the same pass has stored it, here or in the functions that call this one."""
        function = function_of(node)
        puts = [n for n in own_nodes(function) if is_stored(n) and ast.unparse(n) == text]
        graph = graph_of(self.script, node)
        above = [s for s in map(statement_of, puts) if s is not statement_of(node)]
        if any(graph.dominates(s, node) for s in above):
            return True
        calls = self.calls.entries(function) if isinstance(function, Function) and deeper else []
        return surely(self._is_put_above(text, c, deeper - 1) for c in calls)

    # -------------------------------------------------------------------------------------- one use
    def met(self, expr: ast.expr, context: bool) -> Answer:
        found = self.script.values(expr)
        if found and not any(_could_be_half(t) and not is_module(t) for t in found):
            return Verdict.STOPS
        return Verdict.GOES_ON

    def judge(self, use: Usage, context: bool) -> Answer:
        if isinstance(use.node, ast.Lambda):
            return self._given_back(use.node, use, context)
        if self.inside(use.node, context):
            return self._within(use)
        match use.act:
            case Act.SHOWN:
                return Verdict.STOPS
            case Act.ASKED if is_method(use.result, "backward") or _is_type(use.node):
                return Verdict.STOPS
            case Act.COMPUTED if self._has_numbers(use):
                return Verdict.GOES_ON
            case Act.ASKED if is_method(use.result, *SUMMARIES, *GIVES):
                return Verdict.GOES_ON
            case Act.ASKED if is_method(use.result, *FILLS, *EMPTIES):
                return Verdict.STOPS
        return super().judge(use, context)

    def _within(self, use: Usage) -> Answer:
        """Under autocast: computed with as any other number there."""
        match use.act:
            case Act.ASKED:
                name = use.node.attr  # type: ignore[attr-defined]
                if name in TO_NUMPY:
                    return self.lost(use)
                ends = name in FACTS | NUMBERS or (autocast(name) == "fp32" and self.cuda)
                return Verdict.STOPS if ends else Verdict.GOES_ON
            case Act.TAKEN | Act.CHOSEN | Act.COMPUTED | Act.HELD | Act.BOUND | Act.ADDED:
                return Verdict.GOES_ON
            case Act.LOOPED | Act.RETURNED:
                return Verdict.GOES_ON
            case Act.YIELDED | Act.OTHER:
                return self.lost(use)
        return Verdict.STOPS

    def _has_numbers(self, use: Usage) -> bool:
        """``x * 0.5``"""
        if not isinstance(use.node, ast.BinOp):
            return isinstance(use.node, ast.UnaryOp)
        other = use.node.right if use.node.left is use.expr else use.node.left
        return isinstance(use.node.op, ARITHMETIC) and self._is_number(other)

    def _is_number(self, expr: ast.expr) -> bool:
        """Also in lambdas, which nobody has followed."""
        match expr:
            case ast.Constant():
                return True
            case ast.UnaryOp(operand=inner):
                return self._is_number(inner)
            case ast.Name() if not self.script.values(expr):
                return surely(self._is_number(v) for v in self.flow.values(expr))
            case ast.Attribute() if not self.script.values(expr):
                return self.script.analysis(Memory).begins_as_number(expr)
        return are_numbers(self.script.values(expr))

    def _given(self, use: Usage, context: bool) -> str:
        call = use.node
        assert isinstance(call, ast.Call)
        if is_call_of(call, "print") and not self.script.called(call):
            return "" if owner(call.func) is None else self.lost(use)
        if is_method(call, *FILLS) and self.places.may_hold(call.func.value):
            return self._read_badly(call.func.value)
        return super()._given(use, context)

    def given(self, use: Usage, callee: Thing, context: bool) -> Answer:
        call = use.node
        assert isinstance(call, ast.Call)
        if isinstance(callee, Ref) and callee.name in SHOWS:
            return Verdict.STOPS
        if self.inside(call, context):
            answer = super().given(use, callee, True)
            if isinstance(answer, str) and is_module(callee):
                return Verdict.STOPS
            takes = isinstance(callee, Ref) and not callee.name.startswith(OF_ARRAYS)
            return Verdict.GOES_ON if isinstance(answer, str) and takes else answer
        if isinstance(callee, Ref) and callee.name.startswith(IN_TORCH):
            if last_part(callee.name) in SUMMARIES:
                return Verdict.GOES_ON
        return super().given(use, callee, context)

    def returned(self, use: Usage, context: bool) -> str:
        return self._given_back(function_of(use.node), use, context)

    def _given_back(self, function: ast.AST, use: Usage, context: bool) -> str:
        """What networks return is asked about where they are called, what hooks do on its own."""
        if any(c.function is function for h in self.code.hooks for c in h.functions):
            return ""
        cls = parent_of(function)
        if function in self.code.all and any(cls in m.classes for m in self.script.models):
            return ""
        calls = self.calls.sites(function) if isinstance(function, Function) else []
        found = (self.follow(call, self._is_entered(call)) for call in calls)
        return first_reason(found) if calls else self.lost(use)

    def put(self, target: ast.Subscript, context: bool) -> str:
        if self._is_tensor(target.value) and self.script.values(target.value):
            return super().put(target, context)
        return self._read_badly(target.value)

    def kept(self, target: ast.Attribute, context: bool) -> str:
        return self._read_badly(target)

    def _holds_output(self, read: ast.Name | ast.Attribute) -> bool:
        return is_read(read)

    # ---------------------------------------------------------------------------------------- hooks
    def _hooked(self, hook: Hook) -> str:
        if not hook.functions:
            if is_filling(self.script, hook.given):
                return self._read_badly(hook.given.value)  # type: ignore[attr-defined]
            return f"`{ast.unparse(hook.given)}` is not followed"
        if why := first_reason(self.bind(p, hook.is_forward) for p in hook.tensors):
            return f"{why}: take .float() of them"
        if hook.is_forward:
            return ""
        for function in (c.function for c in hook.functions):
            for result in self.calls.results(function):
                if not self._keeps_type(result, {p.arg for p in hook.tensors}):
                    return f"`{ast.unparse(result)}` may have another type than the gradient that it gets: give .to(grad.dtype)"
        return ""

    def _keeps_type(self, expr: ast.expr, given: set[str]) -> bool:
        """Whether a gradient that a hook gives has the type of the one it got; None is none."""
        if self.script.must_be(expr, Const):
            return True
        match expr:
            case ast.Name(id=name):
                made = self.flow.values(expr)
                return name in given or surely(self._keeps_type(v, given) for v in made)
            case ast.Subscript(value=inner) | ast.UnaryOp(operand=inner) | ast.Starred(value=inner):
                return self._keeps_type(inner, given)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return all(self._keeps_type(p, given) for p in parts)
            case ast.IfExp(body=body, orelse=orelse):
                return self._keeps_type(body, given) and self._keeps_type(orelse, given)
            case ast.BinOp(left=left, right=right) if isinstance(expr.op, ARITHMETIC):
                sides = [e for e in (left, right) if not self._is_number(e)]
                return len(sides) == 1 and self._keeps_type(sides[0], given)
            case ast.Call(args=[of]) if _is_type(of):
                return True
            case ast.Call():
                name, parts = self.script.operation(expr)
                numbers = all(self._is_number(a) for a in parts[1:])
                if last_part(name) in KEEPING and parts and numbers:
                    return self._keeps_type(parts[0], given)
                return self._gives_nothing(expr)
        return False

    def _gives_nothing(self, call: ast.Call) -> bool:
        """``lambda g: got.append(g)``, ``print(g)``"""
        code = self.calls.callees(call)
        results = [r for c in code for r in self.calls.results(c.function)]
        return (
            is_call_of(call, "print")
            or is_method(call, *FILLS, *EMPTIES)
            or (bool(code) and not results)
        )


def is_filling(script: Script, expr: ast.expr) -> bool:
    """``kept.append``, of a list."""
    return surely(
        isinstance(t, Method) and t.name in FILLS and isinstance(t.this, COLLECTIONS)
        for t in script.values(expr)
    )


class _Regions:
    """``script.analysis(_Regions)``: the statements that have a pass, and what is made of it."""

    def __init__(self, script: Script):
        found = [r for s in script.steps for r in training_regions(script, s)]
        found += [r for e in script.evaluations for r in evaluation_regions(script, e)]
        self.parts = [nodes_of(r.parts) for r in found]


def _is_type(node: ast.AST | None) -> bool:
    """``g.dtype`` in ``x.to(g.dtype)``"""
    return is_attribute(node, "dtype") and is_method(parent_of(node), "to", "type")


def _could_be_half(thing: Thing) -> bool:
    """Whether a thing that is read may be 16-bit, by what is put there unseen, too."""
    if not isinstance(thing, Tensor):
        return True
    return not (thing.loss or thing.dtype == "int" or thing.param == "param")
