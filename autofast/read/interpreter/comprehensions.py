"""Comprehensions: loops that make a list, a set or a dict."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import replace

from autofast.model.calls import is_method, is_name
from autofast.model.events import LoopFrame
from autofast.model.limits import FEW, MOST_ITEMS
from autofast.model.source import parent_of
from autofast.model.syntax import VARIABLES
from autofast.model.values import (
    NOTHING,
    Const,
    Dict,
    Entry,
    Env,
    Seq,
    Values,
    const,
    is_const,
    one,
    things as values,
)
from autofast.model.values.thing import Row
from autofast.read.interpreter.binding import Binding
from autofast.read.library.containers import begin_dict, revive
from autofast.read.library.iteration import iterate, loaders_in
from autofast.read.state.core import NotYet, join


class Comprehensions(Binding):
    """One at a time where what they go through is known and little."""

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Env
    ) -> Env:
        inner = Env("comprehension", {}, env, None)
        for generator in node.generators:
            over = self.expr(generator.iter, inner)
            self.stack.append(LoopFrame(node, over, loaders_in(over)))
            self.assign(generator.target, iterate(self, over, node), inner, None)
            for test in generator.ifs:
                self.expr(test, inner)
        return inner

    def expr_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, env: Env
    ) -> Values:
        inner, depth = self.comprehension(node, env), len(self.stack)
        frame, loop = self.stack[-1], node.generators[0]
        assert isinstance(frame, LoopFrame)
        alone = len(node.generators) == 1 and not loop.ifs and _is_for_once(node)
        few = self.few(loop.iter, frame.over, env) if alone else ()
        found: list[Values] = []
        for turn, item in enumerate(few or (NOTHING,)):
            if few:
                self.stack[-1] = replace(frame, turn=turn, unrolled=True)
                self.assign(loop.target, item, inner, None)
            with suppress(NotYet):
                found.append(self.expr(node.elt, inner))
            del self.stack[depth:]
        del self.stack[depth - len(node.generators) :]
        kind = {"ListComp": "list", "SetComp": "set"}.get(type(node).__name__, "lazy")
        seq = self.intern(Seq, (node,), lambda: Seq(node, () if few else None, NOTHING, kind))
        if few and len(found) == len(few):
            self.fill(seq, tuple(found))
        else:
            seq.items, seq.elem = None, join(seq.any(), *found)
        return values(seq)

    expr_SetComp = expr_ListComp
    expr_GeneratorExp = expr_ListComp

    def expr_DictComp(self, node: ast.DictComp, env: Env) -> Values:
        made, past = begin_dict(self, node)
        plain = len(node.generators) == 1 and not node.generators[0].ifs
        over = node.generators[0].iter
        rows = self.rows_in(over, env) if plain else []
        inner = self.comprehension(node, env)
        frame = self.stack[-1]
        assert isinstance(frame, LoopFrame)
        if plain and not rows:
            rows = [(item, True) for item in self.few(over, frame.over, env, MOST_ITEMS)]
        if not rows:
            self.expr(node.key, inner)
            made.rest = join(made.rest, self.expr(node.value, inner))
            made.open = "its keys are computed"
        for turn, (row, sure) in enumerate(rows):
            self.stack[-1] = replace(frame, turn=turn, unrolled=True)
            self.assign(node.generators[0].target, row, inner, None)
            self.dict_item(made, self.expr(node.key, inner), node, inner, sure)
        del self.stack[len(self.stack) - len(node.generators) :]
        revive(made, past)
        return values(made)

    def rows_in(self, over: ast.expr, env: Env) -> list[tuple[Values, bool]]:
        """What a loop takes from a dict whose keys are known, or its ``items()``, and whether it
        certainly does.
        """
        func = over.func if is_method(over, "items", "keys", "values") and not over.args else None
        of = over if func is None else func.value
        table = one(self.expr(of, env)) if isinstance(of, VARIABLES) else None
        if not isinstance(table, Dict) or table.rest or table.open:
            return []
        if not 0 < len(table.entries) <= MOST_ITEMS:
            return []
        rows = {k: (values(Const(k)), table.get(k)) for k in table.entries}
        if func is not None and func.attr == "items":
            return [(self.tuple_of(over, row, k), table.holds(k)) for k, row in rows.items()]
        by = func is not None and func.attr == "values"
        return [(row[by], table.holds(k)) for k, row in rows.items()]

    def few(self, over: ast.expr, found: Values, env: Env, most: int = FEW) -> Row:
        """What a loop over ``found`` goes through, where that is known one by one, and little."""
        row = one(found)
        if is_const(row, tuple):
            items = tuple(values(Const(v)) for v in row.value)
        elif isinstance(row, Seq) and row.kind in ("list", "tuple", "lazy"):
            items = row.exact or ()
        else:
            rows = self.rows_in(over, env)
            items = tuple(item for item, _ in rows) if all(sure for _, sure in rows) else ()
        return items if len(items) <= most else ()

    def dict_item(
        self, made: Dict, keys: Values, node: ast.DictComp, inner: Env, sure: bool
    ) -> None:
        key, found = const(keys), self.expr(node.value, inner)
        if isinstance(key, (str, int)):
            made.entries[key] = [Entry(found, None, node, sure)]
            self.keep(found, made, key)
        else:
            made.rest = join(made.rest, found)
            made.open = "its keys are computed"


def _is_for_once(node: ast.expr) -> bool:
    """A comprehension makes a list, or goes through its items where it stands, and is used up."""
    around = parent_of(node)
    func = around.func if isinstance(around, ast.Call) else None
    used = isinstance(func, ast.Call) or is_name(func, "tuple", "list", "dict")
    return not isinstance(node, ast.GeneratorExp) or used or isinstance(around, ast.Starred)
