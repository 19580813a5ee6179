"""Builtins, containers, argparse, functools, itertools: the parts of Python's library that values pass through."""

from __future__ import annotations

import ast
import re

from autofast.model.tensors import mixed, tensors_in
from autofast.model.values import (
    NOTHING,
    Arg,
    Arguments,
    Const,
    Dict,
    Ext,
    Given,
    Inst,
    Located,
    Module,
    Num,
    Partial,
    Ref,
    Seq,
    Setting,
    Tensor,
    Thing,
    Unknown,
    Values,
    expand,
    joined,
    one,
    ordered,
    result_of,
)
from autofast.read.library import loaded_settings, module_parts, options, protocols
from autofast.read.library.containers import (
    copied,
    deep_copied,
    dict_method,
    dict_of,
    namespace_method,
    row_of,
    seq_method,
    shuffle,
)
from autofast.read.library.iteration import following, iterate, loaders_in
from autofast.read.search_paths import folder
from autofast.read.state.core import Core

WRAP = frozenset(
    "builtins.enumerate builtins.iter builtins.reversed builtins.sorted tqdm.tqdm itertools.cycle itertools.islice itertools.chain "
    "rich.progress.track progressbar.progressbar fastprogress.progress_bar tqdm.std.tqdm itertools.repeat ultralytics.utils.TQDM".split()
)
COPY = frozenset("builtins.list builtins.tuple builtins.set collections.deque".split())
KEYED = frozenset("builtins.sorted builtins.min builtins.max itertools.groupby".split())
CASTS = frozenset("builtins.float builtins.int builtins.bool".split())


def values(*things: Thing) -> Values:
    return frozenset(things)


def join(*sets: Values) -> Values:
    return NOTHING.union(*sets)


def _transposed(interp: Core, rows: Values, node: ast.AST | None) -> Values:
    """``zip(*samples)``: all that stands first in them, all that stands second, ..."""
    exact = [t.exact for t in rows if isinstance(t, Seq)]
    lengths = {len(items) for items in exact if items is not None}
    if len(exact) == len(rows) and None not in exact and len(lengths) == 1:
        found: list[Values] = []
        for n in range(lengths.pop()):
            column: Seq = interp.intern(
                Seq, (id(node), "column", n), lambda: Seq(node, None, NOTHING, "tuple")
            )
            column.elem = join(column.elem, *(items[n] for items in exact if items is not None))
            found.append(values(column))
        whole: Seq = interp.intern(
            Seq,
            (id(node), "columns", len(found)),
            lambda: Seq(node, tuple(found), NOTHING, "zipped"),
        )
        return values(whole)
    some: Seq = interp.intern(Seq, (id(node), "column"), lambda: Seq(node, None, NOTHING, "tuple"))
    some.elem = join(some.elem, iterate(interp, rows, node or ast.Pass()))
    return values(
        interp.intern(Seq, (id(node), "columns"), lambda: Seq(node, None, values(some), "zipped"))
    )


