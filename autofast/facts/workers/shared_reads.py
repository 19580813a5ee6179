"""What others change of what the code behind a loader reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.workers.lifetime import PARTS, PASSING
from autofast.facts.workers.loader_code import Side, ever_bound
from autofast.flow.effects import Effects, Write, is_number
from autofast.flow.program import holder_of
from autofast.flow.valueflow import expressions_holding
from autofast.model.calls import is_method, is_name
from autofast.model.contents import attributes, with_contents
from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.model.syntax import FUNCTIONS, TARGETS, VARIABLES, is_read
from autofast.model.values import (
    COLLECTIONS,
    Dict,
    Ext,
    Inst,
    Method,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    all_of,
    any_of,
    begins,
)
from autofast.ops import is_view

OPTIONS = tuple(
    "argparse. easydict. yacs. omegaconf. ml_collections. types. addict. munch.".split()
)  # only the program reads these


class Shared:
    """What one side of a loader reads, as it is called elsewhere in the script."""

    def __init__(self, code: Side):
        self.code, self.script, self.graph = code, code.script, code.graph
        self._parts: dict[tuple[int, int], bool] = {}

    def touched(self, change: Write) -> bool:
        """Whether a change that is made elsewhere is one of something that this code reads."""
        if change.bound:
            return (holder_of(change.node), change.bound) in self.code.free  # type: ignore[arg-type]
        base = change.base
        assert base is not None
        found = self.script.values(base)
        if self.code.environment and any(
            begins(t, Ref, ("os.environ", "os.putenv", "os.unsetenv")) for t in found
        ):
            return True
        is_attribute = bool(change.name) or change.computed
        taken = base is getattr(change.node, "func", None)  # a method: `put = words.append`
        for thing in (t.this if taken and isinstance(t, Method) else t for t in found):
            if id(thing) in self.code.objects:
                if is_attribute and (self.reads(thing, change.name) or change.computed):
                    return True
                if not is_attribute and isinstance(thing, (Seq, Dict, Ext)):
                    return True
        if is_attribute:
            if change.name in self.names_of_objects() and (
                any_of(found, Unknown) or (not found and bool(self.script.unread))
            ):
                return True
            return is_open(found) and self.is_part(base)
        if (
            change.node is base
            and isinstance(base, ast.Name)
            and not any_of(found, Seq, Dict, Tensor, Ext, Inst)
        ):
            # `x += 1`, of what may well be a number.
            return (holder_of(base), base.id) in self.code.aliases
        return self.is_part(base)

    def reads(self, thing: Thing, name: str) -> bool:
        if self.code.every or name in self.code.loads:
            return True
        return (
            isinstance(thing, Ext)
            and not begins(thing, Ext, OPTIONS)
            or isinstance(thing, Inst)
            and is_of_library(thing)
            and name in thing.attrs
        )

    def names_of_objects(self) -> set[str]:
        held = [thing.attrs for thing in self.code.objects.values() if isinstance(thing, Inst)]
        held += [c.members for c in self.code.classes.values()]
        return {n for attrs in held for n in attrs if n in self.code.loads}

    def places(self) -> Iterator[ast.expr]:
        """The expressions that have one of the objects, lists or dicts, alone or in something."""
        yield from expressions_holding(self.script, self._is_held)
        for node in self.script.each(ast.Name):
            named = is_read(node) and (holder_of(node), node.id) in self.code.aliases
            if named and any_of(self.script.values(node), Unknown):
                yield node

    def _is_held(self, found: Values) -> bool:
        return any(
            isinstance(t, (Seq, Dict, Inst)) and id(t) in self.code.objects
            for t in with_contents(found, attributes)
        )

    def is_part(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether ``expr``, outside this code, is something that it reads: by its name, or as an
        attribute of an object that it has.
        """
        if depth > 6:
            return False
        key = id(expr), depth
        if key not in self._parts:
            self._parts[key] = self._is_part(expr, depth)
        return self._parts[key]

    def _is_part(self, expr: ast.expr, depth: int) -> bool:
        if isinstance(expr, ast.Name):
            home = holder_of(expr)
            if (home, expr.id) in self.code.aliases:
                return True
            for value, whole in ever_bound(expr):
                if isinstance(value, TARGETS) or (whole and isinstance(value, ast.Call)):
                    if not is_name(value, expr.id):
                        if self.is_part(value, depth + 1):
                            return True
            given = self.graph.arguments(home, expr.id) if isinstance(home, FUNCTIONS) else []
            return any(a is not None and self.is_part(a, depth + 1) for _, a in given)
        if isinstance(expr, ast.Attribute):
            for thing in self.script.values(expr.value):
                if (id(thing), expr.attr) in self.code.fields or (
                    id(thing) in self.code.objects and self.reads(thing, expr.attr)
                ):
                    return True
                if isinstance(thing, Inst) and any(
                    self.is_part(v, depth + 1) for v in _stored(self.script, thing, expr.attr)
                ):
                    return True
            inner = expr.attr in ("data", "T", "values", "loc", "iloc", "at", "iat", "flat")
            if inner or is_open(self.script.values(expr.value)):
                return self.is_part(expr.value, depth + 1)
            return False
        if isinstance(expr, ast.Subscript):
            if any(
                id(t) in self.code.objects and isinstance(t, COLLECTIONS)
                for t in self.script.values(expr.value)
            ):
                return not is_number(self.script.values(expr))
            return self.is_part(expr.value, depth + 1)
        if is_method(expr) and (expr.func.attr in PARTS or is_view(expr.func.attr)):
            return self.is_part(expr.func.value, depth + 1)
        if (
            isinstance(expr, ast.Call)
            and expr.args
            and self.script.library_functions(expr) & PASSING
        ):
            return self.is_part(expr.args[0], depth + 1)
        return False


def is_open(found: Values) -> bool:
    """Whether nothing is known of it, or no more than of which library object it is an
    attribute.
    """
    return all_of(found, Unknown, Method)


def is_of_library(thing: Inst) -> bool:
    return any(not n.startswith("torch.utils.data.") for n in thing.cls.external)


def _stored(script: Script, thing: Thing, name: str) -> Iterator[ast.expr]:
    """What an attribute of an object is assigned."""
    for write in script.analysis(Effects).writes:
        if write.name == name and write.base is not None and thing in script.values(write.base):
            parent = parent_of(write.node)
            if isinstance(parent, (ast.Assign, ast.AnnAssign)) and isinstance(
                parent.value, VARIABLES
            ):
                yield parent.value
