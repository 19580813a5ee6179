"""Where an option of a framework's trainer is written, or has to be: a call, the fields of a
dataclass, the defaults of a command line.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autofast.edit.edits import After, Edit, Edits, Rewrite, plain_code
from autofast.model.calls import is_call_of, is_name, keyword_of
from autofast.model.script import Script
from autofast.model.source import Source, source_of
from autofast.model.syntax import is_text, is_written
from autofast.model.values import (
    Arg,
    Arguments,
    Cls,
    Const,
    Ext,
    Inst,
    Thing,
    Values,
    is_named,
    joined,
    of_kind,
    one,
    ordered,
)
from autofast.read.library.options import COMMAND_LINE
from autofast.rule import Effect, Finding
from autofast.write.arguments import place_for_argument, places_of_argument


@dataclass(eq=False)
class Spot:
    """The options of one or more trainers, written in one place.

    Attributes:
        node: what findings point at.
        source: the file that is written to.
        things: the objects that hold the options.
        cls: the project's dataclass they are of; ``fields`` where its defaults are the options, as
            the command line gives the rest.
        calls: the calls of all spots, for a dict that feeds several.
    """

    script: Script
    node: ast.Call
    args: Arguments
    cls: Cls | None = None
    fields: bool = False
    calls: Collection[ast.Call] = ()

    @property
    def source(self) -> Source:
        return source_of(self.cls.node if self.fields and self.cls is not None else self.node)

    @property
    def place(self) -> ast.AST:
        """The node that findings point at."""
        return self.cls.node if self.fields and self.cls is not None else self.node

    def values(self, name: str) -> Values:
        """What the option may be; empty where the script does not say."""
        given = self.args.named.get(name)
        if given is not None:
            return given.values
        return (self.cls.find(name) or frozenset()) if self.cls is not None else frozenset()

    def says(self, name: str, *neutral: object) -> bool:
        """Whether the script decides the option: gives it something other than None or a
        ``neutral`` constant.
        """
        return any(
            t not in {Const(v) for v in (None, *neutral)}
            for t in _plain(self.script, self.values(name))
        )

    def field(self, name: str) -> ast.expr | None:
        """The expression of a field's default, where the dataclass spells it out."""
        for base in self.cls.lineage() if self.cls is not None else []:
            for stmt in base.node.body:
                if isinstance(stmt, ast.AnnAssign) and is_name(stmt.target, name):
                    return _default(stmt.value)
        return None

    def literal(self, name: str, value: object) -> ast.expr | None:
        """Where the option is spelled out as this constant, so that it can be replaced there."""
        if name in self.args.named:
            homes = places_of_argument(self.script, self.args, name, self.calls)
            exprs = [home.expr for home in homes] if not isinstance(homes, str) else []
        else:
            exprs = [self.field(name)]
        only = one(exprs)
        return only if is_written(only, value) else None

    def add(self, name: str, value: str, kind: str) -> Edits | str:
        """The edits that give an option which nothing gives yet; or why it cannot be given."""
        if self.fields and self.cls is not None:
            if self.cls.node.body and isinstance(last := _last_field(self.cls.node), ast.stmt):
                style = f"field(default={value})" if _uses_field(self.cls.node) else value
                return (After(last, f"{name}: {kind} = {style}"),)
            return f"{self.cls.node.name} has no field that another one could follow"
        if self.values(name):
            return f"`{name}` is given already"
        home = place_for_argument(self.script, self.args, name, self.calls)
        return home if isinstance(home, str) else (home.set(name, value),)

    def option(self, name: str) -> Arg | None:
        """The command-line option that the value is, as it comes."""
        found = one(self.values(name))
        return found if isinstance(found, Arg) else None


def _plain(script: Script, found: Values) -> list[Thing]:
    """The values, with ``field(default=...)`` opened."""
    out: list[Thing] = []
    for thing in ordered(found):
        if is_named(thing, Ext, "dataclasses.field"):
            out += ordered(thing.args.get(-1, "default")) or [thing]
        else:
            out.append(thing)
    return out


def _default(value: ast.expr | None) -> ast.expr | None:
    if isinstance(value, ast.Call):
        return keyword_of(value, "default")
    return value


def _last_field(node: ast.ClassDef) -> ast.stmt | None:
    fields = of_kind(node.body, ast.AnnAssign)
    return fields[-1] if fields else None


def _uses_field(node: ast.ClassDef) -> bool:
    """Its fields are written ``x: int = field(default=...)``, under that name."""
    return any(is_call_of(s.value, "field") for s in of_kind(node.body, ast.AnnAssign))


def spot_of(
    script: Script, things: Sequence[Ext | Inst], calls: Sequence[ast.Call] = ()
) -> Spot | str:
    """The spot of objects that hold options, all made in one place; or why they cannot be
    written.
    """
    cls = things[0].cls if isinstance(things[0], Inst) else None
    given = [t.args for t in things if t.args is not None]
    node = things[0].node
    if not isinstance(node, ast.Call) or len(given) != len(things):
        return "it is made in a way that is not followed"
    others = any(t.cls is not cls for t in of_kind(things, Inst))
    if others or any(t is not cls for t in of_kind(script.called(node), Cls)):
        return "it may be of several classes, of which one stands in for another"
    if cls is not None and cls.find("__init__") is not None:
        return f"{cls.node.name} has its own __init__, which decides what it is given"
    args = joined(given)
    return Spot(script, node, args, cls, args.open == COMMAND_LINE, calls)


# --------------------------------------------------------------------------------- the command line
def option_flag(option: Arg) -> str:
    """How an option is written on the command line."""
    names = [a.value for a in option.node.args if is_text(a)]
    long = [n for n in names if n.startswith("--")]
    return (long or [n for n in names if n.startswith("-")] or [f"--{option.name}"])[0]


def changed_spot(
    place: ast.AST,
    message: str,
    edits: Edits | str,
    more: Edits = (),
    effect: Effect | None = None,
) -> Finding:
    """A finding with its edits, or with the reason why there are none."""
    if isinstance(edits, str):
        return Finding(place, message, refusal=edits, effect=effect)
    return Finding(place, message, edits=(*edits, *more), effect=effect)


def takes_word(option: Arg, value: str) -> bool:
    """Whether the option can be given this word: its type is no number, and its choices have it."""
    for keyword in option.node.keywords:
        if keyword.arg == "type" and is_name(keyword.value, "int", "float", "bool"):
            return False
        if keyword.arg == "choices" and isinstance(keyword.value, (ast.List, ast.Tuple, ast.Set)):
            return any(is_written(e, value) for e in keyword.value.elts)
    return option.kind != "flag"


def replaced(expr: ast.expr, code: str) -> Edit:
    """The edit that puts plain code in place of an expression."""
    return Rewrite(expr, plain_code(code))