def call(interp: Core, name: str, args: Arguments, node: ast.AST | None) -> Values | None:
    """The result of calling a function of Python's library; None where it is not one of them."""
    first = args.positional[0].values if args.positional else NOTHING
    if name in loaded_settings.NAMES and (done := loaded_settings.call(interp, name, args, node)):
        return done
    if name == "collections.namedtuple":
        return values(interp.intern(Ext, (id(node), name), lambda: Ext(name, node, args)))
    if "key" in args.named and name in KEYED:
        each = iterate(interp, first, node or ast.Pass())
        by = Arguments(node, [Given(each, None)])
        protocols.run_often(interp, args.named["key"].values, by, node)
    if name in WRAP:
        over = (
            first
            if name != "itertools.chain"
            else frozenset().union(*(g.values for g in args.positional))
            if args.positional
            else NOTHING
        )
        over = over or args.get(0, "iterable")
        made: Ext = interp.intern(
            Ext, (id(node), name, over), lambda: Ext(name, node, args, {"over": over})
        )
        return values(made)
    if name == "builtins.zip" and args.loose == 0 and len(args.positional) == 1:
        return _transposed(interp, args.positional[0].values, node)
    if name == "builtins.zip":
        parts = tuple(iterate(interp, g.values, node or ast.Pass()) for g in args.positional)
        row = interp.intern(
            Seq, (id(node), "row", len(parts)), lambda: Seq(node, parts, NOTHING, "tuple")
        )
        row.items = tuple(join(a, b) for a, b in zip(row.items, parts, strict=True))
        loaders = (
            frozenset().union(*(loaders_in(g.values) for g in args.positional))
            if args.positional
            else frozenset()
        )
        if loaders:
            return values(
                interp.intern(
                    Ext,
                    (id(node), "zip"),
                    lambda: Ext(
                        "builtins.zip",
                        node,
                        args,
                        {
                            "over": values(
                                interp.intern(
                                    Seq,
                                    (id(node), "rows"),
                                    lambda: Seq(node, None, values(row), "zip"),
                                )
                            )
                        },
                    ),
                )
            )
        return values(
            interp.intern(Seq, (id(node), "zip"), lambda: Seq(node, None, values(row), "zipped"))
        )
    if name in ("sys.path.append", "sys.path.insert", "site.addsitedir"):
        where = args.given(int(name == "sys.path.insert"), "")
        if where is not None and where.expr is not None:
            start = interp.project.search[0]
            if (place := folder(where.expr, interp.stack, start)) is not None:
                interp.project.search_also(place, name == "sys.path.insert")
        return values(Const(None))
    if name == "importlib.import_module":
        return imported(interp, args)
    if name == "builtins.next":
        loaders = loaders_in(first)
        if loaders:
            interp.emit("next", node, None, args, first, loaders=loaders)
        return following(interp, first, node or ast.Pass()) | (
            args.positional[1].values if len(args.positional) > 1 else NOTHING
        )
    if name in COPY:
        single = one(first)
        if isinstance(single, Seq) and single.exact is not None:
            return values(copied(interp, single, node))
        if any(isinstance(t, Tensor) for t in first):
            return first
        return values(
            row_of(
                interp,
                (id(node), "list"),
                node,
                iterate(interp, first, node or ast.Pass()) if first else NOTHING,
            )
        )
    if name == "builtins.map" and len(args.positional) >= 2:
        elements = [
            Given(iterate(interp, g.values, node or ast.Pass()), None) for g in args.positional[1:]
        ]
        single = one(args.positional[1].values)
        if isinstance(single, Seq) and single.exact is not None and len(args.positional) == 2:
            items = tuple(
                interp.call_values(first, Arguments(None, [Given(i, None)]), node)
                for i in single.exact
            )
            return values(interp.intern(Seq, (id(node), "map", items), lambda: Seq(node, items)))
        found = interp.call_values(first, Arguments(None, elements), node)
        return values(row_of(interp, (id(node), "map"), node, found))
    if name == "builtins.filter" and len(args.positional) == 2:
        each = iterate(interp, args.positional[1].values, node or ast.Pass())
        protocols.run_often(interp, first, Arguments(node, [Given(each, None)]), node)
        over = args.positional[1].values
        if all(isinstance(t, Seq) for t in over):
            return values(row_of(interp, (id(node), "filter"), node, each))
        return over
    if name in CASTS:
        for thing in first:
            if isinstance(thing, (Tensor, Unknown)):
                interp.emit("sync", node, thing, args, how=name.rsplit(".", 1)[-1])
        tensor = next((t for t in first if isinstance(t, Tensor)), None)
        return values(Num(tensor))
    if name in (
        "builtins.len",
        "builtins.range",
        "builtins.id",
        "builtins.round",
        "builtins.abs",
        "builtins.isinstance",
        "builtins.hasattr",
        "builtins.input",
        "builtins.open",
        "builtins.ord",
        "builtins.hash",
    ):
        if name == "builtins.range":
            return values(
                interp.intern(
                    Seq, (id(node), "range"), lambda: Seq(node, None, values(Num()), "range")
                )
            )
        if name == "builtins.len" and (sizes := _lengths(first)):
            return sizes
        return values(Num())
    if name in ("builtins.print", "builtins.str", "builtins.repr", "builtins.format"):
        for given in args.positional:
            for thing in given.values:
                if isinstance(thing, Tensor):
                    interp.emit("format", node, thing, args)
        return values(Num())
    if name in ("builtins.sum", "builtins.max", "builtins.min", "math.fsum"):
        return _folded(interp, name, args, node)
    if name == "builtins.dict":
        return values(dict_of(interp, node, args))
    if name == "builtins.getattr":
        return _getattr(interp, args, node)
    if name == "builtins.delattr":
        for thing in interp.choices(first):
            for key in args.get(1, "name"):
                if isinstance(key, Const) and isinstance(key.value, str):
                    protocols.drop(interp, thing, key.value, node)
                else:
                    interp.open_attributes(thing, "an attribute is deleted whose name is computed")
        return values(Const(None))
    if (
        name == "builtins.type"
        and len(args.positional) == 1
        and all(isinstance(t, Inst) for t in first)
    ):
        return values(*(t.cls for t in first if isinstance(t, Inst)))
    if name == protocols.PROPERTY or name in protocols.WEAK:
        return values(interp.intern(Ext, (id(node), name, first), lambda: Ext(name, node, args)))
    if name == "weakref.proxy":
        return first
    if name == "builtins.setattr":
        _setattr(interp, args, node)
        return values(Const(None))
    if name == "builtins.vars" and first:
        return NOTHING.union(
            *(interp.attribute(thing, "__dict__", node) for thing in ordered(first))
        )
    if name == "functools.partial":
        kept = Arguments(
            node,
            args.positional[1:],
            dict(args.named),
            args.dicts,
            args.open,
            None if args.loose is None else max(args.loose - 1, 0),
        )
        partial: Partial = interp.intern(Partial, (id(node), first), lambda: Partial(first, kept))
        partial.args = joined([partial.args, kept]) if partial.args is not kept else kept
        return values(partial)
    if name in ("copy.deepcopy", "copy.copy"):
        how = deep_copied if name == "copy.deepcopy" else copied
        own = f"__{name[5:]}__"
        return NOTHING.union(
            *(
                interp.call_method_of(thing, own, [NOTHING][: how is deep_copied], node)
                if isinstance(thing, Inst) and thing.cls.find(own)
                else values(how(interp, thing, node))
                for thing in ordered(first)
            )
        )
    if name in ("collections.OrderedDict", "collections.defaultdict"):
        return values(dict_of(interp, node, args))
    if (parsed := options.call(interp, name, args, node)) is not None:
        return parsed
    if name in ("random.choice", "random.choices", "random.sample"):
        drawn = iterate(interp, first or args.get(0, "population"), node or ast.Pass())
        return (
            drawn
            if name == "random.choice"
            else values(row_of(interp, (id(node), "drawn"), node, drawn))
        )
    if name in ("random.shuffle", "numpy.random.shuffle"):
        for thing in expand(first, Seq):
            shuffle(interp, thing)
        return values(Const(None))
    if name in ("os.environ.get", "os.getenv", "os.environ.pop"):
        return values(Num()) | (args.get(1, "default") or values(Const(None)))
    if name == "os.listdir":
        return values(row_of(interp, (id(node), "files"), node, values(Num())))
    if name == "logging.getLogger":
        return values(
            interp.intern(Ext, (id(node), name), lambda: Ext("logging.Logger", node, args))
        )
    if name in ("math.isnan", "math.isfinite", "math.isinf") or name.startswith(
        ("math.", "time.", "random.", "os.", "sys.", "datetime.", "json.", "logging.")
    ):
        return values(Num()) if not name.startswith("json.") else values(result_of(name))
    if name in (
        "itertools.product",
        "itertools.combinations",
        "itertools.permutations",
        "itertools.combinations_with_replacement",
    ):
        parts = tuple(iterate(interp, g.values, node or ast.Pass()) for g in args.positional)
        plain = name == "itertools.product" and not args.named and args.loose is None
        made_of: tuple[tuple[Values, ...] | None, Values] = (
            (parts, NOTHING) if plain else (None, join(*parts))
        )
        row = interp.intern(
            Seq, (id(node), "row", made_of), lambda: Seq(node, made_of[0], made_of[1], "tuple")
        )
        return values(row_of(interp, (id(node), "rows"), node, values(row)))
    if name in ("builtins.staticmethod", "builtins.classmethod", "builtins.property"):
        return first
    if name in ("contextlib.nullcontext", "contextlib.suppress"):
        return values(interp.intern(Ext, (id(node), name), lambda: Ext(name, node, args)))
    return None


