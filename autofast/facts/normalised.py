"""Layers whose result goes to a normalisation and to nothing else: a constant that they add to a
channel is taken away again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from autofast.facts.parts import parts_of
from autofast.flow.defuse import Definition
from autofast.flow.program import definitions_of
from autofast.model.calls import is_name
from autofast.model.script import Script
from autofast.model.several import any_in, surely
from autofast.model.source import (
    ByNode,
    ancestors,
    at,
    function_of,
    nodes_in,
    outwards,
    parent_of,
    within,
)
from autofast.model.syntax import SEQUENCES, is_operation, is_stored
from autofast.model.values import (
    OBJECTS,
    Const,
    Ext,
    Inst,
    Thing,
    Unknown,
    Values,
    is_named,
    surely_named,
)
from autofast.read.library.module_parts import SEQUENTIAL, is_container, module_parts

LAYERS = frozenset(f"torch.nn.Conv{kind}{d}d" for kind in ("", "Transpose") for d in (1, 2, 3))
# They subtract the mean of each channel; a GroupNorm or LayerNorm subtracts that of several.
NORMS = frozenset(
    {"torch.nn.SyncBatchNorm", "torch.nn.LazyBatchNorm2d"}
    | {f"torch.nn.{kind}{d}d" for kind in ("BatchNorm", "InstanceNorm") for d in (1, 2, 3)}
)
OTHERS = ("Norm", "Linear")  # names of classes whose biases are meant where they are tested for


def normalised(script: Script) -> ByNode[list[Ext]]:
    """Convolutions by the call that makes them, where a normalisation comes directly
    after all that are made there.
    """
    found: ByNode[list[Ext]] = defaultdict(list)
    things = [t for m in script.models for t in parts_of(m.thing).values()]
    alone = script.analysis(_Uses)
    for thing in {id(t): t for t in things}.values():
        if is_named(thing, Ext, LAYERS) and isinstance(thing.node, ast.Call):
            found[thing.node].append(thing)
    return {key: made for key, made in found.items() if all(alone.are_normalised(t) for t in made)}


def reads_bias(script: Script, layers: Iterable[Ext]) -> str:
    """The line that needs the bias of one of these layers, without asking whether there is one; 0
    where none does.
    """
    mine = set(layers)
    for source in script.sources:
        if ".bias" not in source.text:
            continue
        for node in source.each(ast.Attribute):
            if (
                node.attr == "bias"
                and any(t in mine or isinstance(t, Unknown) for t in script.values(node.value))
                and not _is_asked_for(node)
            ):
                return at(node)
    return ""


def in_other_ways(script: Script) -> str:
    """What makes a bias count, or needs one, though its layer is normalised; empty where nothing
    does.
    """
    for site in script.methods("eval", "train"):
        for o in site:
            kept = site.kind == ".eval" or o.args.get(0, "mode") == {Const(False)}
            if is_named(o.this, Ext, NORMS) and kept:
                return f"{at(site)} keeps a normalisation from taking the mean of a batch"
    for site in script.methods("register_forward_hook", "register_forward_pre_hook"):
        return f"{at(site)} sets a hook, which may look at what a layer gives"
    for site in script.methods("parameters"):
        if _is_counted(site.node):
            return f"{at(site)} counts parameters"
    for node in script.nodes:
        if isinstance(node, ast.Constant) and str(node.value).endswith("bias"):
            if not _only_asks(parent_of(node)):
                return f"{at(node)} names a bias"
        if isinstance(node, ast.Subscript) and is_stored(node):
            if any(isinstance(t, OBJECTS) and is_container(t) for t in script.values(node.value)):
                return f"{at(node)} puts another layer into a container"
    return ""


def _is_counted(parameters: ast.AST) -> bool:
    """``list(model.parameters())[3]``: parameters are told apart by their numbers."""
    return any(
        isinstance(outer, ast.Subscript) and within(parameters, outer.value)
        for outer in ancestors(parameters)
    )


def _only_asks(outer: ast.AST | None) -> bool:
    """``hasattr(m, "bias")``, ``"bias" in name``, ``name.endswith("bias")``, ``nn.Conv2d(...,
    bias=...)``: nothing is looked up.
    """
    match outer:
        case ast.Compare(ops=[ast.In() | ast.NotIn()]) | ast.Expr():
            return True
        case ast.Call(func=ast.Name(id="hasattr")):
            return True
    return False


def _is_asked_for(bias: ast.Attribute) -> bool:
    """Whether it stands in, or below, a condition on there being one, or on the kind of layer being
    another.
    """
    text = ast.dump(bias.value)
    for here, outer in outwards(bias):
        if isinstance(outer, (ast.If, ast.IfExp, ast.BoolOp)):
            test = outer if isinstance(outer, ast.BoolOp) else outer.test
            for n in nodes_in(test, ast.Attribute):
                if n.attr == "bias" and ast.dump(n.value) == text:
                    return True
            words = [
                str(n.value) if isinstance(n, ast.Constant) else getattr(n, "attr", "")
                for n in ast.walk(test)
            ]
            kinds = [w for w in words if any_in(OTHERS, w)]
            if kinds and not any("Conv" in w for w in words) and here in getattr(outer, "body", []):
                return True
    return False


class _Uses:
    """Who calls each layer, and what its result goes to."""

    def __init__(self, script: Script):
        self.script = script
        self.good: dict[int, int] = defaultdict(int)
        self.bad: set[int] = set()
        calls = [(site.node, o.this) for site in script.log.of("forward") for o in site]
        things = {id(t): t for m in script.models for t in parts_of(m.thing).values()}
        things |= {id(t): t for _, t in calls if t is not None}  # also parts that are cut out
        for thing in things.values():
            if isinstance(thing, OBJECTS) and is_container(thing):
                self._container(thing)
        for node, layer in calls:
            if is_named(layer, Ext, LAYERS):
                self._count(layer, isinstance(node, ast.expr) and self._goes(node))

    def are_normalised(self, layer: Ext) -> bool:
        return self.good[id(layer)] > 0 and id(layer) not in self.bad

    def _count(self, layer: Thing, good: bool) -> None:
        if good:
            self.good[id(layer)] += 1
        else:
            self.bad.add(id(layer))

    def _container(self, container: Inst | Ext) -> None:
        """In a Sequential, what stands behind a layer gets its result."""
        named, rest = module_parts(container)
        in_turn = is_container(container, SEQUENTIAL) and not (
            isinstance(container, Inst) and container.cls.find("forward") is not None
        )
        if not in_turn:
            return  # calls of its layers are seen one by one
        layers = list(named.values())
        for n, found in enumerate(layers):
            behind = layers[n + 1] if n + 1 < len(layers) else None
            for layer in found:
                self._count(layer, behind is not None and _are_norms(behind))
        for layer in rest:
            self._count(layer, isinstance(layer, Ext) and self._is_followed(layer.node))

    def _is_followed(self, made: ast.AST | None) -> bool:
        """``layers += [nn.Conv2d(...), nn.BatchNorm2d(...)]``: neighbours in a list that is only
        put together with others.
        """
        display = parent_of(made) if made is not None else None
        if not isinstance(display, SEQUENCES):
            return False
        place = display.elts.index(made)  # type: ignore[arg-type]
        behind = display.elts[place + 1] if place + 1 < len(display.elts) else None
        if behind is None or not _are_norms(self.script.values(behind)):
            return False
        outer = parent_of(display)
        while is_operation(outer, ast.Add):
            outer = parent_of(outer)
        match outer:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
                return self._only_grows(outer, name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                return self._only_grows(outer, name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="extend")):
                return self._only_grows(outer, name)
        return isinstance(outer, ast.Starred)

    def _only_grows(self, place: ast.AST, name: str) -> bool:
        """Whether the function of ``place`` only puts things at the end of a list, and hands it on
        by ``*``.
        """
        for node in ast.walk(function_of(place)):
            if not is_name(node, name):
                continue
            match parent_of(node):
                case ast.AugAssign(op=ast.Add()) | ast.Assign() | ast.Starred():
                    continue
                case ast.Attribute(attr="append" | "extend"):
                    continue
                case ast.Call(func=ast.Name(id="len")):
                    continue
            return False
        return True

    def _goes(self, call: ast.expr) -> bool:
        """Whether what a call gives goes to normalisations only."""
        outer = parent_of(call)
        if isinstance(outer, ast.Call):
            first = bool(outer.args) and outer.args[0] is call
            return first and _are_norms(self.script.called(outer))
        match outer:
            case ast.Assign(targets=[ast.Name() as target], value=value) if value is call:
                flow = definitions_of(self.script, target)
                made = Definition(target.id, target)
                uses = flow.uses(made)
                return surely(flow.reaching(use) == {made} and self._goes(use) for use in uses)
        return False


def _are_norms(found: Values) -> bool:
    return surely_named(found, Ext, NORMS)
