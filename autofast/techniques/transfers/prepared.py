"""What ``__getitem__`` computes again for the same item in every epoch: the constructor does it
once, and the item takes it by its index."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.edit.edits import After, Edit, Remove, Rewrite
from autofast.edit.order import Rank
from autofast.facts.arrays import array_of, held_under
from autofast.facts.item_constants import ItemReads, Items, OfItems, items_of
from autofast.flow.program import Flow, holder_of
from autofast.flow.scopes import binds, mentions, own_nodes
from autofast.model.calls import arguments_of, is_method, keyword_of, only_target, variable_name
from autofast.model.script import Script
from autofast.model.several import all_of, is_numeric, of_kind, one, surely, wordset
from autofast.model.source import (
    contains_kind,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
    within_any,
    within_statement,
)
from autofast.model.syntax import is_attribute
from autofast.rule import Effect
from autofast.techniques.transfers.constants import class_of, is_stored_whole
from autofast.techniques.transfers.files_of_items import of_files
from autofast.techniques.transfers.kept import Prepared, at_end, name_of, taken, text_of
from autofast.techniques.transfers.per_item import of_each, of_numbers, of_slices
from autofast.techniques.transfers.whole_items import whole_items

# Functions of NumPy that compute each number for itself, the same in a row and in the whole array.
WORK = wordset(
    "log log2 log10 log1p exp exp2 expm1 sqrt cbrt sin cos tan arcsin arccos arctan sinh cosh tanh "
    "arcsinh arctanh",
    "numpy.",
)
EACH = WORK | wordset(
    "abs absolute fabs negative square sign maximum minimum clip where isnan isinf isfinite floor ceil "
    "logical_not logical_and logical_or float32 float64",
    "numpy.",
)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def prepared(script: Script, slots: Iterable[tuple[ast.AST, str] | None]) -> Iterator[Prepared]:
    """One for each expression that the constructor can compute for all items; ``slots`` are taken
    by others."""
    taken = {*slots}
    for items in items_of(script):
        cls = class_of(script, items.getitem)
        if cls is not None and not is_stored_whole(script, cls):
            made = False
            for form in (
                _read,
                _each_number,
                of_each,
                of_slices,
                of_numbers,
                of_files,
                whole_items,
            ):
                for found in form(items) if form is not whole_items or not made else ():
                    made = True
                    slot = items.init, found.name
                    if (not found.name or slot not in taken) and not any(
                        binds(items.init, n.id) and all_of([holder_of(n)], ast.Module)
                        for n in nodes_in(found.node, ast.Name)
                    ):
                        taken.add(slot)
                        yield found


# ------------------------------------------------------------------------------- files of all items
def _read(items: Items) -> Iterator[Prepared]:
    """An array of an open file, or a whole file, that every item reads again."""
    for node in own_nodes(items.getitem):
        held: ast.Attribute | None = None
        match node:
            case ast.Subscript(value=ast.Attribute() as held, slice=key) if items.holds_file(held):
                said, parts = items.script.constant(key), list[ast.expr]([held])
                if not isinstance(said, str):
                    continue
            case ast.Subscript(value=ast.Call() as call, slice=key) if items.reads_file(call):
                said, parts = items.script.constant(key), arguments_of(call)
                if not isinstance(said, str):
                    continue
            case ast.Call() if items.reads_file(node) and not items.is_unpacked(node):
                said, parts = "data", arguments_of(node)
            case _:
                continue
        name = name_of(items, node, said)
        if (
            name is not None
            and (held is not None or items.files_stay)
            and surely(OfItems(items).holds(p, items.getitem) for p in parts)
            and not ItemReads(items).follow(node, None)
        ):
            code, edits = text_of(node), list[Edit]()
            if held is not None and (uses := _of_constructor(items, held)) is not None:
                code = text_of(node, {held: held.attr})
                edits = [Rewrite(n, held.attr) for n in uses]
            yield Prepared(
                node, name, (at_end(items, name, code), taken(items, node, name), *edits)
            )


def _of_constructor(items: Items, held: ast.Attribute) -> list[ast.Attribute] | None:
    """The other places of an attribute that only the constructor needs then: it can be a variable
    there."""
    uses = [n for n in items.script.each(ast.Attribute) if n.attr == held.attr and n is not held]
    own = all(function_of(n) is items.init for n in uses)
    return uses if own and not mentions(items.init, held.attr) else None


# --------------------------------------------------------------------------------- number by number
def _each_number(items: Items) -> Iterator[Prepared]:
    """``np.log1p(self.rows[index])``"""
    script, seen = items.script, set[ast.AST]()
    for call in of_kind(own_nodes(items.getitem), ast.Call):
        if script.library_name(call.func) not in WORK or within_any(call, seen):
            continue
        whole: ast.expr = call
        for outer in within_statement(call):
            whole = outer if _is_each(items, outer) else whole  # type: ignore[assignment]
        seen.add(whole)
        if found := _instead(items, whole):
            yield found


def _is_each(items: Items, expr: ast.AST) -> bool:
    script = items.script
    match expr:
        case ast.Constant(value=value):
            return is_numeric(value)
        case ast.Name() | ast.Subscript() if items.row_of(expr) is not None:
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr="astype"), args=[_], keywords=[]):
            return _is_each(items, inner)
        case ast.Call(args=args, keywords=[]):
            known = script.library_name(expr.func) in EACH
            return known and all(_is_each(items, a) for a in args)
        case ast.BinOp(left=left, op=op, right=right):
            return isinstance(op, ARITHMETIC) and _is_each(items, left) and _is_each(items, right)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _is_each(items, inner)
        case ast.Compare(left=left, comparators=[right]):
            return _is_each(items, left) and _is_each(items, right)
    return False


def _instead(items: Items, whole: ast.expr) -> Prepared | None:
    script, rows = items.script, items.rows_in(whole)
    held = [row.value for row in rows.values()]
    name = one({*map(items.name_of, held)})
    if not name or not items.is_array(held[0]):
        return None
    made = one({*held_under(script, next(iter(items.things)), name)})
    others = [n for n in items.reads(name) if n not in held and not _is_measured(script, n)]
    known, effect = OfItems(items, rows), _effect(items, whole, held[0])
    if (
        made is None
        or others
        or statement_of(made) not in items.init.body
        or only_target(statement_of(made)) is None
        or effect is None
        or not known.holds(whole, items.getitem)
    ):
        return None
    row = next(iter(rows.values()))
    edits: list[Edit] = [Rewrite(whole, text_of(row))]
    bound = {statement_of(r) for n, r in rows.items() if n is not r}
    flow = script.analysis(Flow)
    uses = (n for v in rows for n in mentions(items.getitem, variable_name(v)) if n not in rows)
    if any(d.statement in bound for n in uses for d in flow.reaching(n)):
        return None
    edits += map(Remove, bound)
    if len(rows) == 1 or variable_name(made):
        code = text_of(whole, dict.fromkeys(rows, "{made}"))
        edits.append(Rewrite(made, code, {"made": made}))
    else:
        code = text_of(whole, dict.fromkeys(rows, f"{items.this}.{name}"))
        edits.append(After(statement_of(made), f"{items.this}.{name} = {code}", rank=Rank.MOVED))
    return Prepared(whole, name, tuple(edits), effect)


def _is_measured(script: Script, held: ast.expr) -> bool:
    up = parent_of(held)
    return is_attribute(up, "shape", "ndim") or script.is_call(up, "builtins.len")


def _effect(items: Items, whole: ast.expr, held: ast.expr) -> Effect | None:
    """Rows that are numbers are not rounded as arrays are, nor of the same type, once they meet
    numbers of Python."""
    known = array_of(items.script, held)
    deep = known is not None and known.rank is not None and known.rank > 1
    if deep or not contains_kind(whole, ast.Constant, ast.Pow):
        return Effect.EXACT
    typed = items.script.is_call(up := parent_of(whole), "torch.tensor") and keyword_of(up, "dtype")
    return Effect.ROUNDING if typed or is_method(whole, "astype") else None
