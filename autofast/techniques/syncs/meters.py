"""Numbers that steps give to average meters of the project, which then get tensors, and count them
when somebody asks (:mod:`.meter_class`).

``losses.update(loss.item(), n)`` makes the host wait in every step. As ``losses.keep(loss.detach(),
n)`` it does not, whoever holds the meter, and ``losses.avg`` is read by ``losses.read().avg``. What
a meter says is at all times what it said before; where nobody asks in 100 steps, it is read once in
these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from autofast.edit.edits import Edit, Rewrite, Wrap
from autofast.facts.copies import several_gpus
from autofast.flow.callgraph import code_of
from autofast.flow.importers import Importers
from autofast.flow.usage import Act, Usage, usage_of
from autofast.model.calls import (
    arguments_of,
    call_of,
    is_call_of,
    is_method,
    is_name,
    variable_name,
)
from autofast.model.contents import with_contents
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import (
    Nodes,
    at,
    first_line,
    function_of,
    parent_of,
    source_of,
    statement_of,
    within,
)
from autofast.model.syntax import DEFS, has_star, is_operation, is_stored
from autofast.model.values import (
    COLLECTIONS,
    Func,
    Inst,
    Thing,
    Unknown,
)
from autofast.rule import Refusal
from autofast.techniques.syncs.kept import kept_template, without_graph
from autofast.techniques.syncs.meter_calls import Counted
from autofast.techniques.syncs.meter_class import MeterClass
from autofast.techniques.syncs.meter_names import check_by_name
from autofast.techniques.syncs.reads import Read, read_template
from autofast.techniques.syncs.sinks import is_number
from autofast.techniques.syncs.step_places import StepPlaces
from autofast.techniques.syncs.steps import InFew, catching_statements, where_shown
from autofast.techniques.syncs.store_uses import holders_of, taker
from autofast.techniques.syncs.stores import Changed
from autofast.techniques.syncs.summable import EXACT, parts_of
from autofast.write.spelling import has_float64, torch_in

HANDED = (
    *(Act.BOUND, Act.HELD, Act.RETURNED, Act.YIELDED, Act.CHOSEN, Act.DROPPED, Act.TARGET),
    *(Act.LOOPED, Act.TESTED),
)
SHOWING = wordset("print str repr format")
TEXTS = ("__str__", "__repr__", "__format__")
BLIND = wordset("len bool isinstance id type super hasattr zip enumerate list tuple dict iter next")
ORDERING = wordset("sorted reversed max min any all sum")  # by keys and methods of the class
SAVING = ("torch.save", "pickle.", "copy.", "joblib.", "dill.", "cloudpickle.", "builtins.vars")


def reads_of(several: list[Counted]) -> list[Read]:
    return list({id(r): r for c in several for r in c.reads}.values())


class Meters:
    """The objects of a class that get numbers from some places."""

    def __init__(self, script: Script, several: list[Counted]):
        self.script, self.several = script, several
        self.cls = several[0].cls
        self.meter = MeterClass(script, self.cls, several[0].method.attr)
        self.objects = frozenset[Thing]().union(*(c.taken for c in several))
        self.places = StepPlaces(script, (r for c in several for r in c.reads))
        self.rounds, self.mixed, self.seen = False, False, set[Thing]()
        self.values, self.edits = set[str](), list[Edit]()

    def unsuited(self) -> tuple[set[Thing], str]:
        """The objects that have to count in every step, and why."""
        found, why = set[Thing](), ""
        for counted in self.several:
            try:
                self.values.add(self._check(counted))
            except Refusal as reason:
                found, why = found | counted.taken, why or str(reason)
        for node in self._looks():
            try:
                self.edits += self._look(node)
            except Refusal as reason:
                mine = self.script.values(node) & self.objects
                found, why = found | mine, why or str(reason)
        return found, why

    def kept(self) -> Changed:
        """What is written where none is unsuited."""
        hows = {c.read.how for c in self.several}
        if len(self.values) != 1 or len(hows) != 1:
            raise Refusal("one place gives it other numbers than another")
        self._check_handed()
        edits = self.edits
        self.several = [c for c in self.several if c.taken & self.seen]
        if not self.several:
            raise Refusal("nothing reads what it comes to: the statement can go")
        mixed = self.mixed or any(c.asserts is not None for c in self.several)
        edits += [e for c in self.several for e in self._edits_of(c)]
        edits += [e for c in {id(c.read): c for c in self.several}.values() for e in self._read(c)]
        edits += self._of_class(read_template(hows.pop()), mixed)
        given = {id(r): r for c in self.several for r in c.given}.values()
        edits += [self._given_tensor(read) for read in given]
        return Changed(reads_of(self.several), edits, self.rounds)

    def _of_class(self, read: str, mixed: bool) -> list[Edit]:
        """The edits of the class."""
        return self.meter.edits(read, self.values.pop(), mixed)

    # ----------------------------------------------------------------- where numbers are given
    def _check(self, counted: Counted) -> str:
        """The parameter that gets the number; raises :class:`Refusal` where more would change."""
        read, call = counted.read, counted.call
        for attempt in (
            a for r in (read, *counted.given) for a in catching_statements(self.script, r.statement)
        ):
            raise Refusal(f"it is tried ({at(attempt)}): an error would show later")
        if read.how == "numpy" or has_star(call.args) or any(k.arg is None for k in call.keywords):
            raise Refusal("what it is given is not known")
        names = [a.arg for a in self.meter.parameters]
        if len(call.args) > len(names):
            raise Refusal("what it is given is not known")
        given = dict(zip(names, call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        for part in given.values():
            if part is not counted.value and not self._is_steady(part):
                raise Refusal(
                    f"`{first_line(part)}` would have to be kept, and may be more than a number"
                )
        self._check_value(counted)
        return next(n for n, part in given.items() if part is counted.value)

    def _is_steady(self, part: ast.expr) -> bool:
        """Whether what is given besides is a number, which nothing changes until it is counted."""
        return is_number(self.script, part) or part in {c.value for c in self.several}

    def _check_value(self, counted: Counted) -> None:
        """Whether the device can compute with the tensor what the host does with its number."""
        value, node = counted.value, counted.read.node
        if value is node or counted.asserts is not None:
            return
        for part in parts_of(value, {node}, (*EXACT, ast.Div)):
            if part is not node and (within(node, part) or not is_number(self.script, part)):
                raise Refusal(f"`{first_line(part)}` may be more than a number")
        divided = [n for n in ast.walk(value) if is_operation(n, ast.Div)]
        if any(within(node, d.right) for d in divided):
            raise Refusal("it is divided by a number of the device")
        self.rounds |= any(within(node, d.left) for d in divided)
        if counted.read.how != "item" or several_gpus(self.script):
            raise Refusal("the device may not compute it")
        self.rounds |= not has_float64(self.script)

    def _given_tensor(self, read: Read) -> Edit:
        """The edit by which a caller gives a tensor, of which a copy is kept."""
        return Rewrite(read.node, without_graph(self.script, read.core), {"core": read.core})

    def _edits_of(self, counted: Counted) -> Iterator[Edit]:
        keep = f"{{of}}.{self.meter.names[0]}"
        yield Rewrite(counted.method, keep, {"of": counted.method.value})

    def _read(self, counted: Counted) -> Iterator[Edit]:
        """The edits by which it is given the tensor."""
        read = counted.read
        kept = kept_template(self.script, read.core)
        if counted.asserts is not None:
            kept = "{core}.detach().clone()"
            torch, imports = torch_in(source_of(read.node))
            tensor = f"{torch}.is_tensor({ast.unparse(read.core)})"
            yield from (Wrap(test, f"{tensor} or {{}}") for test in counted.asserts)
            yield from imports
        elif counted.value is not read.node:
            wide = "double" if has_float64(self.script) else "float"
            kept = f"{without_graph(self.script, read.core)}.{wide}()"
        yield Rewrite(read.node, kept, {"core": read.core})

    # ---------------------------------------------------------------------------- who looks at them
    @cached_property
    def _around(self) -> frozenset[Thing]:
        """What holds a meter, directly or in something else."""
        around = self.script.analysis(holders_of)
        return frozenset(with_contents(self.objects, lambda t: around.get(t, ()))) - self.objects

    def _check_handed(self) -> None:
        """Whether nothing saves the meters, or looks at their attributes unseen."""
        check_by_name(self.script, self.meter, self.objects)
        names, attrs = set[tuple[ast.AST, str]](), self.meter.attrs
        importers = self.script.analysis(Importers)
        for node in (n for n in of_kind(self.script.nodes, ast.expr) if not is_stored(n)):
            found = self.script.values(node)
            if found & (self.objects | self._around):
                self._check_saved(node, found)
                if found & self.objects:
                    names.add((function_of(node), variable_name(node)))
                if usage_of(node).act is Act.RETURNED and found & self.objects:
                    function = function_of(node)
                    if isinstance(function, DEFS) and (user := importers.user(function)):
                        raise Refusal(f"{user} may look at what {function.name}() returns")
        for asked in of_kind(self.script.nodes, ast.Attribute):
            if asked.attr not in attrs or call_of(asked) is not None:
                continue
            unread, of = not self.script.reached(statement_of(asked)), asked.value
            seen = variable_name(of) and (function_of(of), variable_name(of)) in names
            if self.script.may_be(of, Unknown) or (unread and seen):
                raise Refusal("may look at it, too", asked)

    def _check_saved(self, node: ast.expr, found: frozenset[Thing]) -> None:
        call = taker(node)
        if call is None or call.func is node:
            return
        things = self.script.called(call)
        names = self.script.library_functions(call)
        libraries = {n for n in names if not n.startswith("builtins.")}
        if any(n.startswith(SAVING) for n in names):
            raise Refusal("may save it, or copy it", call)
        held = any(isinstance(t, COLLECTIONS) for t in found & self._around) or found & self.objects
        if held and libraries and not all(first_part(n) == "logging" for n in libraries):
            raise Refusal(f"`{first_line(call.func)}` gets it ({at(call)}), and may look at it")
        if held and not things:
            raise Refusal(f"`{first_line(call.func)}` gets it ({at(call)}), and may keep it")

    def _looks(self) -> Iterator[ast.expr]:
        """All places that look at a meter."""
        converted: Nodes = {c.method.value for c in self.several}
        for node in of_kind(self.script.nodes, ast.expr):
            if is_stored(node) or node in converted:
                continue
            found = self.script.values(node)
            if found & self.objects and not self._is_self(node):
                yield node
            elif any(isinstance(t, COLLECTIONS) for t in found & self._around):
                self._check_whole(node)

    def _is_self(self, node: ast.expr) -> bool:
        """``self`` in a method of the class, which reads first."""
        return is_name(node, self.meter.own(function_of(node)))

    def _look(self, node: ast.expr) -> list[Edit]:
        use, wrap = usage_of(node), Wrap(node, f"{{}}.{self.meter.names[1]}()")
        match use.act, use.node:
            case Act.ASKED, ast.Attribute() as asked:
                return self._asks(node, asked, wrap)
            case Act.GIVEN, ast.Call() as call:
                return self._given(node, call, wrap)
            case (Act.SHOWN, _) | (Act.COMPUTED, ast.BinOp(op=ast.Mod())):
                return self._seen(node, wrap, False)
            case act, _ if act in HANDED and not self._is_tested(use):
                return []
            case Act.OTHER, ast.Lambda():  # it gives it
                return []
            case Act.COMPARED, ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
                return []
        raise Refusal(f"what {at(node)} does with `{first_line(node)}` is not understood")

    def _is_tested(self, use: Usage) -> bool:
        """``if meter:`` of a class that says what that means, ``for x in meter``."""
        own = any(self.cls.find(n) for n in ("__bool__", "__len__"))
        return use.act is Act.LOOPED or (use.act in (Act.TESTED, Act.CHOSEN) and own)

    def _asks(self, node: ast.expr, asked: ast.Attribute, wrap: Edit) -> list[Edit]:
        if (name := asked.attr) == self.meter.name and self._counts_numbers(asked):
            self.mixed = True
            return [Rewrite(asked, f"{{of}}.{self.meter.names[0]}", {"of": node})]
        if name in self.meter.helpers or name == "__init__":
            return self._seen(node, wrap, True)
        members = self.cls.find(name)
        if members is None:
            if name == "__dict__":
                raise Refusal("shows all that it has", node)
            if name in self.meter.attrs:
                if name in self.meter.held and usage_of(asked).act is Act.BOUND:
                    raise Refusal("gives it another name", node)
                return self._seen(node, wrap, True)
            return [] if is_stored(asked) or name in self._others else self._seen(node, wrap, True)
        plain = [t for t in members if isinstance(t, Func) and not t.decorators]
        if plain and call_of(asked) is None:
            raise Refusal(f"`{first_line(asked)}` is handed around ({at(node)})")
        return self._seen(node, wrap, False)

    def _counts_numbers(self, method: ast.Attribute) -> bool:
        """Whether a statement gives numbers to a meter in more than few steps, which are then kept
        beside the tensors.
        """
        match parent_of(method), statement_of(method):
            case ast.Call() as call, ast.Expr(value) if value is call:
                numbers = all(is_number(self.script, a) for a in arguments_of(call))
                return numbers and not self._is_seldom(method)
        return False

    @cached_property
    def _others(self) -> set[str]:
        """Attributes that nothing counts in."""
        held = [t.attrs.keys() for t in self.objects if isinstance(t, Inst)]
        return {name for names in held for name in names} - self.meter.attrs

    def _given(self, node: ast.expr, call: ast.Call, wrap: Edit) -> list[Edit]:
        things = self.script.called(call)
        if is_call_of(call, *SHOWING):
            return self._seen(node, wrap, False)
        if is_method(call, "format"):
            return self._seen(node, wrap, True)
        if is_call_of(call, "getattr"):
            return self._seen(node, wrap, True)
        if is_call_of(call, *BLIND):
            return []
        if is_call_of(call, *ORDERING):
            return self._seen(node, wrap, False)
        if surely(code_of(t) or _keeps(t) for t in things):
            return []
        if {first_part(n) for n in self.script.library_functions(call)} == {"logging"}:
            return self._seen(node, wrap, False)
        raise Refusal(f"`{first_line(call.func)}` gets it ({at(call)}), and may keep it")

    def _is_seldom(self, node: ast.expr) -> bool:
        """Whether a place is come to in few steps; what shows an object as a text, where such
        objects are shown.
        """
        function = function_of(node)
        if getattr(function, "name", "") not in TEXTS:
            return self.places.is_seldom(node)
        mine = {t for t in of_kind(self._around, Inst) if t.cls.node is parent_of(function)}
        shown = [n for n in of_kind(self.script.nodes, ast.expr) if self.script.values(n) & mine]
        return all(self.places.is_seldom(n) for n in shown if _is_shown(n))

    def _seen(self, node: ast.expr, wrap: Edit, must: bool) -> list[Edit]:
        """The edits of a place that looks at a meter: none but where an attribute is asked for, or
        where the place is to be shown in few steps.
        """
        if not self._is_seldom(node):
            raise Refusal(
                f"`{first_line(node)}` is used in every step ({at(node)}){where_shown(self.script, node)}"
            )
        self.seen |= self.script.values(node) & self.objects
        supposed = self.script.analysis(InFew).around(node) is not None
        return [wrap] if must or supposed else []

    def _check_whole(self, node: ast.expr) -> None:
        """A list or dict of meters that is shown as a whole."""
        outer = taker(node)
        if outer is not None and outer.func is not node:
            if is_method(outer, "format") and not self.script.may_be(outer.func, Func):
                raise Refusal("shows all of them", outer)
            if is_call_of(outer, *SHOWING) and not self.places.is_seldom(node):
                raise Refusal(f"`{first_line(node)}` is used in every step ({at(node)})")


def _is_shown(node: ast.expr) -> bool:
    """Whether a text is made of it."""
    match usage_of(node):
        case Usage(act=Act.SHOWN) | Usage(act=Act.COMPUTED, node=ast.BinOp(op=ast.Mod())):
            return True
    outer = taker(node)
    return outer is not None and (is_call_of(outer, *SHOWING) or is_method(outer))


def _keeps(thing: Thing) -> bool:
    """``meters.append``, ``meters.setdefault``: the method of a list or dict."""
    this = getattr(thing, "this", None)
    return isinstance(this, COLLECTIONS)
