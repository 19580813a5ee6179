"""One bottom-up walk over the concrete tree of a file that carries out a set of edits.

Each edit is a function of the node as the edits inside it have left it, so nested edits keep each
other. Only the paths that lead to an edit are walked, and a statement in which the same is done as
in an earlier walk is not walked again.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from autofast.edit import signatures, snippet
from autofast.edit.blocks import (
    Block,
    Lines,
    Placed,
    Shell,
    Work,
    comment_lines,
    comments,
    does_nothing,
    is_affected,
    is_left_idle,
    rebuilt,
    split,
    suite_as_line,
)
from autofast.edit.edits import (
    After,
    Around,
    Before,
    Decorator,
    DictItem,
    DropElement,
    DropKeyword,
    Edit,
    Header,
    Helper,
    Import,
    Keyword,
    Moved,
    OfExpression,
    Parameter,
    Remove,
    Replace,
    Rewrite,
)
from autofast.edit.import_names import with_names
from autofast.edit.items import (
    Room,
    drop_argument,
    drop_element,
    drop_keyword,
    set_item,
    set_keyword,
)
from autofast.edit.locate import Places, children
from autofast.edit.merge import anchors, holes_of, identity, keeps_anchor
from autofast.edit.parens import bare, fitted, parenthesised
from autofast.edit.toplevel import BEFORE_ALL, Addition, additions, must_stay_above
from autofast.model.several import any_in, of_kind
from autofast.model.source import ancestors

WRAPPED = re.compile(r"(?i:\b(?:wrap|convert|turn|make|transform|put|to)\b).*\bVariables?\b")
BELOW_IMPORTS = -1  # comes before everything of another rank, as what follows may need it


@dataclass
class Ground:
    """What all walks over one file share."""

    places: Places
    style: snippet.Style
    limit: int
    # A statement, what is done in it -> result.
    memo: dict[tuple[int, frozenset[int]], cst.CSTNode] = field(default_factory=dict)
    # A statement of the user's -> the comments in it, but for those in its blocks.
    remarks: dict[int, Lines] = field(default_factory=dict)
    _tokens: dict[object, int] = field(default_factory=dict)

    def token(self, wish: object) -> int:
        """A number for something that is to be done: the same one in every walk."""
        return self._tokens.setdefault(wish, len(self._tokens))


class EditPass(cst.CSTTransformer):
    """One walk over the tree. ``work`` and ``inner`` hold what is to be done, by the id of the
    original node.
    """

    def __init__(self, ground: Ground, edits: Iterable[Edit]):
        super().__init__()
        edits = sorted(edits, key=lambda e: (e.rank, e.rule))
        self.ground, self.places, self.style = ground, ground.places, ground.style
        self.inner: dict[int, list[Edit]] = defaultdict(list)
        self.work: dict[int, Work] = defaultdict(Work)
        self.everything = tuple(_wish(edit) for edit in edits)
        # What is done in a node; no node without it is walked.
        self.inside: dict[int, set[int]] = defaultdict(set)
        self.quoted: dict[tuple[int, bool], cst.BaseExpression] = {}
        self.heads: dict[int, Placed] = {}  # the last below each condition that moves along
        for edit in edits:
            self._enter_inner(edit)
        for edit in sorted(edits, key=lambda e: isinstance(e, Moved)):  # with all done inside
            self._enter_statement(edit)
        self.first: list[cst.BaseStatement] = []
        self.joined: dict[int, tuple[str, ...]] = defaultdict(tuple)
        imports = of_kind(edits, Import)
        helpers = of_kind(edits, Helper)
        for addition in additions(self.places.source, imports, helpers):
            self._enter_addition(addition)

    def module(self) -> cst.Module:
        """The new tree of the file."""
        module = self.places.module.visit(self)
        assert isinstance(module, cst.Module)
        return module

    # ------------------------------------------------------------------------------- entering edits
    def _enter_inner(self, edit: Edit) -> None:
        """Edits of expressions and definitions."""
        node: cst.CSTNode
        match edit:
            case Keyword() | DropKeyword():
                node = self.places.expression(edit.call)
            case DropElement():
                node = self.places.expression(edit.outer)
            case DictItem():
                node = self.places.expression(edit.display)
            case OfExpression():
                node = self.places.expression(edit.expr)
            case Decorator() | Parameter():
                node = self.places.statement(edit.function)
            case _:
                return
        self.inner[id(node)].append(edit)
        self._open(node, self._token(edit))

    def _enter_statement(self, edit: Edit) -> None:
        """Edits of statements as a whole. Their code may quote expressions, so the edits inside
        these must be known.
        """
        nodes = [self.places.statement(a) for a in anchors(edit) if isinstance(a, ast.stmt)]
        if isinstance(edit, (Decorator, Parameter)) or not nodes:
            return
        work = self.work.setdefault(id(nodes[0]), Work())
        match edit:
            case Moved():
                work.before.append(self._placed(edit, work))
            case Before() if (above := must_stay_above(edit.stmt)) is not None:
                nodes = [self.places.statement(above)]
                self.work[id(nodes[0])].after.append(
                    Placed(BELOW_IMPORTS, edit.rule, self._statements(edit, edit.code))
                )
            case Before():
                work.before.append(Placed(edit.rank, edit.rule, self._statements(edit, edit.code)))
            case After():
                work.after.append(Placed(edit.rank, edit.rule, self._statements(edit, edit.code)))
            case Around():
                (head,) = self._statements(edit, f"{edit.header}\n    pass")
                assert isinstance(head, cst.BaseCompoundStatement)
                work.shells.append(Shell(edit.rank, edit.rule, id(nodes[1]), head))
            case Replace():
                work.instead = self._statements(edit, edit.code)
            case Remove():
                work.removed, work.moved = True, edit.moved
            case Header():
                work.unwrapped = True
        for node in nodes:
            self._open(node, self._token(edit))

    def _placed(self, edit: Moved, work: Work) -> Placed:
        """A statement that moves, below its condition, which it shares with the one before."""
        body = [self._moved(edit)]
        if not edit.code:
            return Placed(edit.rank, edit.rule, body)
        (head,) = self._statements(edit, f"{edit.code}\n    pass")
        assert isinstance(head, cst.If)
        last, test = work.before[-1:], id(edit.holes["test"])
        if last and self.heads.get(test) is last[0]:
            (above,) = work.before.pop().body
            body = [*above.body.body, *body]  # type: ignore[attr-defined]
        made = [head.with_changes(body=head.body.with_changes(body=body))]
        self.heads[test] = Placed(edit.rank, edit.rule, made)
        return self.heads[test]

    def _moved(self, edit: Moved) -> cst.BaseStatement:
        """The line of a statement as all edits inside leave it, with the comments that are its
        own; its place loses these.
        """
        old = self.places.statement(edit.moved)
        line: cst.CSTNode = old
        if isinstance(old, cst.BaseSmallStatement):
            line = next(self.places.ancestors(old))
        alone = line is old or len(getattr(line, "body", ())) == 1
        lead = split(list(getattr(line, "leading_lines", ())))[1] if alone and edit.led else []
        self.work[id(old)].taken = lead
        if alone and not isinstance(line, cst.SimpleStatementSuite):
            made = line.visit(self)
            assert isinstance(made, cst.BaseStatement)
            return made.with_changes(leading_lines=[x for x in lead if x.comment is not None])
        part = old.visit(self)
        assert isinstance(part, cst.BaseSmallStatement)
        return cst.SimpleStatementLine([part.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])

    def _enter_addition(self, addition: Addition) -> None:
        if addition.names:
            there = self.places.statement(self.places.source.tree.body[addition.after])
            self.joined[id(there)] += addition.names
            self._open(there, self.ground.token(addition))
            return
        body = snippet.block(addition.code, self.style)
        tree, token = self.places.source.tree, self.ground.token(addition)
        if addition.leads:
            node = self.places.statement(tree.body[addition.after + 1])
            self.work[id(node)].before.append(Placed(BELOW_IMPORTS, "", body))
            self._open(node, token)
        elif addition.after == BEFORE_ALL:
            self.first += body
            self.inside[id(self.places.module)].add(token)
        else:
            node = self.places.statement(tree.body[addition.after])
            self.work[id(node)].after.append(Placed(BELOW_IMPORTS, "", body))
            self._open(node, token)

    def _open(self, node: cst.CSTNode, token: int) -> None:
        """Open the path to ``node``; ``token`` stands for what is done there."""
        self.inside[id(node)].add(token)
        for outer in self.places.ancestors(node):
            self.inside[id(outer)].add(token)

    def _token(self, edit: Edit) -> int:
        """What the result of ``edit`` depends on: where it quotes an expression from elsewhere, on
        all edits there may be in that.
        """
        within = set(anchors(edit))
        at_home = all(any_in((hole, *ancestors(hole)), within) for hole in holes_of(edit).values())
        at_home = at_home and not isinstance(edit, Moved)
        return self.ground.token(_wish(edit) if at_home else (_wish(edit), self.everything))

    def _statements(self, edit: Edit, code: str) -> list[cst.BaseStatement]:
        return snippet.statements(code, self.style, lambda name: self._quoted(edit, name))

    def _quoted(self, edit: Edit, name: str) -> cst.BaseExpression:
        """What stands in the hole ``name``: the expression with all the edits inside it."""
        if name not in holes_of(edit):
            raise snippet.TemplateError(f"{edit.rule}: no expression for the hole {{{name}}}")
        node = self.places.expression(holes_of(edit)[name])
        hoisted = isinstance(edit, (Before, After, Around)) and self._moves_out(edit, node)
        key = id(node), hoisted
        if key not in self.quoted:
            result = self._before_rewrite(node) if hoisted else node.visit(self)
            assert isinstance(result, cst.BaseExpression)
            self.quoted[key] = result
        return self.quoted[key]

    def _moves_out(self, edit: Edit, node: cst.CSTNode) -> bool:
        """Whether the rule that quotes ``node`` leaves something else in its place, as in ``x =
        {node}`` before and ``x`` there.
        """
        return any(
            not keeps_anchor(e) and e.rule == edit.rule
            for e in of_kind(self.inner.get(id(node), ()), Rewrite)
        )

    def _before_rewrite(self, node: cst.CSTNode) -> cst.CSTNode:
        """``node`` with the edits that its place loses; what is put around it stays in that
        place.
        """
        edits = self.inner[id(node)]
        self.inner[id(node)] = [e for e in edits if not isinstance(e, OfExpression)]
        result = node.visit(self)
        self.inner[id(node)] = edits
        assert isinstance(result, cst.CSTNode)
        return result

    # ------------------------------------------------------------------------------------- the walk
    def on_visit(self, node: cst.CSTNode) -> bool:
        return id(node) in self.inside and self._remembered(node) is None

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        if id(original_node) not in self.inside:
            return updated_node
        if (known := self._remembered(original_node)) is not None:
            return known
        result = self._left(original_node, updated_node)
        if isinstance(original_node, cst.BaseStatement):
            self.ground.memo[self._key(original_node)] = result
        return result

    def _remembered(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """What became of a statement when the same was done in it before."""
        return (
            self.ground.memo.get(self._key(node)) if isinstance(node, cst.BaseStatement) else None
        )

    def _key(self, node: cst.CSTNode) -> tuple[int, frozenset[int]]:
        return id(node), frozenset(self.inside[id(node)])

    def _left(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:
        if edits := self.inner.get(id(original_node)):
            updated_node = self._edited(original_node, updated_node, edits)
        match original_node, updated_node:
            case cst.Module() as old, cst.Module() as new:
                return self._module(old, new)
            case cst.IndentedBlock() as old, cst.IndentedBlock() as new if is_affected(
                old.body, self.work
            ) or any(map(is_left_idle, old.body, new.body)):
                return _indented(new, rebuilt(old.body, new.body, self.work))
            case cst.SimpleStatementSuite() as old, cst.SimpleStatementSuite() as new:
                return self._one_line_body(old, new)
            case cst.ImportFrom(), cst.ImportFrom() as new if id(original_node) in self.joined:
                return with_names(new, self.joined[id(original_node)])
            case _, cst.FormattedString() as new:
                return snippet.without_own_quotes(new)
            case cst.If() as old, cst.If() as new:
                return _without_false(
                    old, self._restored(old, _without_idle_else(old, self._elif(old, new)))
                )
            case (cst.SimpleStatementLine() | cst.BaseCompoundStatement()) as old, _:
                return _without_false(old, self._restored(old, updated_node))
        return updated_node

    def _edited(self, old: cst.CSTNode, node: cst.CSTNode, edits: Sequence[Edit]) -> cst.CSTNode:
        gone: list[int] = []  # the places of elements that stood in the display
        for edit in sorted(edits, key=_innermost_first):
            match edit, node:
                case Keyword(), cst.Call():
                    node = set_keyword(
                        node, edit.name, snippet.value(edit.value, self.style), self._room(old)
                    )
                case DictItem(), cst.Call():
                    node = set_keyword(
                        node, edit.name, snippet.value(edit.value, self.style), self._room(old)
                    )
                case DictItem(), cst.Dict():
                    node = set_item(
                        node,
                        edit.name,
                        snippet.value(edit.value, self.style),
                        self.style.quote,
                        self._room(old),
                    )
                case DropKeyword(), cst.Call():
                    node = drop_keyword(node, edit.name)
                case DropElement(outer=ast.Call(args=elements)), cst.Call():
                    place = elements.index(edit.element)
                    node = drop_argument(node, place - sum(n < place for n in gone))
                    gone.append(place)
                case DropElement(outer=ast.List(elts=elements)), cst.List():
                    place = elements.index(edit.element)
                    node = drop_element(node, place - sum(n < place for n in gone))
                    gone.append(place)
                case ((OfExpression()), cst.BaseExpression()):
                    node = self._templated(edit, old, node)
                case Decorator(), cst.FunctionDef():
                    node = self._decorated(edit, node)
                case Parameter(), cst.FunctionDef():
                    default = snippet.value(edit.default, self.style)
                    node = signatures.add_parameter(node, edit.name, default)
        if isinstance(old, cst.BaseExpression) and isinstance(node, cst.BaseExpression):
            return self._in_place(old, node)
        return node

    def _templated(
        self, edit: OfExpression, old: cst.CSTNode, node: cst.BaseExpression
    ) -> cst.BaseExpression:
        def fill(name: str) -> cst.BaseExpression:
            if name == snippet.ITSELF or holes_of(edit).get(name) is edit.expr:
                if isinstance(old, cst.BaseExpression) and self.places.touches_word(old):
                    return bare(node)
                return node
            return self._quoted(edit, name)

        return snippet.expression(edit.template, self.style, fill)

    def _in_place(self, old: cst.BaseExpression, node: cst.BaseExpression) -> cst.BaseExpression:
        """``node`` with the parentheses that the place of ``old`` needs."""
        if self.places.touches_word(old):
            return node if node.lpar else parenthesised(node)
        # those of a part, which the whole that it is now does not need
        alone = node if old.lpar else bare(node)
        return fitted(alone, old, list(self.places.ancestors(old)))

    def _decorated(self, edit: Decorator, node: cst.FunctionDef) -> cst.FunctionDef:
        decorator = snippet.value(edit.code.removeprefix("@"), self.style)
        if edit.old is None:
            return signatures.add_decorator(node, decorator)
        index = next(n for n, d in enumerate(edit.function.decorator_list) if d is edit.old)
        return signatures.replace_decorator(node, index, decorator)

    def _room(self, node: cst.CSTNode) -> Room:
        return Room(self.places.indent_of(node), self.ground.limit, self.style.tight)

    # --------------------------------------------------------------------------------------- blocks
    def _module(self, old: cst.Module, new: cst.Module) -> cst.Module:
        idle = any(map(is_left_idle, old.body, new.body))
        if not self.first and not idle and not is_affected(old.body, self.work):
            return new
        header, lead = _split_header(new.header) if old.body else (list(new.header), [])
        block = rebuilt(
            old.body, new.body, self.work, at_top=True, first=self.first, first_lead=lead
        )
        ended = new.has_trailing_newline or not old.body
        return new.with_changes(
            header=header,
            body=block.body,
            footer=[*block.rest, *new.footer],
            has_trailing_newline=ended,
        )

    def _one_line_body(
        self, old: cst.SimpleStatementSuite, new: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        """``for x in y: z`` becomes a block where something is to be done to ``z`` as a whole."""
        before, after = suite_as_line(old), suite_as_line(new)
        if not is_affected([before], self.work):
            return new
        return _indented(cst.IndentedBlock(body=[]), rebuilt([before], [after], self.work))

    def _elif(self, old: cst.If, new: cst.If) -> cst.If:
        """``elif`` becomes ``else`` and ``if`` where something is to be done to the second ``if``
        as a whole.
        """
        if (
            not isinstance(old.orelse, cst.If)
            or not isinstance(new.orelse, cst.If)
            or id(old.orelse) not in self.work
        ):
            return new
        lead = new.orelse.leading_lines
        block = rebuilt([old.orelse], [new.orelse.with_changes(leading_lines=())], self.work)
        return new.with_changes(
            orelse=cst.Else(_indented(cst.IndentedBlock(body=[]), block), leading_lines=lead)
        )

    def _restored(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
        """``new`` with the comments that a template left out of the statement ``old`` in lines
        above it.
        """
        if new is old:
            return new
        known = self.ground.remarks
        if id(old) not in known:
            known[id(old)] = [x for part in _own_parts(old) for x in comment_lines(part)]
        if not known[id(old)]:
            return new
        kept = [c.value for c in _own_comments(new)]
        lost: Lines = []
        for line in known[id(old)]:
            assert line.comment is not None
            if line.comment.value in kept:
                kept.remove(line.comment.value)
            else:
                lost.append(line)
        if not lost:
            return new
        return new.with_changes(leading_lines=[*new.leading_lines, *lost])  # type: ignore[attr-defined]


def _without_false(old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
    """A statement without remarks above it that speak of wrapping in ``Variable``, where it does so
    no more.
    """
    lead = getattr(new, "leading_lines", ())
    kept = [x for x in lead if x.comment is None or not WRAPPED.search(x.comment.value)]
    if new is old or len(kept) == len(lead):
        return new
    told: list[Any] = [n.with_changes(leading_lines=()) for n in (old, new)]
    before, after = ("Variable(" in cst.Module([n]).code for n in told)
    return told[1].with_changes(leading_lines=kept) if before and not after else new


def _wish(edit: Edit) -> object:
    """Equal for edits of which one can stand for the other, also in another plan."""
    return edit.rule, identity(edit)


def _innermost_first(edit: Edit) -> tuple[int, int, str]:
    """Changes of an expression, then what replaces it, then what is put around it."""
    stage = 0
    if isinstance(edit, OfExpression):
        stage = 2 if keeps_anchor(edit) else 1
    return stage, edit.rank, edit.rule


def _indented(block: cst.IndentedBlock, new: Block) -> cst.IndentedBlock:
    if new.body:
        rest = new.rest if any(line.comment for line in new.rest) else []
        return block.with_changes(body=new.body, footer=[*rest, *block.footer])
    idle = cst.SimpleStatementLine([cst.Pass()], leading_lines=new.rest)
    return block.with_changes(body=[idle])


def _without_idle_else(old: cst.If, new: cst.If) -> cst.If:
    """Without an ``else:`` in which nothing is left to do, or to read."""
    if not isinstance(new.orelse, cst.Else) or not isinstance(old.orelse, cst.Else):
        return new
    if not does_nothing(new.orelse.body) or does_nothing(old.orelse.body):
        return new
    return new.with_changes(orelse=None)


def _split_header(header: Sequence[cst.EmptyLine]) -> tuple[Lines, Lines]:
    """The comments of the file, and those that belong to its first statement: set off by a blank
    line from the former.
    """
    lines = list(header)
    n = len(lines)
    while n and lines[n - 1].comment is not None:
        n -= 1
    return (lines[:n], lines[n:]) if n else (lines, [])


def _own_parts(statement: cst.CSTNode) -> list[cst.CSTNode]:
    """A simple statement's parts, or a compound statement's without its blocks."""
    return [
        part
        for part in children(statement)
        if not isinstance(part, (cst.BaseSuite, cst.If, cst.Else, cst.Finally, cst.ExceptHandler))
    ]


def _own_comments(statement: cst.CSTNode) -> list[cst.Comment]:
    return [comment for part in _own_parts(statement) for comment in comments(part)]
