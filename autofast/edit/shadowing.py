"""New code uses functions of Python (len, enumerate, ...): it is not written where such a name has
become something else. Nor does it import torch for a file that does so in functions alone, or make
variables that ``locals()`` shows.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator

from autofast.edit.edits import TEXTS, Edit, Helper, Import
from autofast.edit.merge import anchors
from autofast.flow.imports import Binding, bindings, parsed
from autofast.flow.program import graph_of
from autofast.flow.reflection import lists_all, namespace_calls
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import (
    Source,
    ancestors,
    at,
    children,
    function_of,
    is_at_top,
    nodes_in,
    source_of,
    statement_of,
    walk,
)
from autofast.model.syntax import FUNCTIONS

SCOPES = (*FUNCTIONS, ast.ClassDef)
BUILTIN = re.compile(
    rf"(?<![\w.])(?:{'|'.join(name for name in dir(builtins) if name.islower())})\b(?!\s*=[^=])"
)

BOUND = re.compile(r"(?m)^\s*([A-Za-z_]\w*)\s*=(?!=)")  # of statements
PROSE = re.compile(r'"""(?s:.*?)"""|#[^\n]*|(?<![fF])"[^"\n]*"')  # docstrings, comments and texts


def against(edits: Iterable[Edit], script: Script) -> str:
    """Why the edits cannot be made: a function of Python that they use is something else there;
    empty where none is.
    """
    for edit in edits:
        if isinstance(edit, Import) and (why := _late(edit)):
            return why
        if why := _shown(edit, script):
            return why
        used = {
            name
            for text in TEXTS
            for name in BUILTIN.findall(PROSE.sub("", getattr(edit, text, None) or ""))
        } - _theirs(edit)
        for scope in _scopes(edit) if used else ():
            for name in sorted(used & script.of_node(_bound_in, scope)):
                return f"`{name}` is not Python's own in {source_of(scope).rel}"
    return ""


def _shown(edit: Edit, script: Script) -> str:
    """Whether something asks later for all variables of the scope, a new one among them."""
    if isinstance(edit, (Import, Helper)):
        return ""
    scope, code = _scopes(edit)[0], "\n".join(getattr(edit, t, None) or "" for t in TEXTS)
    new = set(BOUND.findall(code)) - source_of(scope).names
    shows = [s for s in namespace_calls(scope) if lists_all(s)] if new else []
    for show in shows:
        here = function_of(show) is scope
        if not here or graph_of(script, show).may_follow(show, anchors(edit)[0]):
            return f"`{ast.unparse(show)}` on {at(show)} would show a new variable, `{min(new)}`"
    return ""


def _late(edit: Import) -> str:
    """Where a file imports torch, if it does so in functions alone: at its head, it would come
    before what it reads of the environment is set (``OMP_NUM_THREADS``).
    """
    if not any(_is_torch(b) for b in parsed(edit.code)):
        return ""
    there = [
        n
        for n in nodes_in(edit.source.tree, ast.Import, ast.ImportFrom)
        if any(map(_is_torch, bindings(n)))
    ]
    if not there or any(is_at_top(node) for node in there):
        return ""
    return f"torch is imported in functions alone ({at(there[0])}), and this needs it above them"


def _is_torch(binding: Binding) -> bool:
    return first_part(binding.module) == "torch"


def _theirs(edit: Edit) -> set[str]:
    """The variables of the script that the new code names as the statement around it does, and does
    not call: ``input`` in ``torch.zeros(shape).to(input.device)``.
    """
    if isinstance(edit, (Import, Helper)):
        return set()
    code = " ".join(getattr(edit, text, None) or "" for text in TEXTS)
    around = nodes_in(statement_of(anchors(edit)[0]), ast.Name)
    return {n.id for n in around if not re.search(rf"\b{n.id}\(", code)}


def _scopes(edit: Edit) -> list[ast.AST]:
    """The functions around the new code, and the module."""
    if isinstance(edit, (Import, Helper)):
        return [edit.source.tree]
    return of_kind(ancestors(anchors(edit)[0]), (*FUNCTIONS, ast.Module))


def _bound_in(script: Script, scope: ast.AST) -> set[str]:
    return set(_bound(scope, source_of(scope), script.sources))


def _bound(scope: ast.AST, source: Source, files: list[Source]) -> Iterator[str]:
    """The names that are bound in a scope itself, by star imports from the project, too."""
    if isinstance(scope, FUNCTIONS):
        yield from (a.arg for a in nodes_in(scope.args, ast.arg))
    if isinstance(scope, FUNCTIONS):
        elsewhere = {n for node in _own(scope) if isinstance(node, ast.Global) for n in node.names}
    else:
        elsewhere = set()
    for node in walk(scope) if isinstance(scope, ast.Module) else ():
        if isinstance(node, ast.Global):
            yield from node.names
    for node in _own(scope):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name not in elsewhere:
                yield name
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name
            case ast.alias(name="*"):
                continue
            case ast.alias(name=name, asname=other):
                yield other or first_part(name)
            case ast.ImportFrom(module=str(module)) if any(a.name == "*" for a in node.names):
                for file in files:
                    if file is not source and file.rel.removesuffix(".py").replace(
                        "/", "."
                    ).endswith(module):
                        yield from _bound(file.tree, file, [])


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions and classes inside it; variables of
    comprehensions are theirs alone.
    """
    todo = list(children(scope))
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.comprehension):
            todo += [node.iter, *node.ifs]
        elif not isinstance(node, SCOPES):
            todo += children(node)