def _folded(interp: Core, name: str, args: Arguments, node: ast.AST | None) -> Values:
    """``sum(...)``, ``max(...)``, ``min(...)``: a tensor, a number, or one of the things that are compared."""
    given = [g.values for g in args.positional]
    if tensors := tensors_in(*given):
        return values(mixed(tensors))
    alone = len(given) == 1 or name in ("builtins.sum", "math.fsum")
    parts = iterate(interp, given[0], node or ast.Pass()) if given and alone else join(*given)
    things = frozenset(t for t in parts if not isinstance(t, (Num, Const, Arg)))
    if name in ("builtins.max", "builtins.min"):
        return (
            things
            | args.get(-1, "default")
            | (values(Num()) if things != parts or not parts else NOTHING)
        )
    return values(Num(), *expand(things, Unknown))


def _getattr(interp: Core, args: Arguments, node: ast.AST | None) -> Values:
    """``getattr(x, "name"[, default])``, the name being one of a few."""
    found = args.get(2, "default")
    for thing in ordered(args.get(0, "object")):
        for key in ordered(args.get(1, "name")):
            if isinstance(key, Const) and isinstance(key.value, str):
                found |= interp.attribute(thing, key.value, node)
            elif isinstance(thing, Module) and isinstance(key, (Setting, Arg)):
                found |= loaded_settings.member(interp, thing, key, node)
            elif parts := module_parts.by_prefix(thing, values(key)):
                found |= parts
            elif offered := loaded_settings.any_member(thing):
                found |= offered
            else:
                found |= values(
                    Ref(f"{thing.name}.*")
                    if isinstance(thing, Ref)
                    else Unknown("the attribute's name is computed")
                )
    return found


