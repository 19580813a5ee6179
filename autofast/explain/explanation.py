"""All that is known of one place: how often it runs, what stands there, where its values come from,
what rules do about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from autofast.commands.discover import Entries
from autofast.commands.rewriting import Rewritten, rewrite
from autofast.config import Config
from autofast.depth import deeply
from autofast.explain.often import how_often, is_reached
from autofast.explain.roles import roles
from autofast.explain.words import place as place_of, values
from autofast.flow.program import Flow
from autofast.model.script import Script
from autofast.model.source import BadInput, Source, line_of, shown_path
from autofast.model.syntax import VARIABLES, is_read, is_stored
from autofast.model.values import Method, Ref, all_of
from autofast.report.record import Record
from autofast.report.style import expected

_PLACE = re.compile(r"(.+?):(?:cell (\d+):)?(\d+)")


@dataclass(frozen=True)
class Value:
    """What a name or attribute at the place may be; ``set_at`` are the definitions that reach
    it."""

    expr: str
    value: str
    set_at: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What a rule says: ``status`` is ``fix``, ``advice``, ``refused``, ``small`` or ``ignored``,
    or ``change`` for what its fix of another place changes here."""

    rule: str
    effect: str
    status: str
    message: str
    reason: str = ""


@dataclass(frozen=True)
class Explanation:
    """What is believed of ``place``. ``reached`` is false where the reader never comes there; then
    there is nothing else."""

    place: str
    code: str
    entry: str
    reached: bool
    runs: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    rules: tuple[Verdict, ...] = ()

    def data(self) -> dict[str, object]:
        return {"version": 1, **asdict(self)}


def parsed(where: str) -> tuple[Path, int | None, int]:
    """File, cell (of a notebook) and line; raises ``BadInput``."""
    match = _PLACE.fullmatch(where)
    if match is None:
        raise BadInput(f"{where}: is no place; write FILE:LINE, as in train.py:12")
    path = Path(match[1])
    if not path.is_file():
        raise BadInput(f"{path}: no such file; write FILE:LINE, as in train.py:12")
    return path, int(match[2]) if match[2] else None, int(match[3])


@deeply
def explain(where: str, root: Path, config: Config) -> Explanation:
    """Raises ``BadInput`` for a place that is none."""
    path, cell, line = parsed(where)
    entry = Entries(root).of(path)
    done = rewrite(entry, root, config)
    script = done.script
    shown = shown_path(entry.resolve())
    source = script.source_at(path.resolve())
    if source is None:  # started by something that does not come to it after all
        return Explanation(where, "", shown, False)
    number = _line(source, cell, line, where)
    code = source.lines[number - 1]
    stmt = _statement(source, number)
    name = shown_path(source.path) + source.place(number).removeprefix(source.rel)
    if stmt is None or not is_reached(script, stmt):
        return Explanation(name, code, shown, False, rules=tuple(_verdicts(done, source, number)))
    here = _here(source, stmt, number)
    return Explanation(
        name,
        code,
        shown,
        True,
        tuple(how_often(script, stmt)),
        tuple(dict.fromkeys(roles(script, here))),
        tuple(_values(script, stmt, here)),
        tuple(_verdicts(done, source, number)),
    )


def _line(source: Source, cell: int | None, line: int, where: str) -> int:
    """The line of the text."""
    for number in range(1, len(source.lines) + 1):
        at = source.cell(number)
        if (at == (cell, line)) if cell else (source.shown(number) == line):
            return number
    raise BadInput(f"{where}: there is no such line in the code of this file")


def _statement(source: Source, line: int) -> ast.stmt | None:
    """The innermost statement that a line is a part of."""
    over = [
        n
        for n in source.nodes
        if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)
    ]
    inner = max(over, key=lambda n: (n.lineno, n.col_offset), default=None)
    if inner is None or not source.lines[line - 1].strip():
        return None
    first = next((s.lineno for s in getattr(inner, "body", []) if isinstance(s, ast.stmt)), None)
    return inner if first is None or line < first or inner.lineno == line else None


def _here(source: Source, stmt: ast.stmt, line: int) -> Callable[[ast.AST | None], bool]:
    """Whether a node stands in the statement, or in the head of a compound one, and on the line
    where the statement has several."""
    held = set(_own(stmt))

    def here(node: ast.AST | None) -> bool:
        if node is None or node not in held:
            return False
        first = getattr(node, "lineno", stmt.lineno)
        last = getattr(node, "end_lineno", None) or first
        return node is stmt or first <= line <= last

    return here


def _own(stmt: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements in it."""
    yield stmt
    todo: list[ast.AST] = list(ast.iter_child_nodes(stmt))
    while todo:
        node = todo.pop()
        if not isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield node
            todo += ast.iter_child_nodes(node)


def _values(
    script: Script, stmt: ast.stmt, here: Callable[[ast.AST | None], bool]
) -> Iterator[Value]:
    """The variables and attributes at the place that are read, then those that are set."""
    flow, seen = script.analysis(Flow), set()
    nodes = [n for n in _own(stmt) if isinstance(n, VARIABLES) and here(n)]
    nodes.sort(key=lambda n: (is_stored(n), n.lineno, n.col_offset))
    for node in nodes:
        text = ast.unparse(node)
        found = script.values(node)
        if text in seen or all_of(found, Ref, Method):
            continue  # functions of libraries are what they are called
        seen.add(text)
        where: tuple[str, ...] = ()
        if isinstance(node, ast.Name) and is_read(node):
            reaching = sorted({place_of(d.node) for d in flow.reaching(node)} - {""})
            where = tuple(reaching)
        yield Value(text, values(found), where)


def _verdicts(done: Rewritten, source: Source, line: int) -> Iterator[Verdict]:
    """What rules say at the line, then what fixes of other places change there."""
    said = set()
    for finding in done.plan.findings:
        node = finding.node
        first = line_of(node)
        if place_of(node) != source.place(first) or not first <= line <= _head(node):
            continue
        rule = next((r for r in done.plan.rules if r.name == finding.rule), None)
        if rule is None:
            continue
        record = Record.of(finding, rule.effect)
        said.add(record.rule)
        reason = record.reason or expected(record.gain)
        yield Verdict(record.rule, record.effect, record.status, record.message, reason)
    for hunk in done.plan.hunks():
        if hunk.source is source and hunk.old[0] < line <= hunk.old[1]:
            for finding in hunk.findings:
                if finding.rule not in said:
                    said.add(finding.rule)
                    effect = next(r.effect for r in done.plan.rules if r.name == finding.rule)
                    record = Record.of(finding, effect)
                    where = f"for {place_of(finding.node)}"
                    yield Verdict(record.rule, record.effect, "change", record.message, where)


def _head(node: ast.AST) -> int:
    """The last line of a node, without the statements in a compound one."""
    body = getattr(node, "body", None)
    if isinstance(node, ast.stmt) and isinstance(body, list) and body:
        return max(int(node.lineno), int(body[0].lineno) - 1)
    return getattr(node, "end_lineno", None) or line_of(node)
