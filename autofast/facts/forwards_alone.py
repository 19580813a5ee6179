"""The forward passes of a region by themselves, where what stands between them and the loss cannot
run under autocast.
"""

from __future__ import annotations

import ast
from itertools import takewhile

from autofast.facts.forwards import Region
from autofast.flow.positions import nodes_of
from autofast.model.calls import arguments_of, short_name
from autofast.model.several import all_of, any_in, any_of, grouped, wordset
from autofast.model.source import ancestors, parent_of, statement_of
from autofast.model.syntax import PAUSES, SEQUENCES, SIMPLE
from autofast.ops.families import REGROUPING

# What has run, with all in it, when the statement around it ends.
WITHIN = (
    *SEQUENCES,
    *(ast.ListComp, ast.comprehension, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.IfExp),
    *(ast.Subscript, ast.Attribute, ast.Starred),
)
# Of what the list is made, and what is made of it.
PLAIN = wordset("cat stack split chunk list tuple range len zip enumerate append extend")


def forwards_alone(region: Region) -> list[Region]:
    """A region for each statement with forward passes: the statement, where it only binds the
    result or makes a list of them, else the calls, taken out of it.

    The statements may stand in functions that the region calls. Empty where a call does not run
    first in its statement.
    """
    calls = [c for c in region.forwards if not _is_inside_another(c, region.forwards)]
    statements = grouped((statement_of(call), call) for call in calls)
    found: list[Region] = []
    for together in statements.values():
        stmt = statement_of(together[0])
        made = Region(
            region.home,
            stmt,
            stmt,
            list(together),
            list(together),
            region.things,
            hoisted=[] if _only_binds(stmt, together) else together,
            is_forward_only=True,
        )
        if made.hoisted and not _come_first(stmt, together):
            if not all(_runs_within(stmt, call, calls) for call in together):
                return []
            made.hoisted = []
        found.append(made)
    return found


def _is_inside_another(call: ast.Call, calls: list[ast.Call]) -> bool:
    return any(call is not c and call in nodes_of([c]) for c in calls)


def _only_binds(stmt: ast.stmt, calls: list[ast.Call]) -> bool:
    return isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is calls[0]


def _runs_within(stmt: ast.stmt, call: ast.Call, calls: list[ast.Call]) -> bool:
    """Whether a call in the list that a simple statement builds has run when that ends, and the
    statement computes nothing else: ``return torch.cat([net(part) for part in parts])``.
    """
    around = list(takewhile(lambda n: n is not stmt, ancestors(call)))
    others = (n for n in ast.walk(stmt) if isinstance(n, ast.Call) and n not in calls)
    return (
        isinstance(stmt, SIMPLE)
        and any_of(around, ast.ListComp)
        and all_of(around, *WITHIN)
        and not any_of(ast.walk(stmt), *PAUSES, ast.MatMult)
        and all(short_name(n.func) in REGROUPING | PLAIN for n in others)
    )


def _come_first(stmt: ast.stmt, calls: list[ast.Call]) -> bool:
    """Whether the calls can run before all else that the statement does, in their order."""
    return isinstance(stmt, SIMPLE) and all(_comes_first(c, stmt, calls) for c in calls)


def _comes_first(call: ast.AST, stmt: ast.stmt, calls: list[ast.Call]) -> bool:
    node: ast.AST = call
    while (parent := parent_of(node)) is not stmt:
        match parent:
            case ast.Call():
                arguments = arguments_of(parent)
                before = [] if parent.func is node else [parent.func, *_up_to(node, arguments)]
            case ast.BinOp() | ast.Subscript():
                first = parent.left if isinstance(parent, ast.BinOp) else parent.value
                before = [] if first is node else [first]
            case ast.Tuple() | ast.List():
                before = _up_to(node, parent.elts)
            case ast.Attribute() | ast.UnaryOp() | ast.Starred() | ast.keyword():
                before = []
            case _:
                return False  # it may not run at all, or several times
        if not all(_is_plain(n, calls) for n in before):
            return False
        node = parent
    return True


def _up_to(node: ast.AST, exprs: list[ast.expr]) -> list[ast.expr]:
    """The expressions before the one that is ``node``, or the value of that keyword."""
    wanted = node.value if isinstance(node, ast.keyword) else node
    return exprs[: next((n for n, e in enumerate(exprs) if e is wanted), len(exprs))]


def _is_plain(expr: ast.AST, calls: list[ast.Call]) -> bool:
    """Reading it neither changes anything nor can be changed by a forward pass; a call that moves
    along is no longer there.
    """
    if expr in calls:
        return True
    match expr:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute(value=inner) | ast.UnaryOp(operand=inner) | ast.Starred(value=inner):
            return _is_plain(inner, calls)
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            return all(_is_plain(e, calls) for e in elts)
        case ast.Call(func=ast.Attribute(value=made), args=args) if _holds_one_of(made, calls):
            return all(_is_plain(e, calls) for e in (made, *args))  # netD(x).view(-1)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[], keywords=[]):
            return name.endswith("Loss")  # nn.BCELoss() draws nothing
        case ast.BinOp(left=left, right=right):
            return _is_plain(left, calls) and _is_plain(right, calls)
    return False


def _holds_one_of(expr: ast.expr, calls: list[ast.Call]) -> bool:
    inside = nodes_of([expr])
    return any_in(calls, inside)
