"""Where a script uses a loader, or an iterator of it: attributes, and calls that get it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model.calls import arguments_of
from autofast.model.script import Loader, Script
from autofast.model.values import Bound, Cls, Ext, Func, Inst, Ref

# Functions that go through a loader, ask how long it is, or which object it is.
ITERATING = frozenset(f"builtins.{n}" for n in ("enumerate", "iter", "len", "next", "zip"))
ITERATING |= {"builtins.isinstance", "builtins.id", "builtins.type"}
ITERATING |= {"tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.trange", "itertools.islice", "itertools.chain"}
# ... and those that keep the batches, or the loader itself.
KEEPING = frozenset(f"builtins.{n}" for n in ("print", "list", "tuple", "dict"))
KEEPING |= {"itertools.cycle"}


class Uses:
    """Asks about one loader."""

    def __init__(self, script: Script, loader: Loader):
        self.script, self.loader = script, loader
        self._nodes = list(script.nodes)

    def attributes(self) -> Iterator[ast.Attribute]:
        """``loader.x``, read or set."""
        for node in self._nodes:
            if isinstance(node, ast.Attribute) and self._is_loader(node.value):
                yield node

    def calls(self) -> Iterator[ast.Call]:
        """Calls that get the loader as an argument."""
        for node in self._nodes:
            if isinstance(node, ast.Call) and any(map(self._is_loader, _arguments(node))):
                yield node

    def of_iterators(self) -> Iterator[ast.Attribute | ast.Call]:
        """The same of what ``iter(loader)`` gives."""
        for node in self._nodes:
            if (
                isinstance(node, ast.Attribute)
                and self._is_iterator(node.value)
                or isinstance(node, ast.Call)
                and any(map(self._is_iterator, _arguments(node)))
            ):
                yield node

    def is_known(self, call: ast.Call, functions: frozenset[str]) -> bool:
        """Whether a call is of code of the project, which is read as well, or of one of these functions."""
        callee = self.script.values(call.func)
        return bool(callee) and all(
            isinstance(t, (Func, Bound, Cls, Inst)) or (isinstance(t, Ref) and t.name in functions)
            for t in callee
        )

    def _is_loader(self, expr: ast.expr) -> bool:
        return any(t is x for t in self.script.values(expr) for x in self.loader.things)

    def _is_iterator(self, expr: ast.expr) -> bool:
        return any(
            x in t.attrs.get("over", ())
            for t in self.script.values(expr)
            if isinstance(t, Ext) and t.name == "builtins.iter"
            for x in self.loader.things
        )


def _arguments(call: ast.Call) -> list[ast.expr]:
    given = arguments_of(call)
    return [a.value if isinstance(a, ast.Starred) else a for a in given]
