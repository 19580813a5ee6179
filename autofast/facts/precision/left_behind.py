"""What a pass under autocast leaves behind in 16 bits, for fp32 code to find: in attributes
(``self.feature = x``), lists and dicts, global variables, and in what hooks get.

Code under autocast takes any dtype; all other code is asked by what it does with the value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.forwards import evaluation_regions, training_regions
from autofast.facts.hooks import Hook, Hooks
from autofast.facts.precision.activations import holds_output, is_activation
from autofast.facts.precision.code import Code
from autofast.facts.precision.half_values import FACTS, IN_TORCH, LOOKS, NUMBERS, Half
from autofast.flow.callgraph import Function
from autofast.flow.defuse import bound_to
from autofast.flow.holders import Holders
from autofast.flow.memory import Memory
from autofast.flow.positions import happens_in, nodes_of
from autofast.flow.program import graph_of
from autofast.flow.scopes import Variable, own_nodes, owner, scope_of, variables_of
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, Verdict, first_reason
from autofast.model.calls import arguments_of, is_call_of, is_method, literal_of
from autofast.model.contents import attributes, with_contents
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import certainly, of_kind, surely, wordset
from autofast.model.source import Nodes, at, function_of, parent_of, source_of, statement_of
from autofast.model.syntax import SEQUENCES, VARIABLES, is_attribute, is_read, is_stored
from autofast.model.values import (
    COLLECTIONS,
    Cls,
    Const,
    Func,
    Inst,
    Method,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    are_numbers,
    const,
)
from autofast.ops import autocast

FILLS = wordset("append extend insert update setdefault appendleft extendleft add put __setitem__")
EMPTIES = wordset("clear remove reverse sort discard empty qsize")
GIVES = wordset("pop popleft popitem values items keys get copy setdefault")
CASTS = wordset("float double int long bool byte item tolist argmax size dim")
OF_ARRAYS = ("numpy.", "scipy.", "sklearn.", "matplotlib.", "PIL.", "cv2.", "pandas.")
# What is read off a tensor in few digits: norms, means, bounds, for a log.
SUMMARIES = wordset("norm mean sum std var amax amin median abs numel count_nonzero square")
SHOWS = LOOKS | wordset("print str repr format", "builtins.")
TO_NUMPY = wordset("numpy __array__ tolist")
# What gives a tensor of the type that it is given one of, with numbers alone.
KEEPING = wordset("""clamp clamp_ clamp_min clamp_max clip clone contiguous detach neg abs nan_to_num sign
    mul mul_ div div_ flip view reshape squeeze unsqueeze zeros_like type_as view_as""")
ANY = "*"  # attributes: getattr(x, name), vars(x), x.__dict__
STEPS = 3  # calls that are followed upwards
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


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
        isinstance(o.this, Inst) and o.this.cls.node in classes and not happens_in(o, s.node, inside)
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
        super().__init__(code.script, code.here, code.target or "cuda", code.logits)
        self.code = code
        others = (p for p in self.script.analysis(_Regions).parts if not code.here & p)
        self.around = code.here.union(*others)
        self.inner = nodes_of(c for m in code.models for c in m.classes)

    def reasons(self) -> Iterator[str]:
        for place in self.places():
            if why := self._is_lost(place):
                yield why
            for read in self.read_from(place):
                if read in self.inner and self._is_entered(read):
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
        reads = self.read_from(place)
        return self._is_lost(place) or first_reason(
            self.follow(n, self._is_entered(n)) for n in reads
        )

    def _is_lost(self, place: ast.expr) -> str:
        """Why who reads a list or dict is not known: a parameter, and nothing seen gives it."""
        if parts := set_by(self.script, place):
            named = isinstance(literal_of(parts[1]), str)
            return "" if named else f"{at(place)} keeps 16-bit tensors under a name that is not known"
        if is_attribute(place) and self._is_buffer(place):
            return f"`{ast.unparse(place)}` is a buffer, and would be saved in 16 bits ({at(place)}): give it .float()"
        known = is_stored(place) or any_of(self.script.values(place), *COLLECTIONS)
        for base in self._bases(place):
            given = [d for d in self.flow.reaching(base) if d.is_parameter]
            is_lost = any(not self.calls.gives(d) for d in given) and not is_stored(place)
            is_odd = not isinstance(base, VARIABLES) and not known
            if is_lost or is_odd or is_attribute(base, "__dict__"):
                return f"`{ast.unparse(base)}` keeps 16-bit tensors on {at(base)}, and who reads them is not known"
        return ""

    def carried(self) -> str:
        """Where a pass in fp32 would go on with what one under autocast has left."""
        for place in self.places():
            for read in filter(self._is_entered, self.read_from(place)):
                if not self._is_stored_above(read, STEPS) and (why := self.follow(read, False)):
                    text = source_of(read).segment(read)
                    return f"`{text}` is left by a pass in 16 bits, another one is in fp32, and {why}: keep it as .float()"
        return ""

    def _is_stored_above(self, read: ast.expr, deeper: int) -> bool:
        """Whether the same pass has stored it, here or in the functions that call this one."""
        return self._is_put_above(ast.unparse(read), read, deeper)

    def _is_put_above(self, text: str, node: ast.AST, deeper: int) -> bool:
        function = function_of(node)
        puts = [n for n in own_nodes(function) if is_stored(n) and ast.unparse(n) == text]
        graph = graph_of(self.script, node)
        above = [s for s in map(statement_of, puts) if s is not statement_of(node)]
        if any(graph.dominates(s, node) for s in above):
            return True
        calls = self.calls.entries(function) if isinstance(function, Function) and deeper else []
        return surely(self._is_put_above(text, c, deeper - 1) for c in calls)

    def _is_buffer(self, place: ast.Attribute) -> bool:
        owners = self.script.values(place.value)
        return is_stored(place) and any(
            o.this in owners and const(o.args.get(0, "name")) == place.attr
            for site in self.script.methods("register_buffer")
            for o in site
        )

    # -------------------------------------------------------------------------------- what is there
    def places(self) -> Iterator[ast.expr]:
        """The attributes, the variables of others, the lists and dicts that get 16-bit values; what
        networks give is asked about where they are called.
        """
        seen: set[str] = set()
        for node in self.code.all:
            for place, value in self._stores(node):
                is_given = node not in self.inner and holds_output(self.script.values(value))
                if is_given or not self._outlives(place):
                    continue
                if self._may_be_half(value, place):
                    key = f"{ast.unparse(place)} {id(function_of(place))}"
                    if key not in seen:
                        seen.add(key)
                        yield place

    def _stores(self, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
        """What a node puts where: the attribute or variable, the list or dict, the ``setattr``."""
        if isinstance(node, (ast.Attribute, ast.Name)) and is_stored(node):
            parent = parent_of(node)
            value = parent.value if isinstance(parent, ast.AugAssign) else bound_to(node)[0]
            if isinstance(value, ast.expr):
                yield node, value
        elif isinstance(node, ast.Subscript) and is_stored(node) and self._may_hold(node.value):
            yield node.value, bound_to(node)[0] or node
        elif is_method(node, *FILLS) and self._may_hold(node.func.value):
            yield from ((node.func.value, given) for given in arguments_of(node))
        elif isinstance(node, ast.expr) and (parts := set_by(self.script, node)):
            yield node, parts[-1]

    def _may_hold(self, expr: ast.expr) -> bool:
        """Whether it may be a list or dict: a tensor takes what it is given in its own type."""
        found = self.script.values(expr)
        is_dict = is_attribute(expr, "__dict__")
        return is_dict or _is_unknown(found) or any_of(found, *COLLECTIONS)

    def _outlives(self, place: ast.expr) -> bool:
        """Whether it is there when the call of the function that it stands in is over."""
        return any(not self._is_own(base) for base in self._bases(place))

    def _is_own(self, base: ast.expr) -> bool:
        """A variable of the function that it stands in, and no parameter."""
        if not isinstance(base, ast.Name) or (variable := variables_of(base).of(base)) is None:
            return False
        given = any(d.is_parameter for d in self.flow.reaching(base))
        return variable.scope is scope_of(base) and not given

    def _bases(self, place: ast.expr) -> list[ast.expr]:
        """The attributes and variables that are, or hold, what is stored to or filled."""
        if is_stored(place) or set_by(self.script, place):
            return [place]
        holders = self.script.analysis(Holders)
        return [e for c in holders.containers(holder_of(place)) for e in (c, holder_of(c))]

    def _may_be_half(self, value: ast.expr, place: ast.expr) -> bool:
        found = self.script.values(value)
        if is_method(value, *CASTS) or self._is_full(value) or self._is_promoted(value, place):
            return False
        if isinstance(value, SEQUENCES):
            return any(self._may_be_half(v, place) for v in value.elts)
        inner = with_contents(found, attributes)
        return any(_is_half(t) or self._is_made_inside(t) for t in inner)

    def _is_made_inside(self, thing: Thing) -> bool:
        """A function that is made under autocast, and has what is there."""
        return isinstance(thing, Func) and function_of(thing.node) in self.code.all

    def _is_promoted(self, value: ast.expr, place: ast.expr) -> bool:
        """``0.9 * self.mean + 0.1 * x`` is fp32 where the attribute was made so."""
        if isinstance(value, ast.BinOp) and isinstance(value.op, ARITHMETIC):
            return any(self._is_promoted(v, place) for v in (value.left, value.right))
        found = self.script.values(value)
        return (
            isinstance(value, ast.Attribute)
            and isinstance(place, ast.Attribute)
            and value.attr == place.attr
            and certainly(found, Tensor)
            and any(t.fresh for t in of_kind(found, Tensor))
            and not any(t.rank == "0d" for t in of_kind(found, Tensor))
        )

    # ------------------------------------------------------------------------------- who reads that
    def read_from(self, place: ast.expr) -> Iterator[ast.expr]:
        """The expressions that read what an attribute, a variable or a container was given."""
        if parts := set_by(self.script, place):
            yield from self._attributes(str(literal_of(parts[1])), self.script.values(parts[0]))
            return
        for base in self._bases(place):
            if isinstance(base, ast.Attribute):
                yield from self._attributes(base.attr, self.script.values(base.value))
            elif isinstance(base, ast.Name) and (variable := variables_of(base).of(base)):
                yield from self._variable(variable)
        yield from self._same_things(self.script.values(place))

    def _attributes(self, name: str, owners: Values) -> Iterator[ast.expr]:
        reads = self.script.analysis(_Reads).attributes
        classes = _classes(owners)
        for node in (*reads.get(name, ()), *reads.get(ANY, ())):
            others = self.script.values(node.value if isinstance(node, ast.Attribute) else node.args[0])
            is_one = others & owners or any(isinstance(t, Inst) and t.cls in classes for t in others)
            is_named = node not in reads.get(ANY, ())
            if is_one or (is_named and (_is_unknown(owners) or _is_unknown(others))):
                yield node

    def _variable(self, variable: Variable) -> Iterator[ast.expr]:
        return (n for n in variables_of(variable.scope).loads(variable) if not self._fills(n))

    def _same_things(self, found: Values) -> Iterator[ast.expr]:
        reads = self.script.analysis(_Reads).collections
        things = (t for t in found if isinstance(t, COLLECTIONS))
        return (n for t in things for n in reads.get(t, ()) if not self._fills(n))

    def _fills(self, read: ast.expr) -> bool:
        """``kept.append(x)`` gives nothing."""
        return is_attribute(parent_of(read), *FILLS, *EMPTIES)

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
                if name in TO_NUMPY and name != "tolist":
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
        if is_method(call, *FILLS) and self._may_hold(call.func.value):
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


def holder_of(expr: ast.expr) -> ast.expr:
    """``kept`` of ``kept["a"]`` and ``kept.setdefault("a", [])``."""
    while isinstance(expr, ast.Subscript) or is_method(expr, *GIVES):
        expr = expr.value if isinstance(expr, ast.Subscript) else expr.func.value
    return expr


class _Regions:
    """``script.analysis(_Regions)``: the statements that have a pass, and what is made of it."""

    def __init__(self, script: Script):
        found = [r for s in script.steps for r in training_regions(script, s)]
        found += [r for e in script.evaluations for r in evaluation_regions(script, e)]
        self.parts = [nodes_of(r.parts) for r in found]


class _Reads:
    """``script.analysis(_Reads)``: what reads attributes, by their names, and lists and dicts."""

    def __init__(self, script: Script):
        self.attributes: dict[str, list[ast.Attribute | ast.Call]] = {}
        self.collections: dict[Thing, list[ast.expr]] = {}
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and is_read(node):
                name = ANY if node.attr == "__dict__" else node.attr
                self.attributes.setdefault(name, []).append(node)
            elif isinstance(node, ast.Call) and script.is_call(node, "builtins.getattr", "builtins.vars") and node.args:
                said = literal_of(node.args[1]) if len(node.args) > 1 else None
                self.attributes.setdefault(str(said or ANY), []).append(node)
            if isinstance(node, (ast.Name, ast.Attribute)) and is_read(node):
                for thing in script.values(node):
                    if isinstance(thing, COLLECTIONS):
                        self.collections.setdefault(thing, []).append(node)


def _is_type(node: ast.AST | None) -> bool:
    """``g.dtype`` in ``x.to(g.dtype)``"""
    return is_attribute(node, "dtype") and is_method(parent_of(node), "to", "type")


def set_by(script: Script, node: ast.AST) -> list[ast.expr]:
    """The object, the name and the value of ``setattr(x, name, value)``; else nothing."""
    if is_method(node, "__setattr__"):
        return [node.func.value, *node.args]
    is_one = isinstance(node, ast.Call) and script.is_call(node, "builtins.setattr")
    return node.args if is_one and len(node.args) == 3 else []  # type: ignore[attr-defined]


def _is_half(thing: Thing) -> bool:
    """Whether a thing may be 16-bit, as what a layer gives; what comes of a batch alone is not."""
    unchanged = isinstance(thing, Tensor) and thing.batch and not (thing.grad or thing.models)
    return not unchanged and is_activation(frozenset({thing}))


def _could_be_half(thing: Thing) -> bool:
    """Whether a thing that is read may be 16-bit, by what is put there unseen, too."""
    if not isinstance(thing, Tensor):
        return True
    return not (thing.loss or thing.dtype == "int" or thing.param == "param")


def _classes(found: Values) -> set[Cls]:
    """The classes that objects are of, as copies of them are."""
    classes = {t.cls for t in of_kind(found, Inst)}
    return classes.union(of_kind(found, Cls))


def _is_unknown(found: Values) -> bool:
    return not found or any(isinstance(t, Unknown) for t in found)
