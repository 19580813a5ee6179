"""One block of statements, rebuilt: new statements before, after and around the user's, and some of
these left out.

The user's statements are the units here, also where several stand on one line (``a; b``): a line is
taken apart only where something comes between its parts. Comments and blank lines above a statement
are its ``lead``. No comment is lost: those of a statement that goes away are put above whatever
comes next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from autofast.model.notebook import HIDDEN

Lines = list[cst.EmptyLine]
OF_CELLS = ("# %%", HIDDEN)  # marks and magics of notebooks
Line = cst.SimpleStatementLine | cst.BaseCompoundStatement
Small = cst.BaseSmallStatement | cst.BaseCompoundStatement

PRAGMA = re.compile(r"#\s*(noqa|type:|pylint:|pragma:|pyright:|fmt:|isort:|nosec|autofast:)")
# The shape of what a statement gives, which goes with it: `# (batch, n, 2*c)`.
SHAPE = re.compile(r"#\s*[(\[]\s*[\w*/+-]+(?:\s*,\s*[\w*/+-]+)+\s*[)\]]\s*")
_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)


@dataclass
class Placed:
    """New statements before or after one of the user's."""

    rank: int
    rule: str
    body: Sequence[cst.BaseStatement]


@dataclass
class Shell:
    """A compound statement (its body is a dummy) that the statements up to ``last`` are put
    into.
    """

    rank: int
    rule: str
    last: int  # id of the last statement
    head: cst.BaseCompoundStatement


@dataclass
class Work:
    """All that is to happen to one statement as a whole."""

    before: list[Placed] = field(default_factory=list)
    after: list[Placed] = field(default_factory=list)
    shells: list[Shell] = field(default_factory=list)
    instead: Sequence[cst.BaseStatement] | None = None
    removed: bool = False
    moved: bool = False  # and its comments with it
    taken: Lines = field(default_factory=list)  # of those above it, what goes with it
    unwrapped: bool = False  # a `with` that goes while its body stays


@dataclass
class Unit:
    """One of the user's statements; of a line with several, the first has the lead and the last has
    what ends the line.
    """

    original: Small
    node: Small
    line: int
    lead: Lines
    end: cst.TrailingWhitespace | None
    whole: cst.SimpleStatementLine | None  # the updated line it stands on


@dataclass
class Entry:
    """An element of the new block: a unit, new statements, or comments of something that has
    gone.
    """

    unit: Unit | None = None
    new: Sequence[cst.BaseStatement] = ()
    lead: Lines = field(default_factory=list)
    foreign: bool = (
        True  # whether ``new`` stands where nothing stood, so that blank lines may be missing
    )


@dataclass
class Block:
    """What :func:`rebuilt` returns: the statements, and comments that must follow the last of
    them.
    """

    body: list[cst.BaseStatement]
    rest: Lines


def rebuilt(
    originals: Sequence[cst.BaseStatement],
    updated: Sequence[cst.BaseStatement],
    work: Mapping[int, Work],
    *,
    at_top: bool = False,
    first: Sequence[cst.BaseStatement] = (),
    first_lead: Sequence[cst.EmptyLine] = (),
) -> Block:
    """The block after ``work`` (by id of the original statement).

    ``first`` are statements that come before all others, below the comments that ``first_lead``
    puts above the first of the user's.
    """
    units = list(_units(originals, updated))
    if units:
        units[0].lead[:0] = first_lead
    entries = _Walk(units, work).entries(first)
    return _rendered(entries, at_top)


def is_affected(originals: Iterable[cst.BaseStatement], work: Mapping[int, Work]) -> bool:
    """Whether there is anything to do for :func:`rebuilt`."""
    return any(id(s) in work for line in originals for s in _parts(line))


