"""Classes of the project that count numbers, as average meters do, and may keep tensors until
somebody asks:

    kept = ()

    def keep(self, val, n=1):
        self.kept += ((val, n),)
        if len(self.kept) == 100:
            self.read()

    def read(self):
        if self.kept:
            kept, self.kept = self.kept, ()
            for val, n in kept:
                self.update(val.item(), n)
        return self

The very same method counts the very same numbers in the same order, before anything else looks at
the object: every method that does begins by ``self.read()``. Who only gives numbers, in whatever
file, finds what was there before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from autofast.edit.edits import After, Before, Edit, Edits, plain_code
from autofast.flow.imports import imported_name
from autofast.flow.usage import Act, Usage, usage_of
from autofast.model.calls import is_call_of, is_method, is_name, root_of
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import first_line, nodes_in, parent_of, source_of
from autofast.model.syntax import DEFS, PAUSES, is_attribute, is_docstring, is_stored
from autofast.model.values import Cls, Dict, Inst, Seq
from autofast.rule import Refusal
from autofast.techniques.syncs.sinks import only_counts, shares
from autofast.techniques.syncs.steps import EVERY
from autofast.write.spelling import torch_in

ASKING = (
    *(Act.ASKED, Act.TAKEN, Act.FILLED, Act.LOOPED, Act.COMPUTED, Act.COMPARED, Act.TESTED),
    *(Act.SHOWN, Act.TARGET, Act.ADDED),
)
COUNTS = frozenset(  # of a list or deque, these make something new
    f"numpy.{n}" for n in wordset("array mean median sum std var min max average percentile")
) | {"torch.tensor"}
ASKS = wordset("list tuple set sorted sum max min len any all str repr")
CUSTOM = ("__getattribute__", "__setattr__", "__slots__", "__getstate__", "__reduce__")


class MeterClass:
    """A class whose ``method`` counts; raises :class:`Refusal` where it may do more."""

    def __init__(self, script: Script, cls: Cls, method: str):
        self.script, self.cls, self.name = script, cls, method
        found = cls.methods(method)
        name = cls.node.name
        mine = [m for f in found for m in self.methods if m is f.node]
        if len(found) != 1 or not mine:
            raise Refusal(f"`{method}` of {name} is no method of its own")
        self.func, self.update = found[0], mine[0]
        if cls.ancestors() or cls.external - {"builtins.object", "object"}:
            raise Refusal(f"{name} derives from another class")
        if self.func.decorators or any(cls.find(n) for n in CUSTOM):
            raise Refusal(f"{name} does something of its own where attributes are set")
        if shares(cls):
            raise Refusal(f"objects of {name} have something in common")
        if not only_counts(script, self.func):
            raise Refusal(f"`{method}` of {name} does more than keep its arguments")
        self._check_shown()
        self._check_read()

    @property
    def me(self) -> str:
        return self.update.args.args[0].arg

    def own(self, function: ast.AST) -> str:
        """What one of its methods calls the object; empty for other functions."""
        return next((m.args.args[0].arg for m in self.methods if m is function), "")

    @cached_property
    def parameters(self) -> list[ast.arg]:
        """What is counted; raises :class:`Refusal` for ``*args``."""
        args = self.update.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or not args.args[1:]:
            raise Refusal(f"`{self.name}` takes any arguments")
        return args.args[1:]

    @cached_property
    def methods(self) -> list[ast.FunctionDef]:
        """All methods that get an object."""
        static = ("staticmethod", "classmethod")
        return [
            n
            for n in of_kind(self.cls.node.body, ast.FunctionDef)
            if n.args.args and not any(is_name(d, *static) for d in n.decorator_list)
        ]

    @cached_property
    def _counting(self) -> list[ast.FunctionDef]:
        """The method, and those that it calls."""
        found, by_name = [self.update], {m.name: m for m in self.methods}
        for method in found:
            for call in (n.func for n in nodes_in(method, ast.Call) if is_method(n)):
                other = by_name.get(call.attr)
                if _is_own(call, method) and other is not None and other not in found:
                    found.append(other)
        return found

    @cached_property
    def attrs(self) -> frozenset[str]:
        """The attributes that counting sets or changes."""
        return frozenset(n.attr for m in self._counting for n in _changed(m))

    @cached_property
    def held(self) -> frozenset[str]:
        """Those that are changed in place, as lists are."""
        return frozenset(n.attr for m in self._counting for n in _changed(m) if not is_stored(n))

    @cached_property
    def only_read(self) -> frozenset[str]:
        """Those that counting reads, itself or by a property, and does not set: what they are then
        must be what they are when the numbers are counted.
        """
        return frozenset(n.attr for n in self._asked()) - self.attrs

    def _asked(self) -> Iterator[ast.Attribute]:
        found, by_name = [*self._counting], {m.name: m for m in self.methods}
        for method in found:
            for node in nodes_in(method, ast.Attribute):
                if _is_own(node, method):
                    other = by_name.get(node.attr)
                    found += [other] if other is not None and other not in found else []
                    yield node

    def _check_read(self) -> None:
        """Whether what counting reads besides is set as a whole, and not changed in place."""
        for node in self._asked():
            if node.attr in self.only_read and self.script.may_be(node, Inst, Seq, Dict):
                raise Refusal(f"`{node.attr}`, which counting reads, may be changed")

    @cached_property
    def shown(self) -> frozenset[str]:
        """The names by which others look at what it counts."""
        return frozenset({*self.attrs, *self.cls.members, "__dict__"})

    @cached_property
    def helpers(self) -> frozenset[str]:
        """What counting calls besides: who calls that alone gives no number after those kept."""
        return frozenset(m.name for m in self._counting[1:])

    def _check_shown(self) -> None:
        """Whether what a method has looked at is not seen later, when more may be kept."""
        for method in self.methods:
            if any(_shows_all(n) for n in nodes_in(method, ast.Attribute, ast.Call)):
                raise Refusal(f"{method.name}() shows all that it has")
            looks = method not in self._counting and self._looks(method)
            for node in nodes_in(method, *PAUSES, ast.Lambda, *DEFS) if looks else ():
                if node is not method:
                    raise Refusal(f"{method.name}() may look at it later", node)
            for node in nodes_in(method, ast.Attribute):
                if node.attr in self.held and _is_own(node, method) and self._gives_away(node):
                    raise Refusal(f"{method.name}() hands out what it counts in", node)

    def _gives_away(self, held: ast.expr) -> bool:
        match usage_of(held):
            case Usage(act=Act.GIVEN, node=ast.Call() as call):
                known = self.script.library_functions(call) or is_call_of(call, *ASKS)
                if not known:  # in a method, say, that this script never calls
                    copies = imported_name(call.func) in COUNTS
                    return not copies or any(k.arg not in ("axis", "dtype") for k in call.keywords)
                return is_call_of(call, "iter", "reversed", "map", "filter")
            case Usage(act=Act.HELD, node=ast.Starred()):
                return False
            case use:
                return use.act not in ASKING

    def _looks(self, method: ast.FunctionDef) -> bool:
        """Whether a method may look at what is counted, itself."""
        this, shown = method.args.args[0].arg, {*self.attrs, *self.helpers, "__dict__", "__init__"}
        asked = (parent_of(n) for n in nodes_in(method, ast.Name) if n.id == this)
        return any(not is_attribute(a) or a.attr in shown for a in asked)

    @cached_property
    def names(self) -> tuple[str, str, str]:
        """What the new methods, and the tensors, are called."""
        taken = {n.attr for n in nodes_in(self.cls.node, ast.Attribute)} | self.cls.members.keys()
        taken |= {n for c in self.cls.ancestors() for n in c.members}
        taken |= {a.arg for a in self.parameters} | {self.me}

        def free(*names: str) -> str:
            return next(
                n for n in (*names, *(f"{names[0]}_{k}" for k in range(2, 99))) if n not in taken
            )

        return free("keep", "keep_tensor"), free("read", "read_kept"), free("kept", "tensors")

    # ---------------------------------------------------------------------- what is written
    def edits(self, read: str, tensor: str, mixed: bool) -> list[Edit]:
        """The edits of the class, whose parameter ``tensor`` is read by the template ``read``;
        ``mixed``: where it is one, and else counted as it is.
        """
        source, me = source_of(self.cls.node), self.me
        keep, reads, kept = self.names
        names = [a.arg for a in self.parameters]
        number, imports = read.format(tensor), Edits()
        if mixed:
            torch, imports = torch_in(source)
            number = f"{number} if {torch}.is_tensor({tensor}) else {tensor}"
        each = ", ".join(names)
        packed = f"({each},)" if len(names) == 1 else f"({each})"
        given = ", ".join(number if n == tensor else n for n in names)
        keeping = f"""