def _setattr(interp: Core, args: Arguments, node: ast.AST | None) -> None:
    names = args.get(1, "name")
    for thing in interp.choices(args.get(0, "object")):
        for key in ordered(names):
            if (
                isinstance(key, Const)
                and isinstance(key.value, str)
                and isinstance(thing, (Inst, Ext))
            ):
                interp.store_attribute(thing, key.value, args.get(2, "value"), sure=len(names) == 1)
                interp.emit(
                    "set_attribute", node, thing, args, args.get(2, "value"), name=key.value
                )
            elif isinstance(thing, Ref):
                known = isinstance(key, Const) and isinstance(key.value, str)
                name = key.value if isinstance(key, Const) and known else "*"
                interp.set_in_library(thing, name, args.get(2, "value"), node)
            elif not module_parts.set_by_prefix(interp, thing, args):
                interp.open_attributes(thing, "an attribute is set whose name is computed")


def imported(interp: Core, args: Arguments) -> Values:
    """``importlib.import_module("models." + name)``: every module of the project that it may be."""
    thing = one(args.get(0, "name"))
    pattern = (
        thing.value
        if isinstance(thing, Const) and isinstance(thing.value, str)
        else thing.pattern
        if isinstance(thing, Num)
        else ""
    )
    found = [interp.run_module(source, False) for source in interp.project.matching(pattern)]
    return values(*found) or values(Unknown(f"the module `{pattern or '*'}` is imported by name"))


def _lengths(found: Values) -> Values:
    """The lengths of tuples that are known one by one; empty where there may be something else."""
    exact = [t.exact if isinstance(t, Seq) and t.kind == "tuple" else None for t in found]
    return (
        frozenset(Const(len(items)) for items in exact if items is not None)
        if None not in exact
        else NOTHING
    )


# what a string that is known says of itself
OF_TEXT = frozenset(
    """startswith endswith lower upper strip lstrip rstrip replace title capitalize isdigit islower
    isupper isalpha isidentifier removeprefix removesuffix find count zfill""".split()
)


def _of_text(text: str, name: str, args: Arguments) -> Values:
    """``arch.startswith("resnet")``, computed where all of it is known."""
    given = [one(g.values) for g in args.positional]
    known = [t.value for t in given if isinstance(t, Const)]
    if args.named or args.open or args.loose is not None or len(known) != len(given):
        return values(Num())
    try:
        return values(Const(getattr(text, name)(*known)))
    except (TypeError, ValueError):
        return values(Num())


def method(
    interp: Core, this: Thing, name: str, args: Arguments, node: ast.AST | None
) -> Values | None:
    """A method of a container, a number, a string or an argument parser; None where ``this`` is none of them."""
    if isinstance(this, Dict):
        return dict_method(interp, this, name, args, node)
    if isinstance(this, Seq):
        return seq_method(interp, this, name, args, node)
    if isinstance(this, Const) and isinstance(this.value, str) and name == "format":
        for given in args.every:
            for thing in given.values:
                if isinstance(thing, Tensor):
                    interp.emit("format", node, thing, args)
        return values(Num(pattern=re.sub(r"\{[^{}]*\}", "*", this.value)))
    if isinstance(this, Located) and name in loaded_settings.KEPT:
        return values(this)
    if isinstance(this, (Num, Const, Arg)):
        if name in OF_TEXT and isinstance(this, Const) and isinstance(this.value, str):
            return _of_text(this.value, name, args)
        if name in ("split", "rsplit", "splitlines", "partition", "rpartition"):
            return values(row_of(interp, (id(node), "split"), node, values(Num())))
        return values(Num())
    if isinstance(this, Ext) and this.name == "builtins.vars":
        return namespace_method(interp, this, name, args)
    if options.is_parser(this):
        return options.parser_method(interp, this, name, args, node)
    if isinstance(this, Ext):
        if "over" in this.attrs and name in ("__next__", "next"):
            loaders = loaders_in(values(this))
            if loaders:
                interp.emit("next", node, None, args, values(this), loaders=loaders)
            return iterate(interp, values(this), node or ast.Pass())
        if "over" in this.attrs:
            return values(Num())
    return None
