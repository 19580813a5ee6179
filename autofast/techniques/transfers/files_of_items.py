"""Files that items read and decode again in every epoch: the constructor reads each once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import repeat

from autofast.edit.edits import Edit, Remove, Rewrite, Wrap
from autofast.facts.cost.items import READING, least
from autofast.facts.item_constants import ItemReads, Items, OfItems
from autofast.flow.program import Flow
from autofast.flow.scopes import mentions, own_nodes
from autofast.model.calls import call_of, only_target, variable_name
from autofast.model.script import Script
from autofast.model.several import all_of, of_kind, wordset
from autofast.model.source import parent_of, statement_of, within_any
from autofast.model.syntax import is_attribute, is_read
from autofast.techniques.transfers.kept import Prepared, at_end, name_of, text_of
from autofast.techniques.transfers.per_item import Element

SLOW = 0.5e-3  # seconds of an item, from where on it is said
NAMELESS = 3  # letters of a name that says something
OF_ARRAYS = wordset("shape dtype ndim astype copy reshape transpose T mean max min")
COMPUTING = ("numpy.", "torch.")
ASK = "ask for it, where all of them fit into memory: `autofast rewrite --select cache-constant` keeps each"
BY_HAND = (
    "where all of them fit into memory, keep in the constructor what is read, before anything is "
    "drawn or changed; or write it once as .npy files"
)


def of_files(items: Items) -> Iterator[Prepared]:
    """``np.load(self.paths[index])``, ``Image.open(self.folder / name).convert("RGB")``"""
    taken, edits, gone = set[str](), list[Edit](), list[ast.expr]()
    first: ast.expr | None = None
    moved = set[ast.stmt]()
    for call in of_kind(own_nodes(items.getitem), ast.Call):
        if not items.reads_or_decodes(call):
            continue
        first = first or call
        made = _kept(items, call, taken)
        if made is not None:
            whole, name, new, needed = made
            edits += new
            gone.append(whole)
            moved |= needed
            taken.add(name)
    if first is None:
        return
    seconds = least(items.script, items.datasets[0], READING)
    takes = f"files take {seconds * 1e3:.2g} ms an item, as usual: "
    if gone:
        edits += _idle(items, gone, moved)
        yield Prepared(gone[0], "", tuple(edits), advice=takes + ASK)
    elif seconds >= SLOW:
        yield Prepared(first, "", (), advice=takes + BY_HAND)


def _kept(
    items: Items, call: ast.Call, taken: set[str]
) -> tuple[ast.expr, str, list[Edit], set[ast.stmt]] | None:
    whole, element = _whole(items, call), Element(items, anywhere=True)
    places = _places(items, whole)
    unpacked = whole is call and items.is_unpacked(call)
    members = of_kind(map(parent_of, places), ast.Subscript) if unpacked else []
    name = _name(items, whole, bool(members))
    known = OfItems(items, element.places, files=True)
    if (
        name is None
        or name in taken
        or len(members) not in (0, len(places))
        or not (members or _is_decoded(items, call, whole, places))
        or not element.takes(whole)
        or element.of is None
        or element.index is None
        or not all(known.holds(e, items.getitem) for e in (whole, *element.moved.values()))
    ):
        return None
    code = f"dict({element.code(whole)})" if members else element.code(whole)
    made = f"[{code} for {element.target} in {items.this}.{items.name_of(element.of)}]"
    again = f"{items.this}.{name}[{text_of(element.index)}]"
    copied = '.copy("K")' if items.script.is_call(call, "numpy.load") else ".copy()"
    edits: list[Edit] = [at_end(items, name, made)]
    if members:
        edits += [Wrap(m, f"{{}}{copied}") for m in members if ItemReads(items).follow(m, None)]
    elif ItemReads(items).follow(whole, None):
        again += copied
    bound = {statement_of(n) for n in (*element.moved.values(), *element.bound)}
    return whole, name, [*edits, Rewrite(whole, again)], bound


def _places(items: Items, whole: ast.expr) -> list[ast.expr]:
    """Where what is read is used."""
    target = only_target(statement_of(whole))
    if not variable_name(target) or getattr(statement_of(whole), "value", None) is not whole:
        return [whole]
    flow = items.script.analysis(Flow)
    return [
        n
        for n in mentions(items.getitem, variable_name(target))
        if is_read(n) and flow.value(n) is whole
    ]


def _is_decoded(items: Items, call: ast.Call, whole: ast.expr, places: list[ast.expr]) -> bool:
    """Whether it is there as a whole, not as an open file."""
    if items.script.is_call(call, "PIL.Image.open"):
        return whole is not call
    if whole is not call or not items.script.is_call(call, "numpy.load"):
        return not all_of([parent_of(whole)], ast.withitem)
    return any(map(_is_array, repeat(items.script), map(parent_of, places)))


def _is_array(script: Script, user: ast.AST | None) -> bool:
    match user:
        case ast.BinOp():
            return True
        case ast.Call(func=func):
            return script.library_name(func).startswith(COMPUTING)
    return is_attribute(user, *OF_ARRAYS)


def _name(items: Items, whole: ast.expr, unpacked: bool) -> str | None:
    """A free name for what is read of all files: ``images`` of ``image``."""
    name = variable_name(only_target(statement_of(whole)))
    plural = name if name.endswith("s") else f"{name}s"
    plain = len(name) < NAMELESS or name == "data" or getattr(parent_of(whole), "value", 0) != whole
    return name_of(items, None, "arrays" if unpacked else "loaded" if plain else plural)


def _idle(items: Items, gone: list[ast.expr], moved: set[ast.stmt]) -> Iterator[Edit]:
    """Statements that nothing needs any more."""
    flow, left = items.script.analysis(Flow), {*moved}
    while True:
        used = {
            d.statement
            for n in of_kind(own_nodes(items.getitem), ast.Name)
            if is_read(n) and not within_any(n, [*gone, *left])
            for d in flow.reaching(n)
        }
        if not left & used:
            return map(Remove, left)
        left -= used


def _whole(items: Items, call: ast.Call) -> ast.expr:
    """With what makes less, or something else, of it at once: ``.astype(np.float32)``,
    ``.convert("RGB")``, ``["images"]``."""
    match up := parent_of(call):
        case ast.Subscript(value=value, slice=key) if value is call and isinstance(
            items.script.constant(key), str
        ):
            return _whole(items, up)  # type: ignore[arg-type]
        case ast.Attribute(attr="astype" | "convert") if method := call_of(up):
            return _whole(items, method)
    return call