def {keep}({me}, {", ".join(self._spelled())}):
    {me}.{kept} += ({packed},)
    if len({me}.{kept}) == {EVERY}:
        {me}.{reads}()"""
        reading = f"""
def {reads}({me}):
    if {me}.{kept}:
        {kept}, {me}.{kept} = {me}.{kept}, ()
        for {each if len(names) > 1 else f"{each},"} in {kept}:
            {me}.{self.name}({given})
    return {me}"""
        first = of_kind(self.cls.node.body, ast.FunctionDef)[0]
        edits: list[Edit] = [
            *imports,
            *(
                After(self.update, plain_code(code.strip()), alike=True)
                for code in (keeping, reading)
            ),
        ]
        comment = "tensors whose numbers are counted when they are asked for"
        edits.append(Before(first, f"{kept} = ()  # {comment}", alike=True))
        for method in self.methods:
            if method.name != "__init__" and (method is self.update or self._looks(method)):
                if method not in self._counting[1:]:
                    this = method.args.args[0].arg
                    edits.append(Before(_begin(method), f"{this}.{reads}()", alike=True))
        return edits

    def _spelled(self) -> Iterator[str]:
        """The parameters of the method, with their defaults."""
        defaults = self.update.args.defaults
        plain = len(self.parameters) - len(defaults)
        for n, arg in enumerate(self.parameters):
            default = f"={first_line(defaults[n - plain])}" if n >= plain else ""
            yield f"{arg.arg}{default}"


def _shows_all(node: ast.AST) -> bool:
    """``vars(self)``, ``self.__dict__``, but for what a text takes out of it by name:
    ``"{avg}".format(**self.__dict__)``.
    """
    match parent_of(node):
        case ast.keyword(arg=None) as spread if is_method(parent_of(spread), "format"):
            return False
    return is_attribute(node, "__dict__") or is_call_of(node, "vars", "dir", "getattr")


def _is_own(node: ast.AST, method: ast.FunctionDef) -> bool:
    """``self.name``"""
    return is_attribute(node) and is_name(node.value, method.args.args[0].arg)


def _changed(method: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """The attributes of an object that a method sets, puts something into, or whose methods it
    calls.
    """
    for node in nodes_in(method, ast.Attribute, ast.Subscript, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as held)):
                pass
            case ast.Subscript() if is_stored(node):
                held = root_of(node, ast.Subscript)  # type: ignore[assignment]
            case ast.Attribute() if is_stored(node):
                held = node
            case _:
                continue
        if _is_own(held, method):
            yield held


def _begin(method: ast.FunctionDef) -> ast.stmt:
    """The first statement of a method, below its docstring."""
    body = method.body
    return body[1] if is_docstring(body[0]) and len(body) > 1 else body[0]