def is_left_idle(original: cst.CSTNode, new: cst.CSTNode) -> bool:
    """Whether an ``if`` has come to do nothing: nothing is left to say either, and nothing is
    called to decide it.
    """
    match original, new:
        case cst.If(body=was), cst.If(test=test, body=body, orelse=None):
            while isinstance(test, cst.Attribute):
                test = test.value
            return isinstance(test, cst.Name) and does_nothing(body) and not does_nothing(was)
    return False


def does_nothing(body: cst.BaseSuite) -> bool:
    """``pass``, and no comment."""
    match body:
        case cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Pass()])]):
            return not comments(body)
    return False


def suite_as_line(suite: cst.SimpleStatementSuite) -> cst.SimpleStatementLine:
    """The body of ``for x in y: z`` as a line of its own."""
    return cst.SimpleStatementLine(body=suite.body, trailing_whitespace=suite.trailing_whitespace)


def comment_lines(node: cst.CSTNode) -> Lines:
    """The comments in ``node``, each on a line of its own; remarks to tools, which mean the code
    they stand by, are left out.
    """
    return [cst.EmptyLine(comment=c) for c in comments(node) if not PRAGMA.match(c.value)]


def comments(node: cst.CSTNode) -> list[cst.Comment]:
    """The comments in ``node``, in order."""
    found = _Comments()
    node.visit(found)
    return found.found


