"""Functions of Python's library that go through what they are given: ``zip``, ``map``, ``sorted``,
``itertools``, ``random``.
"""

from __future__ import annotations

from autofast.model.contents import elements
from autofast.model.events import LoopFrame
from autofast.model.names import COLLATES, last_part
from autofast.model.several import all_known
from autofast.model.tensors import mixed, tensors_in
from autofast.model.values import (
    COLLECTIONS,
    COUNT,
    NONE,
    NOTHING,
    NUMBER,
    Arg,
    Arguments,
    Cls,
    Const,
    Ext,
    Func,
    Given,
    Inst,
    Num,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    all_of,
    any_of,
    is_const,
    of_kind,
    one,
    result_of,
    things as values,
)
from autofast.model.values.thing import Row
from autofast.read.library import protocols
from autofast.read.library.containers import copied, row_of, seq_method, shuffle
from autofast.read.library.iteration import Collation, following, iterate, loaders_in
from autofast.read.library.table import first_of, gives_for
from autofast.read.state.core import Core

EACH = """builtins.enumerate builtins.iter builtins.reversed tqdm.tqdm itertools.cycle itertools.islice itertools.chain itertools.chain.from_iterable
rich.progress.track progressbar.progressbar fastprogress.progress_bar tqdm.std.tqdm itertools.repeat ultralytics.utils.TQDM""".split()
COPIES = "builtins.list builtins.tuple builtins.set collections.deque".split()
ORDERED = "builtins.sorted heapq.nlargest heapq.nsmallest".split()
KEYED = [*ORDERED, "builtins.min", "builtins.max", "itertools.groupby"]
SOME = "builtins.filter itertools.filterfalse itertools.takewhile itertools.dropwhile".split()
FOLDS = "builtins.sum builtins.max builtins.min math.fsum".split()
COMBINES = """itertools.product itertools.combinations itertools.permutations
itertools.combinations_with_replacement""".split()


