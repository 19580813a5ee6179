"""Statements that only show something to a person: a print, what a progress bar says, a line of a
log, a function of the project that does nothing else.

What they write may stay unwritten without any other effect on the program. Records that a program
may read again, or that a tool plots (files, TensorBoard, W&B), are none of these.
"""

from __future__ import annotations

import ast
from functools import cached_property

from autofast.facts.host_io import COMPUTES, KEEPS_LOGS, SHOWS, SHOWS_WHERE, name_of
from autofast.facts.workers.item_changes import is_iterator
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.effects import Effects, Write
from autofast.flow.scopes import binds, declared, is_parameter, mentions
from autofast.model.calls import root_of
from autofast.model.kinds import is_module
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.source import (
    ByNode,
    Source,
    function_of,
    is_at_top,
    live_nodes,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import is_read, is_stored
from autofast.model.values import Bound, Func, Inst, Method, Num, Tensor, Thing, certainly
from autofast.ops import draws, is_in_place, op

# Keywords that may send it elsewhere; None: `**options`.
TO = (None, "file", "stream", "filename", "handlers")
SCREENS = ("sys.stdout", "sys.stderr")
# What neither an expression nor a function has that only shows.
MORE = (
    *(ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Nonlocal, ast.Raise, ast.Delete),
    *(ast.With, ast.AsyncWith, ast.Import, ast.ImportFrom, ast.Try, ast.ClassDef),
)
DISPLAYS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
SPOKEN = ("__str__", "__repr__", "__format__")


class Shows:
    """``script.analysis(Shows)``"""

    def __init__(self, script: Script):
        self.script = script
        self.calls, self.effects = script.analysis(CallGraph), script.analysis(Effects)
        self.known: ByNode[bool] = {}  # functions that change nothing but what they show
        self.lasting: ByNode[set[str]] = {}  # the variables of its module that each of them sets

    def only_shows(self, statement: ast.AST) -> bool:
        """Whether a statement shows something, and whatever else it does is forgotten."""
        match statement:
            case ast.Expr(value=ast.Call() as call):
                inside = {f: f for f in self._run_by(call)}
                shown = [call, *(n for f in inside for n in live_nodes(f))]
                return (
                    any(self._is_show(n) for n in shown)
                    and all(self._is_harmless(n, None) for n in live_nodes(call))
                    and all(
                        self._is_private(source_of(f), n)
                        for f in inside
                        for n in self.lasting.get(f, ())
                    )
                )
        return False

    def is_shower(self, function: ast.AST) -> bool:
        """Whether it is a function that shows, or helps to."""
        return self.known.get(function, False)

    def _run_by(self, call: ast.Call) -> list[Function]:
        found = {f: f for f in self.calls.entered(call)}
        for function in self.calls.entered(call):
            found |= {f: f for f in self.calls.run_in(function)}
        return list(found)

    def _is_show(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not (found := self.script.called(node)):
            return False
        names = {name_of(t) for t in found}
        return (
            all(map(SHOWS.fullmatch, names))
            and self._is_on_screen(node)
            and self._kept.isdisjoint(map(first_part, names))
            and not self._is_redirected
        )

    def _is_on_screen(self, call: ast.Call) -> bool:
        """Whether a call is given no file to show something in."""
        to = [k.value for k in call.keywords if k.arg in TO]
        if self.script.is_call(call, "logging.StreamHandler"):
            to += call.args
        return all(self.script.library_name(t) in SCREENS for t in to)

    @cached_property
    def _kept(self) -> set[str]:
        """The libraries by which the script also keeps what it shows: in a file, or in a way of its
        own.
        """
        found = {
            first_part(name)
            for call in self.script.each(ast.Call)
            for name in map(name_of, self.script.called(call))
            if KEEPS_LOGS.fullmatch(name)
            or (SHOWS_WHERE.fullmatch(name) and not self._is_on_screen(call))
        }
        added = [o.args.get(0, "hdlr") for s in self.script.methods("addHandler") for o in s]
        return found if all(certainly(a, Num) for a in added) else {*found, "logging"}

    @cached_property
    def _is_redirected(self) -> bool:
        """Whether what is printed may go to a file, too: ``sys.stdout = Tee(path)``."""
        stored = (n for n in self.script.each(ast.Attribute) if is_stored(n))
        given = self.script.calls("contextlib.redirect_stdout", "contextlib.redirect_stderr")
        return bool(given) or any(n.attr in ("stdout", "stderr") for n in stored)

    def _is_harmless(self, node: ast.AST, function: Function | None) -> bool:
        """Whether what a node does by itself is to show, or to compute; in a function, with what
        is its own.
        """
        if isinstance(node, MORE) or not all(map(self._keeps, self.calls.entered(node))):
            return False
        if self._is_show(node):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and not self._is_silent(node):
            return False
        if isinstance(node, ast.Call):
            found = self.script.called(node)
            if not found or not all(map(_is_plain, found)):
                return False
        return all(self._is_own(w, function) for w in self.effects.of(node))

    def _is_silent(self, node: ast.expr) -> bool:
        """Whether an object of the project says what it is without doing anything besides."""
        if is_iterator(self.script.values(node)):
            return False  # which may be used up
        objects = [t for t in self.script.values(node) if isinstance(t, Inst) and not is_module(t)]
        spoken = (m for t in objects for name in SPOKEN for m in t.cls.find(name) or ())
        return all(self._keeps(m.node) for m in spoken if isinstance(m, Func))

    def _keeps(self, function: Function) -> bool:
        """Whether a function changes nothing but what it shows, and what is its own."""
        if function not in self.known:
            self.known[function] = True  # as far as is known, where it calls itself
            self.known[function] = all(
                self._is_harmless(n, function)
                for n in live_nodes(function)
                if n is not function or isinstance(n, ast.AsyncFunctionDef)
            )
        return self.known[function]

    def _is_own(self, write: Write, function: Function | None) -> bool:
        if function is None:
            return False
        if write.bound:
            if write.bound in declared(function):
                self.lasting.setdefault(function, set()).add(write.bound)
            return True
        base = root_of(write.base, ast.Attribute, ast.Subscript) if write.base else None
        if not isinstance(base, ast.Name) or is_parameter(function, base.id):
            return False
        made = [parent_of(n) for n in mentions(function, base.id) if is_stored(n)]
        return binds(function, base.id) and all(
            isinstance(m, ast.Assign) and isinstance(m.value, DISPLAYS) for m in made
        )

    def _is_private(self, source: Source, name: str) -> bool:
        """Whether only functions that show look at a variable of their module."""
        of_module = {n for names in self.lasting.values() for n in names}
        for node in source.each(ast.Name):
            if node.id == name and is_read(node) and not self.is_shower(function_of(node)):
                begin = statement_of(node)
                target = begin.targets[0] if isinstance(begin, ast.Assign) else None
                kept = isinstance(target, ast.Name) and target.id in of_module
                if not (kept and is_at_top(begin)):
                    return False
        return not any(
            name in (getattr(node, "attr", ""), getattr(node, "name", ""))
            for kind in (ast.Attribute, ast.alias)
            for node in self.script.each(kind)
        )


def _is_plain(callee: Thing) -> bool:
    """Whether a call of it computes something, or runs code of the project, which is looked at by
    itself.
    """
    if isinstance(callee, (Func, Bound)):
        return True
    name = name_of(callee)
    short = callee.name if isinstance(callee, Method) else name
    if is_in_place(short, flags=True) or draws(short) or short == "backward":
        return False
    if isinstance(callee, Method) and isinstance(callee.this, Tensor):
        return op(f".{short}") is not None
    plain = COMPUTES.fullmatch(name) is not None or op(name) is not None
    return plain or (not name and isinstance(callee, Method))
