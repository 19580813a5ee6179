"""Modules: forward, and their methods."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from autofast.model import names
from autofast.model.changes import CLOCK, remember, remembered
from autofast.model.contents import wrapped_by
from autofast.model.events import Way, way_of
from autofast.model.kinds import is_module
from autofast.model.limits import MOST_ALIKE_PASSES, MOST_PARTS
from autofast.model.names import WRAPPERS, last_part
from autofast.model.several import wordset
from autofast.model.tensors import dtype_of, mixed, target_of, tensors_in
from autofast.model.values import (
    COLLECTIONS,
    NONE,
    NOTHING,
    NUMBER,
    OBJECTS,
    SOMEWHERE,
    STATE_DICT,
    Arguments,
    Bound,
    ById,
    Const,
    Dict,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    begins,
    const,
    is_named,
    things as values,
)
from autofast.ops.families import PAIRED
from autofast.read.library import module_parts
from autofast.read.library.iteration import submodules
from autofast.read.state.core import Core

SAME = wordset(
    "train eval float requires_grad_ share_memory apply compile to_empty type"
)  # methods that return the module
LOOKUPS = wordset("Embedding EmbeddingBag", "torch.nn.")  # they take nothing but integers


def loss(interp: Core, thing: Thing, args: Arguments, node: Where) -> Values:
    """A loss function: ``criterion(output, target)`` or ``F.cross_entropy(output, target)``."""
    tensors = tensors_in(*args.each)
    if isinstance(thing, Ref):
        reduction = const(args.get(-1, "reduction"))
    elif isinstance(thing, Ext):
        reduction = const(thing.arg("reduction"))
    else:
        reduction = ...
    interp.emit("loss", node, thing, args, values(*tensors))
    rank = "0d" if _reduces(thing, args) else ""
    if tensors:
        made = mixed(tensors, loss=reduction != "none", prob=None, rank=rank)
    else:
        made = Tensor(loss=True, grad=interp.grad_on(), rank=rank)
    return values(made.but(grad=made.grad and interp.grad_on()))


def _reduces(thing: Thing, args: Arguments) -> bool:
    """Whether a loss of torch certainly gives one number."""
    if isinstance(thing, Ref):
        given = args
    elif begins(thing, Ext, "torch.nn.") and not thing.open and "reduction" not in thing.attrs:
        given = thing.args
    else:
        return False
    fine = {
        "reduction": ("mean", "sum"),
        "reduce": (True, None),
        "size_average": (True, False, None),
    }
    plain = all(
        given.named[name].sure and const(given.named[name].values) in wanted
        for name, wanted in fine.items()
        if name in given.named
    )
    return (
        plain
        and not given.open
        and given.loose is None
        and len(given.positional) <= (3 if isinstance(thing, Ref) else 1)
    )


def forward(interp: Core, thing: Thing, args: Arguments, node: Where) -> Values:
    tensors = tensors_in(*[g.values for g in args.every])
    depth = interp.__dict__.setdefault("_forwards", [])
    if not depth and tensors and is_named(thing, Ext, names.ACTIVATIONS):
        plain = mixed(tensors)  # no model, but a function of what a model gave
        is_sigmoid = thing.name == "torch.nn.Sigmoid"
        return values(plain.but(prob=node or SOMEWHERE) if is_sigmoid else plain)
    interp.emit("forward", node, thing, args, outer=not depth, inputs=tensors)
    if thing in depth:
        return values(
            mixed(tensors) if tensors else Tensor()
        )  # a wrapper around itself, made in a loop
    depth.append(thing)
    try:
        made = _forward(interp, thing, args, node, tensors)
    finally:
        depth.pop()
    makers = (
        frozenset() if depth else frozenset({thing})
    )  # the layers inside a model are not told apart: their number would explode
    passes = frozenset({node}) if makers else makers
    if makers:  # what it was given may have been written into what it gives
        passes = passes.union(*(t.passes for t in tensors))
    grad, gathers = interp.grad_on(), not isinstance(thing, Inst)
    # Most layers are given what the one before has given, and give that again.
    key = _output, made, makers, passes, grad, gathers
    ticks, found = remembered(key) or (-1, NOTHING)
    if ticks != CLOCK.ticks:
        done: ById = {}
        found = frozenset(_output(interp, t, makers, passes, grad, gathers, done) for t in made)
        remember(key, (CLOCK.ticks, found))
    return found


def _output(
    interp: Core,
    thing: Thing,
    makers: frozenset[Thing],
    passes: frozenset[Any],
    grad: bool,
    gathers: bool,
    done: ById,
) -> Thing:
    """A result of a module: whatever it was made of, now it is the output of ``makers``, called at
    ``passes``.

    ``gathers``: the module may be one that puts the results of several devices into one tensor, as
    DataParallel does. ``done``: what the lists and dicts of this result became, as the same may lie
    in it in many places.
    """
    if isinstance(thing, Tensor):
        rank = thing.rank if thing.rank == "?" or (thing.rank == "0d" and not gathers) else ""
        plain = not thing.batch and not thing.fresh and thing.made is None
        if plain and thing.grad == grad and thing.rank == rank:
            if makers <= thing.models and (passes <= thing.passes or not grad):
                return thing  # an output already, as most results of layers are
        return thing.but(
            batch=frozenset(),
            models=thing.models | makers,
            passes=passes | thing.passes,
            grad=grad,
            fresh="",
            rank=rank,
            made=None,
        )
    anything = Tensor(models=makers, passes=passes, grad=grad, rank="?")
    is_deep = isinstance(thing, COLLECTIONS) and len(done) > MOST_PARTS
    if isinstance(thing, Unknown) or is_deep:
        return anything

    def inner(found: Values) -> Values:
        return frozenset(_output(interp, t, makers, passes, grad, gathers, done) for t in found)

    if id(thing) in done:
        return done[id(thing)]
    if isinstance(thing, Seq):
        done[id(thing)] = anything  # inside of itself
        items = None if thing.items is None else tuple(inner(i) for i in thing.items)
        elem = inner(thing.elem)
        head = tuple(inner(i) for i in thing.head)
        if (items, elem, head) == (thing.items, thing.elem, thing.head):
            done[id(thing)] = thing  # an output already, of the layer before
            return thing
        # equal results for one original are one object, so that loops come to rest
        same = ("output", thing, items, elem, head)
        if same not in interp.things:
            interp.things[same] = replace(thing, items=items, elem=elem, head=head)
        done[id(thing)] = interp.things[same]
        return done[id(thing)]
    if isinstance(thing, Dict):
        done[id(thing)] = thing
        how = (makers, passes, grad, gathers)
        if interp.things.get(("output of", thing)) == how:
            return thing  # an output already, of the layer before
        key = ("output", thing, *how)
        if key not in interp.things:
            interp.things[key] = Dict(thing.node, open=thing.open, made=thing.made)
            interp.things["output of", interp.things[key]] = how
        made: Dict = interp.things[key]  # filled in again each time: the original may have grown
        made.rest = inner(thing.rest)
        for name, entries in thing.entries.items():
            made.entries[name] = [replace(e, values=inner(e.values)) for e in entries]
        done[id(thing)] = made
        return made
    if isinstance(thing, Inst) and not is_module(thing):  # a dataclass of outputs
        done[id(thing)] = thing
        for name, found in list(thing.attrs.items()):
            thing.attrs[name] = inner(found)
    return thing


def _forward(
    interp: Core, thing: Thing, args: Arguments, node: Where, tensors: list[Tensor]
) -> Values:
    base = mixed(tensors) if tensors else Tensor()
    if isinstance(thing, Inst):
        method = thing.attrs.get("forward") or thing.cls.find("forward")
        if method is None:
            in_turn = module_parts.is_container(thing, module_parts.SEQUENTIAL)
            if in_turn:
                return _in_turn(interp, thing, args, node, base)
            # A wrapper of its own kind may gather anything.
            wraps = bool(WRAPPERS & thing.cls.external)
            return values(base.but(rank="?") if wraps else base)
        # Summaries of calls alone do not do: each object that the reader comes to know makes them
        # void, and where one of several large networks is chosen at run time, each pass would be
        # followed again until the budget is used up.
        cache: dict[Any, tuple[Values, Way]] = interp.__dict__.setdefault("_forward_cache", {})
        key = _pass_key(interp, thing, args)
        if key in cache:
            _again(interp, thing, args, thing.cls.node if node is None else node, cache[key][1])
        else:
            found: Values = NOTHING
            for func in method:
                if isinstance(func, Func) and "forward" not in thing.attrs:
                    found |= interp.call_function(func, args, node, thing)
                else:
                    found |= interp.call_values(values(func), args, node)
            cache[key] = found or values(base), _way_here(interp, node)
        return cache[key][0]
    if isinstance(thing, Ext):
        if thing.name in WRAPPERS:
            found = NOTHING
            for inner in wrapped_by(thing):
                found |= interp.call_values(values(inner), args, node)
            return found or values(base)
        short = last_part(thing.name)
        if short == "Sequential":
            return _in_turn(interp, thing, args, node, base)
        if short == "Sigmoid":
            return values(base.but(prob=node or thing.node or SOMEWHERE))
        if short in PAIRED:
            second = base if short in ("RNN", "GRU") else base.but(rank="?")  # or a pair, or None
            return interp.tuple_of(None, (values(base), values(second)), "rnn", node)
        if names.DETECTORS.match(thing.name) and args.get(1, "targets") and _trains(interp, thing):
            one = values(base.but(dtype="f32", loss=True, rank="0d", prob=None))
            made = interp.intern(Dict, ("losses", thing, node), lambda: Dict(node, rest=one))
            return values(made)
        if short == "Identity" or short.startswith("Dropout"):
            return values(base)
        whole = base.dtype == "int" or thing.name in LOOKUPS
        kept = not whole or short in ("Flatten", "Unflatten", "ZeroPad2d", "Upsample")
        return values(
            base.but(
                prob=None,
                dtype=base.dtype if kept else "f32",  # its parameters
                rank="" if _gives_one_tensor(thing) else "?",
                loss_first=thing.name.startswith("transformers.") and _has_labels(args),
            )
        )
    return values(base)


def _trains(interp: Core, thing: Ext) -> bool:
    """Whether a module was not put into evaluation mode last."""
    last = {
        kind: max((o.order for s in interp.log.of(kind) for o in s if o.this is thing), default=0)
        for kind in (".train", ".eval")
    }
    return last[".train"] >= last[".eval"]


def _in_turn(interp: Core, thing: Inst | Ext, args: Arguments, node: Where, base: Tensor) -> Values:
    """A pass through a Sequential: its layers one by one, as long as that was not done often."""
    interp.step()
    done: dict[Any, tuple[int, Values, Way]] = interp.__dict__.setdefault("_in_turn", {})
    key = _pass_key(interp, thing, args)
    times, found, way = done.get(key, (0, NOTHING, ()))
    if times == MOST_ALIKE_PASSES:
        place = thing.node if node is None else node
        if place is not None:
            _again(interp, thing, args, place, way)
        return found
    found = module_parts.in_order(interp, thing, args, values(base))
    done[key] = times + 1, found, _way_here(interp, node)
    return found


def _way_here(interp: Core, node: Where) -> Way:
    """The way of the calls below ``node``, which stands here."""
    return way_of(tuple(interp.stack)) + ((node,) if node else ())


def _again(interp: Core, thing: Thing, args: Arguments, place: ast.AST, first: Way) -> None:
    """What is recorded below the ``first`` pass happens below this one, too."""
    seen = interp.__dict__.setdefault("_repeated", {})
    stack = tuple(interp.stack)
    here = way_of(stack), id(thing)
    firsts = seen.get(here, {})
    if first not in firsts:
        firsts = seen[here] = {**firsts, first: None}
    interp.happen("forward_again", place, stack, thing, args, NOTHING, "on", {"firsts": firsts})


def _gives_one_tensor(thing: Ext) -> bool:
    """Whether calling this module gives a tensor: models of other libraries do, unless they are
    asked for more.
    """
    if names.is_of_model_library(thing.name):
        more = {"aux_params", "features_only", "out_indices"} & thing.args.named.keys()
        return not more and not thing.args.open
    return names.gives_one_tensor(thing.name)


def _has_labels(args: Arguments) -> bool:
    """Models of transformers that are given labels compute the loss, and give it first."""
    labels = args.named.get("labels")
    return labels is not None and bool(labels.values) and Const(None) not in labels.values


def _pass_key(interp: Core, thing: Inst | Ext, args: Arguments) -> Hashable:
    """What a pass through a module of the project, or a Sequential, depends on."""
    return (
        id(thing),
        interp.model_changes,
        interp.grad_on(),
        tuple(g.values for g in args.positional),
        tuple((k, g.values) for k, g in args.named.items()),
    )


def module_method(interp: Core, this: Thing, name: str, args: Arguments, node: Where) -> Values:
    assert isinstance(this, OBJECTS)
    if name in ("to", "cuda", "cpu"):
        target, kinds, dtype = target_of(name, args)
        interp.emit("move_model", node, this, args, target=target, kinds=kinds, dtype=dtype)
        if any(dtype_of(t) == "f64" for t in dtype):
            this.attrs["__dtype__"] = values(Const("f64"))
        return values(this)
    if name in ("double", "half", "bfloat16"):
        this.attrs["__dtype__"] = values(Const("f64" if name == "double" else "half"))
        return values(this)
    if name in SAME:
        if name == "apply":
            for func in args.get(0, "fn"):
                if isinstance(func, (Func, Bound)):
                    for part in submodules(this)[:4]:
                        interp.call_values(
                            values(func), Arguments(None, [Given(values(part), None)]), node
                        )
        return values(this) if name != "compile" else NONE
    if name.removeprefix("named_") in ("parameters", "buffers", "modules", "children"):
        inner: Values = (
            values(Tensor(param="param", grad=True))
            if "param" in name
            else module_parts.whole(this)
            if "modules" in name
            else module_parts.any_part(this) or values(Unknown("a submodule"))
        )
        if name == "children" and (each := module_parts.children(interp, this, node)):
            return each
        if name.startswith("named_"):
            inner = interp.tuple_of(node, (NUMBER, inner), name, this)
        return values(
            interp.intern(Seq, (node, this, inner), lambda: Seq(node, None, inner, "parameters"))
        )
    if name == "register_buffer":
        key = const(args.get(0, "name"))
        if isinstance(key, str):
            this.attrs[key] = args.get(1, "tensor")
        return NONE
    if name in ("register_parameter", "add_module", "register_module"):
        found = args.get(1, "param") | args.get(1, "module")
        module_parts.put(interp, this, const(args.get(0, "name")), found)
        return NONE
    if module_parts.is_container(this) and name in ("append", "extend", "insert", "update"):
        module_parts.grow(interp, this, name, args)
        return values(this)
    if module_parts.is_container(this) and name in ("pop", "__delitem__"):
        found = module_parts.part(this, const(args.get(0, "key")))
        module_parts.displace_modules(interp, this)
        return found or values(Unknown("a submodule"))
    if module_parts.is_container(this) and name in ("keys", "values", "items"):
        (table,) = module_parts.table(interp, this)
        return interp.call_thing(Method(table, name), args, node)
    if name == "state_dict":
        return values(STATE_DICT)
    if name == "load_state_dict":
        return NUMBER
    if name == "__call__" or name == "forward":
        return forward(interp, this, args, node)
    if this_forward := (
        isinstance(this, Ext) and this.name not in WRAPPERS and tensors_in(*args.placed)
    ):
        return values(mixed(this_forward, models=frozenset({this}), grad=interp.grad_on()))
    return values(Unknown(f"what .{name}() of a module returns"))