@gives_for(*COLLATES)
def _collated(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    rows = iterate(interp, first_of(args) or args.get(0, "batch"), node)
    return Collation(interp, frozenset(), "batch", node).every(rows)


@gives_for(*KEYED)
def _key(interp: Core, name: str, args: Arguments, node: Where) -> None:
    """``key=f`` is called for all elements, whatever is made of them."""
    if "key" in args.named:
        by = Arguments(node, [Given(iterate(interp, _compared(name, args), node), None)])
        protocols.run_often(interp, args.named["key"].values, by, node)


def _compared(name: str, args: Arguments) -> Values:
    return args.get(1, "iterable") if name.startswith("heapq.") else first_of(args)


@gives_for(*ORDERED)
def _ordered(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    each = iterate(interp, _compared(name, args), node)
    return values(row_of(interp, (node, name), node, each))


@gives_for(*EACH)
def _each(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    over = first_of(args)
    if name == "itertools.chain":
        over = NOTHING.union(*args.placed)
    over = over or args.get(0, "iterable")
    if name == "itertools.chain.from_iterable":
        over = iterate(interp, over, node)
    if name != "builtins.enumerate":
        over = NOTHING.union(*(_within(thing, name, node) for thing in over))
    return values(
        interp.intern(Ext, (node, name, over), lambda: Ext(name, node, args, {"over": over}))
    )


def _within(thing: Thing, name: str, node: Where) -> Values:
    """What ``thing`` goes through where this very call made it: ``rows[i] = sorted(rows[i])`` in a
    loop does not nest without end.
    """
    if isinstance(thing, Ext) and thing.node is node and thing.name == name:
        return thing.attrs["over"]
    return values(thing)


@gives_for("builtins.zip")
def _zip(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    if args.loose == 0 and len(args.positional) == 1:
        return _transposed(interp, args.positional[0].values, node)
    parts = tuple(iterate(interp, g.values, node) for g in args.positional)
    row = interp.intern(Seq, (node, "row", len(parts)), lambda: Seq(node, parts, NOTHING, "tuple"))
    row.items = tuple(NOTHING.union(a, b) for a, b in zip(row.items or (), parts, strict=True))
    if not any(loaders_in(g.values) for g in args.positional):
        return values(
            interp.intern(Seq, (node, "zip"), lambda: Seq(node, None, values(row), "zipped"))
        )
    rows = interp.intern(Seq, (node, "rows"), lambda: Seq(node, None, values(row), "zip"))
    return values(
        interp.intern(Ext, (node, "zip"), lambda: Ext(name, node, args, {"over": values(rows)}))
    )


def _transposed(interp: Core, rows: Values, node: Where) -> Values:
    """``zip(*samples)``: all that stands first in them, all that stands second, ..."""
    exact = all_known(t.exact if isinstance(t, Seq) else None for t in rows)
    lengths = {len(items) for items in exact}
    if len(lengths) == 1:
        found: list[Values] = []
        for n in range(lengths.pop()):
            column = interp.intern(
                Seq, (node, "column", n), lambda: Seq(node, None, NOTHING, "tuple")
            )
            column.elem = NOTHING.union(column.elem, *(items[n] for items in exact))
            found.append(values(column))
        whole = interp.intern(
            Seq,
            (node, "columns", len(found)),
            lambda: Seq(node, tuple(found), NOTHING, "zipped"),
        )
        return values(whole)
    some = interp.intern(Seq, (node, "column"), lambda: Seq(node, None, NOTHING, "tuple"))
    some.elem = NOTHING.union(some.elem, iterate(interp, rows, node))
    return values(
        interp.intern(Seq, (node, "columns"), lambda: Seq(node, None, values(some), "zipped"))
    )


@gives_for("builtins.next")
def _next(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    first = first_of(args)
    if loaders := loaders_in(first):
        interp.emit("next", node, None, args, first, loaders=loaders)
    return following(interp, first, node) | (
        args.positional[1].values if len(args.positional) > 1 else NOTHING
    )


@gives_for(*COPIES)
def _copy(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    first, kind = first_of(args), last_part(name)
    single = one(first)
    if isinstance(single, Seq) and single.exact is not None:
        return values(copied(interp, single, node, kind))
    if any_of(first, Tensor):
        none = {"sure": False, "fresh": "", "param": ""}
        return frozenset(t.but(**none) if isinstance(t, Tensor) else t for t in first)
    elem = iterate(interp, first, node) if first else NOTHING
    return values(row_of(interp, (node, "copy"), node, elem, kind))


@gives_for("builtins.map")
def _map(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    if len(args.positional) < 2:
        return None
    first = first_of(args)
    elements = [Given(iterate(interp, g.values, node), None) for g in args.positional[1:]]
    single = one(args.positional[1].values)
    if isinstance(single, Seq) and single.exact is not None and len(args.positional) == 2:
        items = tuple(
            interp.call_values(first, Arguments(None, [Given(i, None)]), node) for i in single.exact
        )
        row = Seq(node, items, NOTHING, "lazy")
        return values(interp.intern(Seq, (node, "map", items), lambda: row))
    found = interp.call_values(first, Arguments(None, elements), node)
    return values(row_of(interp, (node, "map"), node, found, "lazy"))


@gives_for(*SOME)
def _filter(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    if len(args.positional) != 2:
        return None
    over = args.positional[1].values
    each = iterate(interp, over, node)
    protocols.run_often(interp, first_of(args), Arguments(node, [Given(each, None)]), node)
    if all_of(over, Seq):
        return values(row_of(interp, (node, "filter"), node, each, "lazy"))
    return over


@gives_for(*FOLDS)
def _folded(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """``sum(...)``, ``max(...)``, ``min(...)``: a tensor, a number, or one of the things that are
    compared.
    """
    given = [g.values for g in args.positional]
    alone = len(given) == 1 or name in ("builtins.sum", "math.fsum")
    folded = (
        NOTHING.union(*given) if not alone else {e for t in first_of(args) for e in elements(t)}
    )
    if (tensors := tensors_in(*given)) and not any_of(folded, *COLLECTIONS):
        made = mixed(tensors)
        plain = all(isinstance(t, Tensor) or is_const(t, int) for t in folded)
        return values(made if plain or made.dtype != "int" else made.but(dtype="?"))
    parts = iterate(interp, given[0], node) if given and alone else NOTHING.union(*given)
    things = frozenset(t for t in parts if not isinstance(t, (Num, Const, Arg)))
    rows = frozenset(of_kind(things, Seq)) if name == "builtins.sum" else NOTHING
    if rows:  # ``sum(lists, [])``
        whole = row_of(interp, (node, "sum"), node, iterate(interp, rows, node))
        return values(whole, *of_kind(things, Unknown))
    if name in ("builtins.max", "builtins.min"):
        return (
            things | args.get(-1, "default") | (NUMBER if things != parts or not parts else NOTHING)
        )
    return values(Num(), *of_kind(things, Unknown))


@gives_for("functools.reduce")
def _reduced(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """``reduce(f, items[, first])``: f gets what it gave before, and the next item."""
    each = iterate(interp, args.get(1, "iterable"), node)
    found = args.get(2, "initial") or each
    for _ in range(2):  # what it gives is what it gets
        given = Arguments(node, [Given(found, None), Given(each, None)])
        found |= interp.call_values(first_of(args), given, node)
    return found


@gives_for("builtins.len")
def _length(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """The lengths of tuples that are known one by one, and of lists where no loop makes or changes
    them; a number where there may be something else.
    """
    looped = interp.in_loop()
    every = (
        t.exact
        if isinstance(t, Seq)
        and (t.kind == "tuple" or t.kind == "list" and not (looped or any_of(t.made, LoopFrame)))
        else None
        for t in first_of(args)
    )
    lengths = frozenset(Const(len(items)) for items in all_known(every))
    return lengths or values(Num(scalar=True))


@gives_for("builtins.range")
def _range(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(interp.intern(Seq, (node, "range"), lambda: Seq(node, None, COUNT, "range")))


@gives_for(*COMBINES)
def _combined(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    parts = tuple(iterate(interp, g.values, node) for g in args.positional)
    plain = name == "itertools.product" and not args.named and args.loose is None
    made_of: tuple[Row | None, Values] = (
        (parts, NOTHING) if plain else (None, NOTHING.union(*parts))
    )
    row = interp.intern(
        Seq, (node, "row", made_of), lambda: Seq(node, made_of[0], made_of[1], "tuple")
    )
    return values(row_of(interp, (node, "rows"), node, values(row), "lazy"))


@gives_for("random.choice", "random.choices", "random.sample")
@gives_for("numpy.random.choice", "numpy.random.permutation")
def _drawn(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """Of objects, as they are; what NumPy draws of numbers is said with its functions."""
    drawn = iterate(interp, first_of(args) or args.get(0, "population"), node)
    if name.startswith("numpy.") and not any_of(drawn, Inst, Func, Cls):
        return None
    if name == "random.choice" or (name == "numpy.random.choice" and not args.get(1, "size")):
        return drawn
    return values(row_of(interp, (node, "drawn"), node, drawn))


@gives_for("heapq.heappush", "heapq.heappushpop", "heapq.heapreplace", "bisect.insort")
@gives_for("bisect.insort_left", "bisect.insort_right")
def _put(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    for thing in of_kind(first_of(args), Seq):
        seq_method(interp, thing, "insert", Arguments(node, args.positional[1:2]), node)
    gives_one = name in ("heapq.heappushpop", "heapq.heapreplace")
    return iterate(interp, first_of(args), node) if gives_one else NONE


@gives_for("heapq.heappop")
def _taken(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    found = [seq_method(interp, t, "pop", args, node) for t in of_kind(first_of(args), Seq)]
    return NOTHING.union(*found) or values(result_of(name))


@gives_for("random.shuffle", "numpy.random.shuffle")
def _shuffled(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    for thing in of_kind(first_of(args), Seq):
        shuffle(interp, thing)
    return NONE


@gives_for("os.listdir")
def _files(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(row_of(interp, (node, "files"), node, NUMBER))