class _Comments(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[cst.Comment] = []

    def visit_Comment(self, node: cst.Comment) -> None:
        self.found.append(node)


# -------------------------------------------------------------------------------------------- units
def _parts(line: cst.BaseStatement) -> Sequence[Small]:
    return line.body if isinstance(line, cst.SimpleStatementLine) else [line]  # type: ignore[list-item]


def _units(
    originals: Sequence[cst.BaseStatement], updated: Sequence[cst.BaseStatement]
) -> Iterator[Unit]:
    for n, (old, new) in enumerate(zip(originals, updated, strict=True)):
        lead = list(getattr(new, "leading_lines", ()))
        if not isinstance(new, cst.SimpleStatementLine):
            yield Unit(old, new, n, lead, None, None)  # type: ignore[arg-type]
            continue
        last = len(new.body) - 1
        for k, (part, node) in enumerate(zip(_parts(old), new.body, strict=True)):
            yield Unit(
                part,
                node,
                n,
                lead if k == 0 else [],
                new.trailing_whitespace if k == last else None,
                new,
            )


def split(lead: Lines) -> tuple[Lines, Lines]:
    """The lines above a statement that stay where they are, and the comments directly above it that
    belong to it.

    A comment between two blank lines is the heading of what follows, which gets a blank line of its
    own above it. Marks of cells (``# %%``) and the magics of a notebook, which are hidden in
    comments, belong to no statement.
    """
    n = _above_comments(lead, len(lead))
    if n == len(lead) and n and (top := _above_comments(lead, n - 1)) < n - 1:
        if top and lead[top - 1].comment is None:
            return lead[:top], [cst.EmptyLine(indent=False), *lead[top:]]
    return lead[:n], lead[n:]


def _above_comments(lead: Lines, n: int) -> int:
    """Where the comments begin that end just above line ``n``."""
    while n and (comment := lead[n - 1].comment) is not None:
        if comment.value.startswith(OF_CELLS):
            break
        n -= 1
    return n


# -------------------------------------------------------------------------------------------- order
class _Walk:
    """Puts the units and what is new into order."""

    def __init__(self, units: Sequence[Unit], work: Mapping[int, Work]):
        self.units, self.work = units, work
        self.index = {id(unit.original): n for n, unit in enumerate(units)}
        self.before = [self._placed(unit, "before") for unit in units]
        self.after = [self._placed(unit, "after") for unit in units]

    def _placed(self, unit: Unit, side: str) -> list[Placed]:
        work = self.work.get(id(unit.original))
        return sorted(getattr(work, side), key=lambda p: (p.rank, p.rule)) if work else []

    def entries(self, first: Sequence[cst.BaseStatement]) -> list[Entry]:
        """The new block in order."""
        shells = [
            (n, shell) for n, unit in enumerate(self.units) for shell in self._work(unit).shells
        ]
        # Outer before inner: the longer range, then the higher rank.
        shells.sort(
            key=lambda item: (item[0], -self.index[item[1].last], -item[1].rank, item[1].rule)
        )
        lead: Lines = []
        if first and self.units:
            lead, self.units[0].lead[:] = split(self.units[0].lead)
        start = [Entry(new=first, lead=lead)] if first else []
        return start + self._range(0, len(self.units) - 1, shells, [])

    def _work(self, unit: Unit) -> Work:
        return self.work.get(id(unit.original)) or Work()

    def _range(
        self,
        start: int,
        stop: int,
        shells: list[tuple[int, Shell]],
        around: list[tuple[int, Shell]],
    ) -> list[Entry]:
        """Units ``start``..``stop`` with the shells that begin there; ``around`` are those that are
        open, outermost first.
        """
        out: list[Entry] = []
        n = start
        while n <= stop:
            here = next((s for s in shells if s[0] == n), None)
            if here is None:
                out += [*self._new_before(n, None), *self._unit(n), *self._new_after(n, around)]
                n += 1
                continue
            shell = here[1]
            last = self.index[shell.last]
            inner = [s for s in shells if s is not here and n <= s[0] <= last]
            shells = [s for s in shells if s is not here and s not in inner]
            out += self._new_before(n, shell.rank)
            out += self._shell(shell, self._range(n, last, inner, [*around, (last, shell)]))
            out += self._new_after(last, around)
            n = last + 1
        return out

    def _shell(self, shell: Shell, entries: list[Entry]) -> list[Entry]:
        """``entries`` inside ``shell``, whose place the comments of the first take; a shell with
        nothing in it is dropped.
        """
        block = _rendered(entries, at_top=False)
        if not block.body:
            return [Entry(lead=block.rest)]
        lead = list(getattr(block.body[0], "leading_lines", ()))
        body = [block.body[0].with_changes(leading_lines=()), *block.body[1:]]
        shell_body = shell.head.body
        indent = shell_body.indent if isinstance(shell_body, cst.IndentedBlock) else None
        suite = cst.IndentedBlock(body=body, footer=block.rest, indent=indent)
        return [Entry(new=[shell.head.with_changes(body=suite, leading_lines=lead)], foreign=False)]

    def _new_before(self, n: int, inside: int | None) -> list[Entry]:
        """What comes before unit ``n``: outside a shell of rank ``inside`` stand higher ranks,
        within it lower ones.
        """
        now = [p for p in self.before[n] if inside is None or p.rank >= inside]
        self.before[n] = [p for p in self.before[n] if p not in now]
        if not now:
            return []
        unit = self.units[n]
        lead, unit.lead[:] = split(unit.lead)
        if lead and lead[-1].comment is None and unit.lead and unit.lead[0].comment is not None:
            unit.lead.insert(0, cst.EmptyLine(indent=False))  # a comment that begins a group
        return [Entry(new=placed.body, lead=lead if k == 0 else []) for k, placed in enumerate(now)]

    def _new_after(self, n: int, around: list[tuple[int, Shell]]) -> list[Entry]:
        """What comes after unit ``n`` inside all shells that are open: those that end here keep
        higher ranks out.
        """
        ends = [shell.rank for last, shell in around if last == n]
        now = [p for p in self.after[n] if all(p.rank < rank for rank in ends)]
        self.after[n] = [p for p in self.after[n] if p not in now]
        return [Entry(new=placed.body) for placed in now]

    def _unit(self, n: int) -> list[Entry]:
        unit, work = self.units[n], self._work(self.units[n])
        if work.unwrapped:
            return _unwrapped(unit)
        if work.removed or is_left_idle(unit.original, unit.node):
            return [Entry(lead=_left(unit, work.taken))] if work.moved else _removed(unit)
        if work.instead is not None:
            return _replaced(unit, work.instead)
        return [Entry(unit=unit)]


def _left(unit: Unit, taken: Lines) -> Lines:
    return [line for line in unit.lead if not any(line is other for other in taken)]


def _removed(unit: Unit) -> list[Entry]:
    inside = [] if unit.whole is None else _trailing(unit.end)
    node = unit.node.with_changes(leading_lines=()) if unit.whole is None else unit.node
    lost = [*comment_lines(node), *inside]
    told = [c for c in lost if not (c.comment and SHAPE.fullmatch(c.comment.value))]
    return [Entry(lead=[*unit.lead, *told])]


def _replaced(unit: Unit, body: Sequence[cst.BaseStatement]) -> list[Entry]:
    """New code in the place of a statement. A comment at the end of its line stays at the end of a
    line if it can.
    """
    kept = {c.value for statement in body for c in comments(statement)}
    node = unit.node.with_changes(leading_lines=()) if unit.whole is None else unit.node
    lost = [line for line in comment_lines(node) if line.comment and line.comment.value not in kept]
    body = list(body)
    if unit.end is not None and unit.end.comment is not None:
        line = body[0] if body else None
        if isinstance(line, cst.SimpleStatementLine) and line.trailing_whitespace.comment is None:
            body[0] = line.with_changes(trailing_whitespace=unit.end)
        else:
            lost += _trailing(unit.end)
    return [Entry(new=body, lead=[*unit.lead, *lost], foreign=False)]


def _unwrapped(unit: Unit) -> list[Entry]:
    """The body of a ``with`` in the place of the ``with``."""
    assert isinstance(unit.node, cst.With)
    suite = unit.node.body
    if isinstance(suite, cst.SimpleStatementSuite):
        return [Entry(new=[suite_as_line(suite)], lead=unit.lead, foreign=False)]
    assert isinstance(suite, cst.IndentedBlock)
    header = [line for item in unit.node.items for line in comment_lines(item)] + _trailing(
        suite.header
    )
    return [
        Entry(new=list(suite.body), lead=[*unit.lead, *header], foreign=False),
        Entry(lead=[_plain(line) for line in suite.footer]),
    ]


def _trailing(end: cst.TrailingWhitespace | None) -> Lines:
    return comment_lines(end) if end is not None else []


def _plain(line: cst.EmptyLine) -> cst.EmptyLine:
    """A line from the end of a block, where it may be indented in any way, as a line above a
    statement.
    """
    return line.with_changes(indent=True, whitespace=cst.SimpleWhitespace(""))


# ---------------------------------------------------------------------------------------- rendering
def _rendered(entries: Iterable[Entry], at_top: bool) -> Block:
    """Statements made of ``entries``: parts of one line that are still neighbours are joined
    again.
    """
    out: list[tuple[cst.BaseStatement, bool]] = []
    run: list[Unit] = []
    carry: Lines = []
    begins: int | None = None  # blank lines above the beginning of the block, where that is gone

    def distance(lead: Lines) -> Lines:
        lead = _joined(carry, lead)
        return lead if at_top or begins is None or out or run else _no_more_blank(lead, begins)

    def flush() -> None:
        if run:
            lead = [line for unit in run for line in unit.lead]
            out.append((_line(run, lead), False))
            run.clear()

    for entry in entries:
        unit = entry.unit
        if unit is not None:
            if not run or unit.whole is None or run[-1].line != unit.line:
                flush()
            unit.lead[:], carry = distance(unit.lead), []
            run.append(unit)
        elif entry.new:
            flush()
            top = distance(entry.lead)
            carry = []
            for k, statement in enumerate(entry.new):
                out.append((_led(statement, top) if k == 0 else statement, entry.foreign))
        else:
            carry = _joined(carry, entry.lead) if carry or out or run else list(entry.lead)
            if begins is None and not (out or run):
                begins = _blank(entry.lead)
    flush()
    return Block(list(_spaced(out, at_top)), carry)


def _joined(carry: Lines, lead: Lines) -> Lines:
    """The lines above what is gone, and those of what follows: blank lines on both sides of it are
    one distance, not two.
    """
    if any(line.comment is not None for line in carry):
        return [*carry, *lead]
    return [*carry[: max(0, len(carry) - _blank(lead))], *lead]


def _no_more_blank(lead: Lines, most: int) -> Lines:
    """A block begins as far below its head as it did."""
    return lead[max(0, _blank(lead) - most) :]


def _blank(lead: Sequence[cst.EmptyLine]) -> int:
    """The blank lines at the beginning of some lines."""
    return next((n for n, line in enumerate(lead) if line.comment is not None), len(lead))


def _line(run: Sequence[Unit], lead: Lines) -> cst.BaseStatement:
    first = run[0]
    if first.whole is None:
        return _with_lead(first.node, lead)  # type: ignore[arg-type]
    if len(run) == len(first.whole.body):
        return _with_lead(first.whole, lead)
    parts = [unit.node for unit in run]
    if run[-1].end is None:
        parts[-1] = parts[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    end = run[-1].end or cst.TrailingWhitespace()
    return cst.SimpleStatementLine(body=parts, leading_lines=lead, trailing_whitespace=end)  # type: ignore[arg-type]


def _with_lead(statement: cst.BaseStatement, lead: Lines) -> cst.BaseStatement:
    """``statement`` below ``lead``; the very same node where it is there already."""
    if list(statement.leading_lines) == lead:  # type: ignore[attr-defined]
        return statement
    return statement.with_changes(leading_lines=lead)


def _led(statement: cst.BaseStatement, top: Lines) -> cst.BaseStatement:
    return (
        statement.with_changes(leading_lines=[*top, *statement.leading_lines]) if top else statement  # type: ignore[attr-defined]
    )


def _spaced(
    lines: Sequence[tuple[cst.BaseStatement, bool]], at_top: bool
) -> Iterator[cst.BaseStatement]:
    """Blank lines between new code and its neighbours, where Python's conventions want some."""
    previous: tuple[cst.BaseStatement, bool] | None = None
    for line, is_new in lines:
        lead: Lines = list(line.leading_lines)  # type: ignore[attr-defined]
        in_cell = any(x.comment and x.comment.value.startswith(OF_CELLS) for x in lead)
        if previous is not None and (is_new or previous[1]) and not in_cell:
            present = next(
                (n for n, above in enumerate(lead) if above.comment is not None), len(lead)
            )
            present += _blank_lines_within(previous[0])
            missing = _blank_lines(previous[0], line, is_new, at_top) - present
            if missing > 0:
                line = line.with_changes(
                    leading_lines=[cst.EmptyLine(indent=False)] * missing + lead
                )
        yield line
        previous = line, is_new


def _blank_lines_within(statement: cst.BaseStatement) -> int:
    """The blank lines at the end of its block: those that are indented as it is."""
    count = 0
    while isinstance(body := getattr(statement, "body", None), cst.IndentedBlock):
        count += sum(line.comment is None for line in body.footer)
        statement = body.body[-1]
    return count


def _blank_lines(
    above: cst.BaseStatement, below: cst.BaseStatement, below_is_new: bool, at_top: bool
) -> int:
    if isinstance(above, _DEFINITIONS) or isinstance(below, _DEFINITIONS):
        # Has the distance that its author likes.
        is_users_own = not below_is_new and not isinstance(above, _DEFINITIONS)
        return 2 if at_top and not is_users_own else 1
    return 1 if at_top and _is_import(above) != _is_import(below) else 0


def _is_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], (cst.Import, cst.ImportFrom)
    )
