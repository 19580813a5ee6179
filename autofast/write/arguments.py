"""Where an argument of a call is written, or has to be: at the call, or in the dict that reaches it
through ``**``.

A keyword that already comes through a dict must not be added at the call (``got multiple values for
keyword argument``), and one that is added to a dict reaches every call which that dict feeds. Both
are decided here, from the values that the reader found, for all rules that set arguments::

    if isinstance(homes := written(script, args, "num_workers", calls), str): ...  # the reason why
    it cannot be changed edits = tuple(home.set("num_workers", "4") for home in homes)

Arguments of loaders: one finding for each place where one is to be written.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from autofast.edit.edits import After, DictItem, Edit, Edits, Keyword, Rewrite, Written, plain_code
from autofast.facts.settings import settings_place
from autofast.flow.callgraph import CallGraph
from autofast.flow.importers import Importers
from autofast.flow.scopes import defaults, is_parameter, variables_of
from autofast.model.calls import call_of, is_method
from autofast.model.contents import each_once
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import grouped, wordset
from autofast.model.source import at, function_of, parent_of, source_of, statement_of
from autofast.model.syntax import DEFS, is_stored
from autofast.model.values import (
    Arguments,
    Bound,
    Cls,
    Dict,
    Func,
    Given,
    Ref,
    any_named,
    of_kind,
)
from autofast.rule import Effect, Finding, Need

DICTS = wordset("builtins.dict collections.OrderedDict")
READERS = wordset("get pop setdefault")


@dataclass(frozen=True, eq=False)
class Home:
    """Where an argument is, or can be, written.

    Attributes:
        node: the call, a dict display or ``dict()`` call, an ``update()`` call, or the target of
            ``d["key"] = value``.
        expr: the value that is written there for the argument in question; None where it is not
            given yet.
        calls: the calls that get what is written there.
    """

    node: ast.expr
    expr: ast.expr | None
    calls: tuple[ast.Call, ...]

    def set(self, name: str, value: str) -> Edit:
        """The edit that makes the argument ``name`` of all :attr:`calls` be ``value``."""
        if isinstance(self.node, ast.Call):
            return Keyword(self.node, name, value)
        if isinstance(self.node, ast.Dict):
            return DictItem(self.node, name, value)
        assert isinstance(self.node, ast.Subscript)
        holder = source_of(self.node).segment(self.node.value)
        return After(
            statement_of(self.node), f"{plain_code(holder)}[{name!r}] = {plain_code(value)}"
        )

    def replace(self, value: str) -> Edit:
        """The edit that puts ``value`` in place of :attr:`expr`, however that is given."""
        assert self.expr is not None
        return Rewrite(self.expr, plain_code(value))


def put(
    script: Script, args: Arguments, name: str, value: str, calls: Collection[ast.Call] = ()
) -> Edits | str:
    """The edits that make the argument ``name`` of a call be ``value``, wherever it has to be
    written; or why there are none.

    ``calls`` are other calls for which this is right too: a dict may feed them.
    """
    homes = places_of_argument(script, args, name, calls)
    if isinstance(homes, str):
        return homes
    if homes:
        return tuple(home.replace(value) for home in homes)
    home = place_for_argument(script, args, name, calls)
    return home if isinstance(home, str) else (home.set(name, value),)


def places_of_argument(
    script: Script, args: Arguments, name: str, calls: Collection[ast.Call] = (), index: int = -1
) -> list[Home] | str:
    """Where the argument ``name`` (or the one at ``index``) is written now; empty where it is not
    given at all.
    """
    given = args.given(index, name)
    if given is None:
        return f"it may be given already: {args.open}" if args.open else []
    if not given.via:
        if given.expr is None or not isinstance(args.call, ast.Call):
            return f"`{name}` is given in a way that cannot be changed"
        return [Home(args.call, given.expr, (args.call,))]
    return _entries(script, args, name, given, {id(c) for c in (args.call, *calls)})


def place_for_argument(
    script: Script, args: Arguments, name: str, calls: Collection[ast.Call] = ()
) -> Home | str:
    """Where the argument ``name``, which is not given, can be added: the dict that holds the call's
    arguments, else the call.
    """
    if args.open:
        return f"it may be given already: {args.open}"
    if name in args.named or not isinstance(args.call, ast.Call):
        return f"`{name}` is given already"
    if any(d.removed & {name, ...} for d in args.dicts):
        return f"`{name}` is taken out of the dict that holds the arguments"
    at_call: Home | str = others_may_give(script, args.call) or Home(args.call, None, (args.call,))
    if len(args.dicts) != 1 or not args.dicts[0].entries:
        return at_call
    node = args.dicts[0].node
    if not isinstance(node, (ast.Dict, ast.Call)) or isinstance(
        parent_of(node), (ast.IfExp, ast.BoolOp)
    ):
        return at_call
    fed = reach(script, node, name, {id(c) for c in (args.call, *calls)})
    return at_call if isinstance(fed, str) or args.call not in fed else Home(node, None, fed)


def others_may_give(script: Script, call: ast.AST) -> str:
    """Who else calls a function whose ``**kwargs`` may bring the argument already; empty where
    nobody does.

    It is the function around, or, where what is spread comes in by a parameter, one that calls it.
    """
    function = function_of(call)
    spread = [k.value for k in getattr(call, "keywords", ()) if k.arg is None]
    if isinstance(function, (ast.Module, ast.Lambda)) or not spread:
        return ""
    graph, importers = script.analysis(CallGraph), script.analysis(Importers)
    comes_in = any(is_parameter(function, s.id) for s in of_kind(spread, ast.Name))
    todo: list[ast.AST] = [function]
    for here in each_once(todo):
        if not isinstance(here, DEFS):
            continue
        if here.args.kwarg is not None and (user := importers.user(here)):
            rest = here.args.kwarg.arg
            return f"{user} calls {here.name}() too, and may give it in **{rest}"
        todo += [function_of(site) for site in graph.sites(here)] if comes_in else []
    return ""


def _entries(
    script: Script, args: Arguments, name: str, given: Given, calls: set[int]
) -> list[Home] | str:
    homes: dict[int, Home] = {}
    for holder, entry in given.via:
        node = entry.home
        if holder.open:
            return f"it comes through a dict, and {holder.open}"
        if entry.expr is None or not isinstance(node, (ast.Dict, ast.Call, ast.Subscript)):
            return f"`{name}` comes through a dict in a way that cannot be changed"
        fed = reach(script, node, name, calls)
        if isinstance(fed, str):
            return fed
        homes[id(entry.expr)] = Home(node, entry.expr, fed)
    return list(homes.values())


# -------------------------------------------------------------------------------- what a dict feeds
def reach(
    script: Script, home: ast.expr, name: str, calls: Collection[int]
) -> tuple[ast.Call, ...] | str:
    """The calls (ids in ``calls``) that get what is written at ``home``; or what else does."""
    todo = _dicts(script, home.value if isinstance(home, ast.Subscript) else home)
    if isinstance(home, ast.Call) and not any(d.node is home for d in todo):
        if is_method(home, "update", "setdefault"):
            todo = _dicts(script, home.func.value)
        elif not (todo := _spread(script, home, name) or []):
            return f"it is passed on through `**` by the call of {at(home)}"
    found: dict[int, ast.Call] = {}
    if not todo:
        return f"the dict of {at(home)} is not known"
    uses = script.analysis(_uses)
    for thing in each_once(todo):
        for use in uses.get(id(thing), ()):
            next_dicts = _flows(script, use, name, calls, found)
            if next_dicts is None:
                return f"the dict of {at(home)} is also used on {at(use)}"
            todo.extend(next_dicts)
    return tuple(found.values())


# What neither looks into a dict nor changes it, but hands it on or lets it be.
HANDS_ON = (
    *(ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.IfExp, ast.BoolOp),
    *(ast.Return, ast.arguments, ast.Expr),
)


def _flows(
    script: Script, use: ast.expr, name: str, calls: Collection[int], found: dict[int, ast.Call]
) -> list[Dict] | None:
    """The dicts that get the content of the dict ``use``; calls go into ``found``. None where it is
    used in another way.
    """
    parent = parent_of(use)
    match parent:
        case ast.keyword(arg=None):
            call = parent_of(parent)
            assert isinstance(call, ast.Call)
            if id(call) in calls:
                found[id(call)] = call
                return []
            return _spread(script, call, name)
        case ast.keyword() | ast.Tuple():
            call = parent_of(parent)
            if isinstance(parent, ast.Tuple):
                call = parent_of(call) if isinstance(call, ast.keyword) else call
            if isinstance(call, ast.Call) and (
                _enters(script, call) or any(s.node is call for s in script.processes)
            ):
                return []
            return None
        case ast.Call() if use in parent.args:
            if is_method(parent, "update"):
                return _dicts(script, parent.func.value) or None
            if any_named(script.called(parent), Ref, DICTS | {"copy.copy", "copy.deepcopy"}):
                return _dicts(script, parent)
            return [] if _enters(script, parent) else None
        case ast.Dict():
            if any(k is None and v is use for k, v in zip(parent.keys, parent.values, strict=True)):
                return _dicts(script, parent)
            return None
        case ast.Attribute():
            if (call := call_of(parent)) is None:
                return None
            if parent.attr == "copy":
                return _dicts(script, call)
            if (
                parent.attr in READERS
                and call.args
                and script.constant(call.args[0]) not in (..., name)
            ):
                return []
            return [] if parent.attr == "update" else None
        case ast.Subscript() if parent.value is use:
            stored = is_stored(parent)
            return [] if stored or script.constant(parent.slice) not in (..., name) else None
        case _ if isinstance(parent, HANDS_ON):
            return []
    return None


def _spread(script: Script, call: ast.Call, name: str) -> list[Dict] | None:
    """``f(**d)``: into a new dict, or into the ``**kwargs`` of a project function that has no
    parameter of that name.
    """
    made = _dicts(script, call)
    if any_named(script.called(call), Ref, DICTS):
        return made
    callees = [c.function for c in script.analysis(CallGraph).callees(call)]
    if script.analysis(CallGraph).may_run_others(call) or any(
        f.args.kwarg is None or name in defaults(f) for f in callees
    ):
        return None
    rests = {
        v
        for f in callees
        for v in [variables_of(f).find(f.args.kwarg.arg, f)]  # type: ignore[union-attr]
        if v is not None
    }
    return [
        d
        for rest in rests
        for load in variables_of(rest.scope).loads(rest)
        for d in _dicts(script, load)
    ] or None


def _enters(script: Script, call: ast.Call) -> bool:
    """Whether the call leads into the project, where the same dict is seen again under the
    parameter's name.
    """
    return script.must_be(call.func, Func, Bound, Cls)


def _dicts(script: Script, expr: ast.AST) -> list[Dict]:
    return of_kind(script.values(expr), Dict)


def _uses(script: Script) -> Mapping[int, list[ast.expr]]:
    """Where each dict of the script stands, by its id: every expression that may be it."""
    return grouped(
        (id(thing), node)
        for node in of_kind(script.nodes, ast.expr)
        for thing in _dicts(script, node)
    )


@dataclass(frozen=True, eq=False)
class Wish:
    """A loader that an argument should be added to."""

    loader: Loader
    # The value at a home, and what else it needs there.
    make: Callable[[Home], Written]
    effect: Effect | None = None
    needs: tuple[Need, ...] = ()  # rules without whose fix at ``key`` this would be wrong
    key: ast.AST | None = None  # the place of that fix; None for the home itself
    home: Home | None = None  # where it is written already, otherwise; None where it is not


def argument_findings(
    script: Script, name: str, message: str, wishes: list[Wish]
) -> Iterator[Finding]:
    """One finding for each place where the argument is to be written: a call, or a dict that
    several of the loaders share.
    """
    calls = [wish.loader.node for wish in wishes]
    homes: dict[int, tuple[Home, list[Wish]]] = {}
    for wish in wishes:
        home = wish.home or place_for_argument(script, wish.loader.args, name, calls)
        if isinstance(home, str) and (where := settings_place(wish.loader.args)):
            yield Finding(
                wish.loader.node, message, advice=f"set {name} beside the arguments of {where}"
            )
        elif isinstance(home, str):
            yield Finding(wish.loader.node, message, refusal=home)
        else:
            homes.setdefault(id(home.node), (home, []))[1].append(wish)
    for home, members in homes.values():
        value, more = members[0].make(home)
        effect = max((w.effect for w in members if w.effect is not None), default=None)
        needs = tuple(dict.fromkeys(rule for w in members for rule in w.needs))
        key = members[0].key or home.node
        yield Finding(
            home.node,
            message,
            edits=(home.set(name, value) if home.expr is None else home.replace(value), *more),
            effect=effect,
            key=key,
            needs=needs,
        )
