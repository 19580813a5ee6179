"""Classes, functions and modules of the project that are chosen by a name: an option's, or one out
of a file with settings.

What the default names is read, and all else that the name may mean as well; where that is not all
(``COMPUTED``), nothing may be said that another choice would make wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from autofast.model import disk
from autofast.model.limits import MOST_CALLEES
from autofast.model.names import DATASET_BASES, MODULE_BASES, MODULES, canonical, first_part
from autofast.model.several import wordset
from autofast.model.source import source_of
from autofast.model.syntax import DEFS
from autofast.model.values import (
    NOTHING,
    Arg,
    Arguments,
    Cls,
    Const,
    Dict,
    Func,
    Given,
    Module,
    Num,
    Partial,
    Reason,
    Ref,
    Seq,
    Setting,
    Thing,
    Unknown,
    Values,
    Where,
    all_of,
    any_of,
    const,
    is_named,
    of_kind,
    one,
    ordered,
    said,
    things as values,
)
from autofast.read.library.table import first_of, gives_for
from autofast.read.library.unfollowed import changes_others
from autofast.read.state.core import Core, join

COMPUTED = Unknown("the attribute's name is computed", Reason.CHOSEN)
MOST_MEMBERS = 12
# code whose numbers may depend on the gradient mode that it runs in
OWN_GRADIENTS = re.compile(r"autograd|backward\(|_grad\b|\.grad\b")
TARGETS = "_target_ _recursive_ _convert_ _partial_ _args_".split()
SPLITS = wordset("split rsplit partition rpartition")


def text_of(name: Thing) -> str:
    """The name, as far as it is known, with ``*`` for the rest: what a default says is one."""
    known = said(name)
    return known if isinstance(known, str) else getattr(name, "pattern", "")


# -------------------------------------------------------------------------------------- of a module
def member(interp: Core, module: Module, name: Setting | Arg, node: Where) -> Values:
    """``getattr(module, settings["type"])``: what the default names, and all else of its kind in
    the module, which other settings may name.
    """
    default = text_of(name)
    first = module.env.vars.get(default, NOTHING)
    if not first or module.env.opaque or any_of(first, Ref):
        return any_member(module, name) | values(COMPUTED)
    interp.attribute(module, default, node)
    if not all(isinstance(t, (Cls, Module)) or _is_defined(t) for t in first):
        return first | (any_member(module, name) or values(COMPUTED))
    others = [t for found in module.env.vars.values() for t in ordered(found) if t not in first]
    found = {t for t in others if any(_may_stand_for(module, t, named) for named in first)}
    return first | (found if len(found) <= MOST_MEMBERS else values(COMPUTED))


def any_member(module: Thing, name: Thing) -> Values:
    """``getattr(module, name)`` with a name that is not known: whatever of the module it may mean,
    but for other modules, and for what classes there derive from, if it is imported for that;
    empty where that is not all known.
    """
    if not isinstance(module, Module) or module.env.opaque:
        return NOTHING
    pattern = name.pattern if isinstance(name, Num) else ""
    fits = re.compile(re.escape(pattern or "*").replace(r"\*", ".*"))
    public = [v for key, v in module.env.vars.items() if key[:1] != "_" and fits.fullmatch(key)]
    found = [t for held in public for t in held if not isinstance(t, Module)]
    found = [t for t in found if not (isinstance(t, Ref) and first_part(t.name) == "__future__")]
    classes = of_kind(found, Cls)
    bases = {n for t in classes for n in t.external} | MODULES
    above = {id(a) for t in classes for a in t.ancestors() if not _is_of(module, a)}
    found = [t for t in found if not is_named(t, Ref, bases) and id(t) not in above]
    if sum(not isinstance(t, (Const, Num)) for t in found) <= MOST_CALLEES:
        return join(frozenset(found))
    own = frozenset(t for t in found if _is_of(module, t))
    return own | {COMPUTED} if len(own) <= MOST_CALLEES else one_of(own)


def modules_with(interp: Core, package: Module, name: str) -> Values:
    """The modules of a package that have this name; empty where others may be imported, too."""
    folder, found = package.source.path.parent, {s.path: m for s, m in interp.modules.items()}
    files = [path.resolve() for path in disk.matching(folder, "*.py")]
    if package.source.path.name != "__init__.py" or not found.keys() >= set(files):
        return NOTHING
    return values(
        *(m for m in map(found.get, files) if m and m is not package and name in m.env.vars)
    )


def networks_in(several: Values) -> Values:
    """The classes of networks, where one of several is called."""
    if len(several) < 2:
        return NOTHING
    found = frozenset(t for t in of_kind(several, Cls) if t.external & MODULE_BASES)
    return found if len(found) > 1 else NOTHING


def one_of(several: Iterable[Thing]) -> Values:
    """A module or dataset of which nothing else is known, for one of many classes of the project;
    where these may compute gradients themselves, or keep what they compute, nothing is known.
    """
    classes = of_kind(several, Cls)
    kinds = {name for t in classes for name in t.external & (MODULE_BASES | DATASET_BASES)}
    harmless = not any(
        OWN_GRADIENTS.search(source_of(t.node).text)
        or any(changes_others(f) for name, f in _methods(t) if name != "__init__")
        for t in classes
    )
    return values(COMPUTED, *(Ref(name) for name in kinds if harmless))


def _methods(cls: Cls) -> list[tuple[str, Func]]:
    return [(n, f) for n, found in cls.members.items() for f in found if isinstance(f, Func)]


def _may_stand_for(module: Module, thing: Thing, named: Thing) -> bool:
    """Whether other settings may name ``thing`` where these name ``named``: it is of its kind and
    from the same file (or gathered with it), no base of it.
    """
    if isinstance(thing, Cls) and isinstance(named, Cls):
        alike = thing.external == named.external and thing not in named.ancestors()
    else:
        alike = isinstance(thing, Func) and isinstance(named, Func)
    gathered = not _is_of(module, named)
    return alike and (gathered or _is_of(module, thing))


def _is_defined(thing: Thing) -> bool:
    """A function with a name of its own: a lambda or a partial may stand for any class."""
    return isinstance(thing, Func) and isinstance(thing.node, DEFS)


def _is_of(module: Module, thing: Thing) -> bool:
    return isinstance(thing, (Cls, Func)) and source_of(thing.node) is module.source


# -------------------------------------------------------------------------------- by a dotted name
def parts_of_name(
    interp: Core, this: Thing, name: str, args: Arguments, node: Where
) -> Values | None:
    """``"models.nets.Small".rsplit(".", 1)``, and ``".".join(...)`` of what that gives; None for
    other texts than such names.
    """
    given = [const(g.values) for g in args.positional]
    if name == "join" and this == Const(".") and len(given) == 1:
        row = one(args.positional[0].values)
        parts = row.exact if isinstance(row, Seq) else None
        names = [one(part) for part in parts or ()]
        if not names or not all_of(names, Const, Setting):
            return None
        like = next((t for t in names if isinstance(t, Setting)), Const(""))
        return values(replace(like, value=".".join(map(text_of, filter(None, names)))))
    if name not in SPLITS or not isinstance(this, (Const, Setting)) or given[:1] != ["."]:
        return None
    if not text_of(this) or args.named or ... in given:
        return None
    found = getattr(text_of(this), name)(*given)
    return interp.tuple_of(node, tuple(values(replace(this, value=x)) for x in found), this)


@gives_for("importlib.import_module", "builtins.__import__")
def _imported(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """``importlib.import_module("models." + name)``: every module of the project that it may be."""
    found: Values = NOTHING
    for thing in ordered(args.get(0, "name")):
        text = text_of(thing)
        if name == "builtins.__import__" and "." in text and not args.get(3, "fromlist"):
            text = ""
        found |= module_of(interp, text)
        if not isinstance(thing, (Const, Num)) or isinstance(thing, Setting):
            found |= values(COMPUTED)
    return found


def module_of(interp: Core, name: str) -> Values:
    """The modules of the project that a dotted name may mean, or that of a library."""
    entry = interp.project.read(interp.project.entry)
    exact = interp.project.find(name, 0, entry) if name and "*" not in name else None
    sources = [exact] if exact is not None else interp.project.matching(name)
    if not sources and first_part(canonical(name)) in interp.libraries:
        return values(Ref(canonical(name)))
    found = values(*(interp.run_module(source, False) for source in sources))
    return found or values(Unknown(f"the module `{name or '*'}` is imported by name"))


@gives_for(
    "pydoc.locate",
    *(f"hydra.utils.get_{what}" for what in ("class", "object", "method", "static_method")),
)
def _located(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return NOTHING.union(*(_of_path(interp, t, node) for t in ordered(first_of(args))))


def _of_path(interp: Core, path: Thing, node: Where) -> Values:
    """What a dotted name means: ``models.nets.Small``."""
    module, _, last = text_of(path).rpartition(".")
    found: Values = NOTHING if module and "*" not in last else values(COMPUTED)
    for thing in ordered(module_of(interp, module) if not found else NOTHING):
        found |= interp.attribute(thing, last, node)
    return found if isinstance(path, Const) else found | values(COMPUTED)


@gives_for("hydra.utils.instantiate", "hydra.utils.call")
def _instantiated(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """What a table of settings with a ``_target_`` describes, and the tables in it."""
    found: Values = NOTHING
    for table in ordered(args.get(0, "config")):
        if not isinstance(table, Dict) or "_target_" not in table.entries:
            return values(COMPUTED)
        given = {
            key: Given(NOTHING.union(*(_part(interp, t, node) for t in table.get(key))), None)
            for key in table.entries
            if key not in TARGETS
        }
        given.update({k: g for k, g in args.named.items() if k not in ("config", *TARGETS)})
        made = Arguments(node, args.positional[1:], given)
        callee = NOTHING.union(*(_of_path(interp, t, node) for t in table.get("_target_")))
        if table.get("_partial_"):
            key = (node, table)
            found |= {interp.intern(Partial, key, partial(Partial, callee, made))}
        else:
            found |= interp.call_values(callee, made, node)
    return found


def _part(interp: Core, thing: Thing, node: Where) -> Values:
    if isinstance(thing, Dict) and "_target_" in thing.entries:
        given = Arguments(node, [Given(values(thing), None)])
        return _instantiated(interp, "", given, node) or NOTHING
    return values(thing)
