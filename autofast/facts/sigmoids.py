"""Sigmoids whose results go to a binary cross entropy: what has to change together, so that the
loss gets what goes into them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autofast.facts.parts import parts_of
from autofast.facts.precision.banned import banned_loss
from autofast.facts.sigmoid_uses import Uses
from autofast.flow.callgraph import CallGraph
from autofast.model.calls import arguments_of, call_of, is_name, keyword_of, short_name
from autofast.model.contents import with_contents, wrapped
from autofast.model.kinds import is_module
from autofast.model.names import WRAPPERS, last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import Nodes, ancestors, at, parent_of
from autofast.model.syntax import is_attribute, is_read
from autofast.model.values import (
    OBJECTS,
    Ext,
    Inst,
    Method,
    Ref,
    Tensor,
    Thing,
    Unknown,
    any_named,
    begins,
    is_named,
    of_kind,
)
from autofast.read.library.module_parts import SEQUENTIAL, is_container, module_parts
from autofast.rule import Refusal

FUNCTIONS = wordset("torch.sigmoid torch.nn.functional.sigmoid")
LAYER = "torch.nn.Sigmoid"
LOSS = "torch.nn.BCELoss"
# What keeps, or exports, a module with its code: whoever loads it would get what goes into the
# sigmoid.
KEEPS = tuple("""torch.save torch.jit. torch.onnx. torch.export. pickle. joblib. dill. cloudpickle.""".split())  # fmt: skip
MOST_READS = 6  # of the probability, with a sigmoid written at each


@dataclass(eq=False)
class Group:
    """Losses, and the sigmoids that they get the results of.

    Attributes:
        losses: the calls of the losses, each with what it is given.
        made: the calls that make loss objects (``nn.BCELoss()``).
        sigmoids: calls of a sigmoid, or calls that make a layer.
        reads: the expressions that are to be probabilities where they stand.
        refusal: why nothing can be done.
    """

    losses: list[tuple[ast.Call, ast.expr | None]] = field(default_factory=list)
    made: list[ast.AST] = field(default_factory=list)
    sigmoids: list[ast.AST] = field(default_factory=list)
    reads: list[ast.expr] = field(default_factory=list)
    refusal: str = ""

    @property
    def calls(self) -> list[ast.Call]:
        return of_kind(self.sigmoids, ast.Call)

    @property
    def written(self) -> list[ast.Call]:
        """Where the losses are named: where they are made, else where they are computed."""
        return of_kind(self.made, ast.Call) or [loss for loss, _ in self.losses]


def sigmoids(script: Script) -> list[Group]:
    """The binary cross entropies of a script, those together that share a loss object or a
    sigmoid.
    """
    groups: list[Group] = []
    kept: list[Nodes] = []
    for site in script.log.of("loss"):
        if not isinstance(site.node, ast.Call) or not any(banned_loss(o.this) for o in site):
            continue
        given = _given(site.node)
        made = [o.this.node for o in site if isinstance(o.this, Ext) and o.this.node is not None]
        found = script.values(given) if given is not None else ()
        origins = [t.prob for t in of_kind(found, Tensor) if t.prob is not None]
        one, keys = Group([(site.node, given)], made, origins), {site.node, *made, *origins}
        for n in [n for n, k in enumerate(kept) if k & keys][::-1]:
            other = groups.pop(n)
            keys |= kept.pop(n)
            one.losses = other.losses + one.losses
            one.made, one.sigmoids = other.made + one.made, other.sigmoids + one.sigmoids
        groups.append(one)
        kept.append(keys)
    for group in groups:
        group.made = list({n: n for n in group.made}.values())
        group.sigmoids = list({n: n for n in group.sigmoids}.values())
        try:
            _Proof(script, group)
        except Refusal as why:
            group.refusal = str(why)
    return groups


def _given(loss: ast.Call) -> ast.expr | None:
    if loss.args:
        return None if isinstance(loss.args[0], ast.Starred) else loss.args[0]
    return keyword_of(loss, "input")


def taken_by(sigmoid: ast.Call) -> ast.expr | None:
    """What the call of a sigmoid takes: ``x`` of ``torch.sigmoid(x)``, ``x.sigmoid()`` and
    ``self.sigmoid(x)``.
    """
    if sigmoid.args:
        return sigmoid.args[0]
    method = is_attribute(sigmoid.func, "sigmoid")
    return sigmoid.func.value if method and not sigmoid.keywords else None  # type: ignore[attr-defined]


def is_call_of_sigmoid(script: Script, node: ast.AST) -> bool:
    """Whether a node calls a sigmoid, and nothing else; a layer that a container calls does not
    stand there.
    """
    if not isinstance(node, ast.Call) or makes_layer(script, node) or taken_by(node) is None:
        return False
    return surely(map(_is_sigmoid, script.called(node)))


def _is_sigmoid(thing: Thing) -> bool:
    """``torch.sigmoid``, ``x.sigmoid`` or a layer that is one."""
    layer = is_named(thing, Ext, LAYER)
    return layer or is_named(thing, Ref, FUNCTIONS) or is_named(thing, Method, "sigmoid")


def makes_layer(script: Script, call: ast.Call) -> bool:
    return any_named(script.values(call), Ext, LAYER)


def idle_layers(script: Script, gone: list[ast.Call]) -> Iterator[ast.stmt]:
    """``self.sigmoid = nn.Sigmoid()``, where the calls that go are all that reads the attribute."""
    functions = {c.func for c in gone}
    for attr in {c.func.attr for c in gone if isinstance(c.func, ast.Attribute)}:
        named = [n for n in script.each(ast.Attribute) if n.attr == attr]
        if any(n not in functions for n in named if is_read(n)):
            continue
        for statement in map(parent_of, named):
            match statement:
                case ast.Assign(targets=[_], value=ast.Call() as made):
                    if makes_layer(script, made):
                        yield statement


class _Proof:
    """That the losses of a group may get what goes into its sigmoids; raises :class:`Refusal` where
    it may not.
    """

    def __init__(self, script: Script, group: Group):
        self.script = script
        self.calls = script.analysis(CallGraph)
        if script.unread:
            raise Refusal(f"the probabilities may be used where {script.unread}")
        for loss, given in group.losses:
            self._loss(loss, given)
        for made in group.made:
            self._object(made, {loss for loss, _ in group.losses})
        for sigmoid in group.sigmoids:
            self._sigmoid(sigmoid)
        losses = {loss: expr for loss, expr in group.losses if expr is not None}
        uses = Uses(script, group.sigmoids, losses)
        for sigmoid in group.sigmoids:
            uses.used_elsewhere(sigmoid)
        if len(uses.reads) > MOST_READS:
            raise Refusal(
                f"the probability is read in {len(uses.reads)} places besides the loss, "
                f"one of them {at(uses.reads[0])}"
            )
        self._modules(group.sigmoids)
        group.reads = uses.reads

    # ------------------------------------------------------------------------------------- the loss
    def _loss(self, loss: ast.Call, given: ast.expr | None) -> None:
        name = "binary cross entropy"
        for thing in self.script.called(loss):
            name = last_part(banned_loss(thing)) or name
        for thing in self.script.called(loss):
            if not banned_loss(thing):
                raise Refusal(f"which loss {at(loss)} computes is chosen when the script runs")
        if given is None:
            raise Refusal(f"what {at(loss)} gives {name} does not stand there one by one")
        for thing in self.script.values(given):
            if not isinstance(thing, Tensor):
                why = f": {thing.why}" if isinstance(thing, Unknown) else ""
                raise Refusal(f"what {at(loss)} gives {name} is not known{why}")
            if thing.prob is None:
                raise Refusal(
                    f"what {at(loss)} gives {name} is not, or not always, the very result of a sigmoid: "
                    "where it is one that was clamped or changed since, give the loss what goes into the sigmoid"
                )

    def _object(self, made: ast.AST, losses: Nodes) -> None:
        """A loss object is called by these losses, and by nothing else; nothing asks for its
        class.
        """
        if not isinstance(made, ast.Call) or short_name(made.func) != "BCELoss":
            raise Refusal(f"the loss is made under another name on {at(made)}")
        for node in self.script.nodes:
            for thing in self.script.values(node):  # none but of expressions
                if is_named(thing, Ref, LOSS) and call_of(node) is None:
                    if not isinstance(parent_of(node), ast.Attribute):
                        raise Refusal("names the class of the loss", node)
                if not isinstance(thing, Ext) or thing.node is not made:
                    continue
                call = call_of(node)
                if call is not None and call not in losses:
                    raise Refusal(f"what {at(call)} gives the loss is not known")
                outer = parent_of(node)
                if isinstance(outer, ast.Call) and call is None and not self._is_ours(outer):
                    raise Refusal("is given the loss", outer)

    def _is_ours(self, call: ast.Call) -> bool:
        """A call of the project's own code, or of what only puts things together."""
        found = self.script.called(call)
        if surely(isinstance(t, Method) or begins(t, Ref, "builtins.") for t in found):
            return True
        return bool(self.calls.callees(call))

    # ---------------------------------------------------------------------------------- the sigmoid
    def _sigmoid(self, place: ast.AST) -> None:
        if not isinstance(place, ast.Call):
            raise Refusal("where the sigmoid is called is not known")
        if makes_layer(self.script, place):
            self._layers(place)
            return
        if not all(map(_is_sigmoid, self.script.called(place))):
            raise Refusal(f"what {at(place)} calls is not always a sigmoid")
        if taken_by(place) is None:
            raise Refusal(f"what goes into the sigmoid on {at(place)} does not stand there")

    def _layers(self, place: ast.Call) -> None:
        """Layers that are made at one place stand last in each container that they are in."""
        found = {id(t): t for m in self.script.models for t in parts_of(m.thing).values()}
        found |= {id(o.this): o.this for s in self.script.log.of("forward") for o in s if o.this}
        containers = [t for t in found.values() if isinstance(t, OBJECTS) and is_container(t)]
        behind = {id(t) for t in of_kind(found.values(), Ext) if t.node is place}
        for _ in containers:  # from the inside out
            more = {id(c) for c in containers if self._holds_last(c, behind, place)} - behind
            if not more:
                break
            behind |= more
        for node in self.script.nodes:
            outer = parent_of(node) if isinstance(node, ast.expr) else None
            taken = isinstance(outer, ast.Subscript) and outer.value is node
            asked = is_attribute(outer, "children", "named_children")
            if taken or asked:
                if any(id(t) in behind for t in self.script.values(node)):
                    raise Refusal("takes layers by their places", node)

    def _holds_last(self, container: Inst | Ext, layers: set[int], place: ast.AST) -> bool:
        named, rest = module_parts(container)
        groups = [*named.values(), *((rest,) if rest else ())]
        held = [any(id(t) in layers for t in found) for found in groups]
        if not any(held):
            return False
        own = isinstance(container, Inst) and container.cls.find("forward") is not None
        alone = all(id(t) in layers for t in groups[-1])
        in_turn = is_container(container, SEQUENTIAL) and not own
        if not in_turn or any(held[:-1]) or not alone:
            raise Refusal(f"the sigmoid of {at(place)} is not always the last of a Sequential")
        return True

    # -------------------------------------------------------------------------------------- modules
    def _modules(self, places: Iterable[ast.AST]) -> None:
        """Nothing outside of the script gets the modules that end in a sigmoid, and so what they
        give then.
        """
        classes: Nodes = {c for p in places for c in ancestors(p) if isinstance(c, ast.ClassDef)}
        made = set(places)
        for node in self.script.each(ast.Call):
            if self._is_harmless(node):
                continue
            for given in arguments_of(node):
                for thing in with_contents(self.script.values(given)):
                    if is_module(thing) and self._has(thing, classes, made):
                        raise Refusal("is given a model that ends in the sigmoid", node)

    def _has(self, module: Thing, classes: Nodes, made: Nodes) -> bool:
        return any(
            (isinstance(t, Inst) and t.cls.node in classes)
            or (isinstance(t, Ext) and t.node in made)
            for t in parts_of(module).values()
        )

    def _is_harmless(self, call: ast.Call) -> bool:
        """What a call does with a model says nothing of what the model gives, or is seen."""
        names = [_name(t) for t in self.script.called(call)]
        if self.calls.callees(call) or is_name(call.func, "super"):
            return True
        known = bool(names) and all(names)
        return known and all(
            n in WRAPPERS
            or n.startswith(("torch.", "builtins.", "copy."))
            and not n.startswith(KEEPS)
            for n in names
        )


def _name(thing: Thing) -> str:
    if isinstance(thing, Method):
        inner = next(iter(wrapped(thing.this)), thing.this)
        return "builtins.method" if is_module(inner) or not isinstance(inner, Unknown) else ""
    return thing.name if isinstance(thing, (Ref, Ext)) else ""
