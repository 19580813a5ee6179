"""Statements that only show something to a person: a print, what a progress bar says or is told to
say (``bar.suffix = text``), a line of a log, a function of the project that does nothing else.

What they write may stay unwritten without any other effect on the program. Records that a program
may read again, or that a tool plots (files, TensorBoard, W&B), are none of these.
"""

from __future__ import annotations

import ast
from functools import cached_property

from autofast.facts.computes import Computes
from autofast.facts.host_io import KEEPS_LOGS, SHOWS, SHOWS_WHERE, TELLS, name_of
from autofast.flow.callgraph import Function
from autofast.model.names import first_part, last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    ByNode,
    Source,
    function_of,
    is_at_top,
    live_nodes,
    parent_of,
    source_of,
    statement_of,
    within,
)
from autofast.model.syntax import is_read, is_stored
from autofast.model.values import Dict, Ext, Num, Ref, begins, certainly

# Keywords that may send it elsewhere; None: `**options`.
TO = (None, "file", "stream", "filename", "handlers")
SCREENS = ("sys.stdout", "sys.stderr")
# What a bar of the package `progress` says, the next time that it is drawn.
SAID = wordset("suffix message")


class Shows(Computes):
    """``script.analysis(Shows)``: code may show something, too, and ask for the time."""

    computing = TELLS

    def __init__(self, script: Script):
        super().__init__(script)
        self.lasting: ByNode[set[str]] = {}  # the variables of its module that each of them sets

    def only_shows(self, statement: ast.AST) -> bool:
        """Whether a statement shows something, and whatever else it does is forgotten."""
        match statement:
            case ast.Expr(value=ast.Call() as call):
                inside = {f: f for f in self._run_by(call)}
                shown = [call, *(n for f in inside for n in live_nodes(f))]
                return (
                    any(self.allows(n) for n in shown)
                    and self.only(call)
                    and all(
                        self._is_private(source_of(f), n)
                        for f in inside
                        for n in self.lasting.get(f, ())
                    )
                )
            case ast.Assign(value=text):
                return self.is_told(statement) and self.only(text)
        return False

    def is_told(self, statement: ast.AST) -> bool:
        """Whether it is a statement that could only show something."""
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=bar, attr=name)]):
                return name in SAID and self._is_bar(bar)
        return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)

    def _is_bar(self, expr: ast.expr) -> bool:
        return surely(
            begins(t, Ext, "progress.") or begins(t, Ref, "progress.")
            for t in self.script.values(expr)
        )

    def is_shower(self, function: ast.AST) -> bool:
        """Whether it is a function that shows, or helps to."""
        return self.known.get(function, False)

    def _run_by(self, call: ast.Call) -> list[Function]:
        found = {f: f for f in self.calls.entered(call)}
        for function in self.calls.entered(call):
            found |= {f: f for f in self.calls.run_in(function)}
        return list(found)

    def allows(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not (found := self.script.called(node)):
            return False
        names = {name_of(t) for t in found}
        return (
            all(map(SHOWS.fullmatch, names))
            and self._is_on_screen(node)
            and self._kept.isdisjoint(map(first_part, names))
            and not self._is_redirected(node)
        )

    def _is_on_screen(self, call: ast.Call) -> bool:
        """Whether a call is given no file to show something in; a bar's numbers, by whatever names,
        stand beside it.
        """
        if {last_part(name_of(t)) for t in self.script.called(call)} == {"set_postfix"}:
            return True
        to = [k.value for k in call.keywords if k.arg in TO and not self._goes_nowhere(k)]
        if self.script.is_call(call, "logging.StreamHandler"):
            to += call.args
        return all(self.script.library_name(t) in SCREENS for t in to)

    def _goes_nowhere(self, options: ast.keyword) -> bool:
        """``**options`` of a dict that has no such key."""
        return options.arg is None and surely(
            isinstance(t, Dict) and not t.open and not t.rest and t.entries.keys().isdisjoint(TO)
            for t in self.script.values(options.value)
        )

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

    def _is_redirected(self, call: ast.Call) -> bool:
        """Whether what a call prints may go to a file, too: ``sys.stdout = Tee(path)``."""
        return self._has_other_screen or any(
            block is None or within(call, block) or function_of(call) in self.calls.run_in(block)
            for block in self._redirecting
        )

    @cached_property
    def _has_other_screen(self) -> bool:
        stored = (n for n in self.script.each(ast.Attribute) if is_stored(n))
        return any(n.attr in ("stdout", "stderr") for n in stored)

    @cached_property
    def _redirecting(self) -> list[ast.With | None]:
        """The blocks whose prints go elsewhere; None where it is not known for how long."""
        given = self.script.calls("contextlib.redirect_stdout", "contextlib.redirect_stderr")
        items = [parent_of(site.node) for site in given]
        around = [parent_of(i) if isinstance(i, ast.withitem) else None for i in items]
        return [w if isinstance(w, ast.With) else None for w in around]

    def may_set(self, function: Function, name: str) -> bool:
        """Noted, to ask who looks at it."""
        self.lasting.setdefault(function, set()).add(name)
        return True

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
