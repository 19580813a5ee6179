"""The edits for a model that trains: where its wrapper is made, and how training calls it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.edit.edits import After, Before, Edit, Rewrite, plain_code
from autofast.flow.callgraph import CallGraph
from autofast.flow.definition_sites import Attribute, home_of
from autofast.flow.graph import Function
from autofast.flow.positions import place_in, statements_beside as block_around
from autofast.flow.scopes import Variable, is_parameter, mentions, own_nodes
from autofast.model.calls import call_of, names_in, variable_name
from autofast.model.events import BranchFrame, GuardFrame, LoopFrame, Occurrence
from autofast.model.script import Script
from autofast.model.several import grouped, wordset
from autofast.model.source import ByNode, at, function_of, is_elif, parent_of, statements_around
from autofast.model.syntax import DEFS, FUNCTIONS, is_attribute, is_read
from autofast.model.values import Inst, any_of
from autofast.rule import Options, Refusal
from autofast.techniques.ddp.model import UNSAFE_MOVES, Trained
from autofast.techniques.ddp.names import Ranks
from autofast.techniques.ddp.setup import in_block, own_seeds
from autofast.write.plumbing import Way

# The same on the wrapper and on the module.
LIGHT = wordset("train eval parameters zero_grad training")


def edits(
    script: Script, ranks: Ranks, models: list[Trained], options: Options, seeds: bool
) -> tuple[list[Edit], ByNode[str]]:
    """The wrappers, and the calls that go through them."""
    made: list[Edit] = []
    wrapped: ByNode[str] = {}
    for mine in models:
        made += _named(script, ranks, mine, wrapped)
    groups = grouped(((mine.anchor, mine.after), mine) for mine in models)
    for group in groups.values():
        made.append(_wrappers(script, ranks, group, options, seeds and group[-1] is models[-1]))
    return made, wrapped


def _wrappers(
    script: Script, ranks: Ranks, group: list[Trained], options: Options, seeds: bool
) -> Edit:
    node = group[0].anchor
    assert node is not None
    ddp = ranks.imported("torch.nn.parallel", "DistributedDataParallel", node)
    names, raws = (", ".join(getattr(m, field) for m in group) for field in ("name", "raw"))
    lines = [f"{names} = {raws}", f"if {ranks.world(node)} > 1:"]
    for mine in group:
        if options.sync_batchnorm and any(n.startswith("BatchNorm") for n in mine.model.layers):
            torch = ranks.torch(node)
            lines += [
                f"    if next({mine.raw}.parameters()).is_cuda:",
                f"        {torch}.nn.SyncBatchNorm.convert_sync_batchnorm({mine.raw})",
            ]
        lines.append(f"    {mine.name} = {ddp}({', '.join([mine.raw, *mine.options])})")
    if seeds:
        lines += [f"    {line}" for line in own_seeds(ranks, script, node)]
    code = plain_code("\n".join(lines))
    return After(node, code) if group[0].after else Before(node, code)


def _named(script: Script, ranks: Ranks, mine: Trained, wrapped: ByNode[str]) -> list[Edit]:
    """Gives the wrapper its name and place, and brings it to the calls."""
    every = [mine.thing, *mine.model.wraps]
    home = home_of(script, [c.func for c in mine.calls], every, "model")
    if isinstance(home, str):
        raise Refusal(home)
    if len(home.names) != 1:
        raise Refusal(f"the model has several names: {', '.join(home.names)}")
    mine.raw = home.names[0]
    mine.name = ranks.fresh(f"ddp_{mine.raw.lstrip('_')}")
    if home.scope is not None:
        _beside_variable(script, mine, home.scope, home.stores)
        way = Way(script, Variable(mine.name, home.scope), made=home.stores)
        name = mine.name
    else:
        this = _beside_attribute(script, mine, home.owners, home.stores)
        way = Way(script, Attribute(mine.name, home.owners))
        name = mine.name
        mine.name, mine.raw = f"{this}.{mine.name}", f"{this}.{mine.raw}"
    made = _Bring(script, mine, way, name, home.scope)
    for call in mine.calls:
        wrapped[call] = made.to(call)
    return [*made.edits.values(), *way.edits]


class _Bring:
    """Brings the wrapper to the places that call the model, by an argument where the function has
    one for the model.
    """

    def __init__(self, script: Script, mine: Trained, way: Way, name: str, scope: Function | None):
        self.script, self.mine, self.way, self.name, self.scope = script, mine, way, name, scope
        self.edits: ByNode[Edit] = {}
        self.things = {id(mine.thing), *(id(w) for w in mine.model.wraps)}
        self._calls = set(mine.calls)

    def to(self, call: ast.Call) -> str:
        """Lets ``call`` call the wrapper; what it then calls."""
        function, func = function_of(call), call.func
        if self._is_given(function, name := variable_name(func)):
            return name
        if any(id(t) not in self.things for t in self.script.values(func)):
            raise Refusal(
                f"`{ast.unparse(func)}` on {at(call)} may be several models: call each in a function of its own"
            )
        text = self._name(function)
        self.edits[func] = Rewrite(func, text)
        return text

    def _name(self, function: Function) -> str:
        name = self.way.to(function)
        if name is None:
            raise Refusal(f"the model cannot be brought to {at(function)}: {self.way.refusal}")
        return name

    def _is_given(self, function: Function, name: str) -> bool:
        """The function gets the model by a parameter that can hold the wrapper instead: then all
        its calls give that.
        """
        if not isinstance(function, DEFS) or not is_parameter(function, name):
            return False
        if not all(self._is_light(n) for n in mentions(function, name)):
            return False
        calls = self.script.analysis(CallGraph)
        if calls.complete(function):
            return False
        given = [
            (s, calls.argument(s, c, name))
            for s in calls.sites(function)
            for c in calls.callees(s)
            if c.function is function
        ]
        if any(expr is None or not self.script.values(expr) for _, expr in given):
            return False
        mine = [
            (c, e)
            for c, e in given
            if e is not None and any(id(t) in self.things for t in self.script.values(e))
        ]
        if (
            any(id(t) not in self.things for _, e in mine for t in self.script.values(e))
            or not mine
        ):
            return False
        for call, expr in mine:
            outer = function_of(call)
            if not self._is_given(outer, variable_name(expr)):
                self.edits[expr] = Rewrite(expr, self._name(outer))
        return True

    def _is_light(self, node: ast.Name) -> bool:
        parent = parent_of(node)
        if not is_read(node):
            return False
        if (call := call_of(node)) is not None:
            return call in self._calls or not self.script.reached(call)
        return is_attribute(parent, *LIGHT)


def _beside_variable(
    script: Script, mine: Trained, scope: Function, stores: Iterable[ast.stmt]
) -> None:
    """Directly before the statement, in the block of the model's variable, that leads to the
    training.
    """
    stores = list(stores)
    here = _block_with(stores)
    order = {s: n for n, s in enumerate(here)}
    made = max(place_in(here, s) for s in stores)
    leads = []
    for step in mine.steps:
        for backward in step.backwards:
            for occurrence in backward.site:
                statement = in_block(here, scope, occurrence.stack, backward.node)
                if statement is None:
                    raise Refusal(
                        f"`{mine.raw}` is set on {at(stores[0])}, from where the training on {at(backward)} is not reached"
                    )
                leads.append(order[statement])
    place = min(leads)
    if place <= made:
        raise Refusal(
            f"`{mine.raw}` is set on {at(stores[-1])}, in the same statement that trains it: make it before"
        )
    anchor = here[place]
    guards = {f.node for s in mine.steps for f in s.stack if isinstance(f, GuardFrame)}
    block = here
    while anchor in guards and isinstance(anchor, ast.If) and isinstance(scope, ast.Module):
        ways = [(o.stack, b.node) for s in mine.steps for b in s.backwards for o in b.site]
        ways = [way for way in ways if in_block(block, scope, *way) is anchor]
        inner = [in_block(anchor.body, scope, *way) for way in ways]
        if any(s is None for s in inner):
            raise Refusal(f"the training starts in the `else` of the main guard on {at(anchor)}")
        block = anchor.body
        anchor = next(s for s in block if s in inner)
    if is_elif(anchor):
        raise Refusal(f"the training starts in an `elif` on {at(anchor)}")
    mine.anchor = anchor
    _check_after(script, mine, here, scope, place)


def _block_with(stores: list[ast.stmt]) -> list[ast.stmt]:
    """The innermost block in which all the statements are, not below a condition for one of
    several.
    """
    for outer in statements_around(stores[0]):
        here = block_around(outer)
        parent = parent_of(outer)
        conditional = isinstance(parent, (ast.If, ast.Try, ast.With)) and not (
            isinstance(parent, ast.If) and "__name__" in names_in(parent.test)
        )
        if here and not conditional and all(place_in(here, s) >= 0 for s in stores):
            return here
        if isinstance(outer, FUNCTIONS):
            break
    raise Refusal(f"the model is made in different places ({at(stores[0])})")


def _check_after(
    script: Script, mine: Trained, here: list[ast.stmt], scope: Function, place: int
) -> None:
    """Nothing moves or converts the model after the wrapper is made."""
    things = {mine.thing, *mine.model.wraps}
    order = {s: n for n, s in enumerate(here)}
    moved_before = False
    late = []
    for site in script.log.of("move_model"):
        for occurrence in site:
            if occurrence.this not in things:
                continue
            how = occurrence.data.get(
                "how", getattr(getattr(site.node, "func", None), "attr", "to")
            )
            statement = in_block(here, scope, occurrence.stack, site.node)
            if statement is None or order[statement] < place:
                moved_before = True
            elif mine.trains_on(occurrence.stack) or statement is here[place]:
                late.append((site.node, how))
    for node, how in late:
        if how in UNSAFE_MOVES:
            raise Refusal(f"the model is moved or converted while it trains ({at(node)})")
        if not moved_before:
            raise Refusal(
                f"the model is moved to its device on {at(node)}, after the training has begun: move it where it is made"
            )


def _beside_attribute(
    script: Script, mine: Trained, owners: tuple[Inst, ...], stores: Iterable[ast.stmt]
) -> str:
    """At the end of the method that makes the model; the name of ``self`` there."""
    stores = list(stores)
    function = function_of(stores[0])
    if (
        any(function_of(s) is not function for s in stores)
        or not isinstance(function, ast.FunctionDef)
        or len(owners) != 1
    ):
        raise Refusal(f"`{mine.raw}` is set in several methods or objects ({at(stores[0])})")
    if not function.args.args or any_of(owners[0].made, LoopFrame):
        raise Refusal(f"the object with `{mine.raw}` is made in a loop")
    this = function.args.args[0].arg
    body = function.body
    for step in mine.steps:
        for backward in step.backwards:
            if any(
                in_block(body, function, o.stack, backward.node) is not None for o in backward.site
            ):
                raise Refusal(
                    f"{function.name}() makes the model and trains it: train it in a method of its own"
                )
    last = body[-1]
    mine.anchor, mine.after = last, not isinstance(last, ast.Return)
    if any(isinstance(n, ast.Return) and n is not last for n in own_nodes(function)):
        raise Refusal(f"{function.name}() may end before the model is complete")
    if not all(map(is_read, mentions(function, this))):
        raise Refusal(f"`{this}` is something else on {at(function)}")
    things = {mine.thing, *mine.model.wraps}
    for site in script.log.of("move_model"):
        for occurrence in site:
            if occurrence.this in things:
                if in_block(
                    body, function, occurrence.stack, site.node
                ) is None and not _made_before(mine, occurrence):
                    raise Refusal(
                        f"the model is moved on {at(site)}, after {function.name}() has made it: move it there"
                    )
    return this


def _made_before(mine: Trained, occurrence: Occurrence) -> bool:
    """It is moved before it is given to the object: where it is made itself."""
    return not any_of(occurrence.stack, BranchFrame, LoopFrame) and not mine.trains_on(
        occurrence.stack
    )
