"""What speaks against compiling one model."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autofast.facts.freezing import is_data
from autofast.facts.model_objects import own_state
from autofast.facts.parts import not_known, parts_of
from autofast.facts.precision.code import Code, applied_functions
from autofast.flow.callgraph import code_of
from autofast.model.calls import is_method, short_name
from autofast.model.contents import without_wrappers
from autofast.model.events import CallFrame, LoopFrame, Site, Stack
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.roles import Model, Step
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind, wordset
from autofast.model.source import at, enclosing, nodes_in, parent_of
from autofast.model.syntax import IDENTITY, PAUSES, TESTS, VARIABLES, is_attribute
from autofast.model.values import (
    Arguments,
    Const,
    Ext,
    Inst,
    Num,
    Seq,
    Tensor,
    Unknown,
    any_of,
    begins,
    const,
    why_unknown,
)
from autofast.ops.families import RECURRENT
from autofast.techniques.compiling.legality import class_of, events_of, jit_uses

# Pytorch#193061: wrong gradients of chained, modulated LayerNorms, from the first to before the
# second.
WRONG_NORM = ((2, 10), (2, 14))
MANY = ("torch.nn.Sequential", "torch.nn.Transformer")
DETECTION = tuple("fasterrcnn maskrcnn keypointrcnn retinanet ssd fcos".split())
PADS = wordset("""pad_sequence pack_sequence pad_packed_sequence max nested_tensor
    nested_tensor_from_tensor_list""")
WEIGHTS = tuple(
    f"torch.nn.{layer}" for layer in ("Linear", "Bilinear", "Conv", "Embedding", *RECURRENT)
)
NOISY = tuple(
    """builtins.print builtins.open builtins.input logging. time. random. numpy.random.
    warnings.warn tqdm.""".split()
)


def why_not_compiled(script: Script, model: Model, code: Code) -> str:
    """Why this model must not be compiled; empty where nothing speaks against."""
    if why := not_known(model):
        return why
    if why := _by_method(model):
        return why
    if any(last_part(layer).startswith(DETECTION) for layer in model.layers):
        return f"{model.name} is a detection model, whose lists of boxes have other sizes in each batch"
    if jit := next((n for n in jit_uses(script) if class_of(n) in model.classes), None):
        return f"{at(jit)} uses TorchScript"
    if begins(model.thing, Ext, "torch.nn.") and not model.thing.name.startswith(MANY):
        return f"it is a single {model.name}: there is nothing to fuse"
    if any(f.is_statement for f in of_kind(model.thing.made, LoopFrame)):
        return "a new model is made in each turn of a loop, and each would be compiled again"
    if (
        "LayerNorm" in model.layers
        and script.torch.is_at_least(WRONG_NORM[0])
        and script.torch.rules_out(WRONG_NORM[1])
    ):
        return "the project asks for torch 2.10 to 2.13, which may compute wrong gradients for LayerNorm (pytorch#193061)"
    checks: tuple[Callable[[Script, Model, Code], str], ...] = (
        _inputs, _shapes, _state, _numbers, own_state, _effects, _control, _foreign_code,
    )  # fmt: skip
    why = next((why for check in checks if (why := check(script, model, code))), "")
    return why or against_recurrent(model)


def against_recurrent(model: Model) -> str:
    """What torch leaves out of a model that it compiles, in words; empty where that is nothing."""
    layers = (x for x in sorted(model.layers) if x.startswith(RECURRENT) and not x.endswith("Cell"))
    if rnn := next(layers, ""):
        return f"torch leaves {rnn} out of what it compiles, so there is little to gain"
    return ""


def _inputs(script: Script, model: Model, code: Code) -> str:
    for site, args in _given(model):
        given = args.every
        for values in (g.values for g in given):
            if any(not is_module(t) for t in of_kind(values, Inst)):
                return f"its input on {at(site)} is no plain tensor"
            if any_of(values, Num) and not any_of(values, Tensor):
                return f"{at(site)} gives it a number: it is compiled again where that changes"
            if any(t.items is None and t.kind == "list" for t in of_kind(values, Seq)):
                return f"{at(site)} gives it a list, whose length may be another in each batch"
        if not any(
            isinstance(t, (Tensor, Seq)) or hasattr(t, "entries") for g in given for t in g.values
        ):
            why = next(
                filter(None, (why_unknown(g.values) for g in given)),
                args.open or "no tensor is seen",
            )
            return f"what it gets on {at(site)} is not known: {why}"
    return ""


def _given(model: Model) -> Iterator[tuple[Site, Arguments]]:
    return ((site, o.args) for site in model.forwards for o in site if o.grad in ("on", "maybe"))


def padded_batches(script: Script, model: Model) -> str:
    """Where batches get the size of their longest item, in words; empty where nothing shows
    that.
    """
    things = [t for step in _steps(script, model) for t in step.loaders]
    for loader in script.loaders:
        if any_in(loader.things, things) and (why := _pads(loader.args)):
            return f"{why} ({at(loader)})"
    return ""


def _steps(script: Script, model: Model) -> list[Step]:
    return [s for s in script.steps if any(model.thing in without_wrappers(t) for t in s.models)]


def _shapes(script: Script, model: Model, code: Code) -> str:
    mine = _steps(script, model)
    for site in script.calls("torch.nn.functional.interpolate"):
        for occurrence in site:
            in_step = any(
                any(f.node is s.loop for s in mine) for f in of_kind(occurrence.stack, LoopFrame)
            )
            in_step &= _module_of(occurrence.stack) is None
            size = occurrence.args.get(1, "size")
            if in_step and size and const(size) is ...:
                return f"{at(site)} resizes the batches to sizes that change"
    return ""


def _pads(args: Arguments) -> str:
    if args.get(-1, "batch_sampler") - {Const(None)}:
        return "a batch_sampler makes the batches"
    for thing in args.get(6, "collate_fn"):
        functions = [c.function for c in code_of(thing) if c.makes is None]
        for call in (n for f in functions for n in nodes_in(f, ast.Call)):
            if (name := short_name(call.func)) in PADS:
                return f"collate_fn pads each batch to its longest item, by {name}()"
    return ""


def _by_method(model: Model) -> str:
    """Another method of a module computes what is trained: only ``model(x)`` is compiled."""
    for occurrence in (o for site in model.forwards for o in site if o.grad in ("on", "maybe")):
        frame = _module_of(occurrence.stack)
        owner = frame.func.owner if frame is not None else None
        if (
            frame is not None
            and owner is not None
            and not (isinstance(model.thing, Inst) and owner in model.thing.cls.lineage())
        ):
            return f"{at(frame)} trains through {owner.node.name}.{frame.func.name}(), and only what model(...) calls is compiled"
    return ""


def _module_of(stack: Stack) -> CallFrame | None:
    """The outermost method of a module among the frames, but for those that build it."""
    for frame in stack:
        owner = frame.func.owner if isinstance(frame, CallFrame) else None
        if (
            isinstance(frame, CallFrame)
            and owner is not None
            and is_module(Inst(owner, None))
            and frame.func.name != "__init__"
        ):
            return frame
    return None


def _state(script: Script, model: Model, code: Code) -> str:
    """Lists that live on the model: filled in every step, outside or inside of its forward pass."""
    for node in script.nodes:
        if is_method(node, "append", "extend", "insert"):
            kept = node.func.value
            if not is_attribute(kept) or any(
                is_module(t) for t in of_kind(script.values(kept), Ext)
            ):
                continue
            here = model.thing in script.values(kept.value)
            if (here and not _building(node)) or node in code.all:
                return f"{at(node)} keeps values in a list of the model"
    return ""


def _numbers(script: Script, model: Model, code: Code) -> str:
    """Numbers of its parts that the training sets anew, ``norm.momentum = m``: each is part of
    what is compiled.
    """
    mine = parts_of(model.thing)
    loops = {f.node for site in model.forwards for o in site for f in _turns(o.stack)}
    read = {n.attr for part in code.parts for n in nodes_in(part, ast.Attribute)}
    for site in script.log.of("set_attribute"):
        for o in site if site.node not in code.all else ():
            again = any(f.node in loops for f in _turns(o.stack)) and id(o.this) in mine
            used = isinstance(o.this, Ext) or o.data.get("name") in read
            settled = all(isinstance(t, (Const, Tensor)) or is_module(t) for t in o.result)
            if again and used and not settled:
                return f"{at(site)} sets `{o.data.get('name')}` again and again, and it is compiled anew for each value"
    return ""


def _turns(stack: Stack) -> list[LoopFrame]:
    return [f for f in of_kind(stack, LoopFrame) if f.is_statement]


def _building(node: ast.AST) -> bool:
    method = enclosing(node, ast.FunctionDef)
    in_class = method is not None and isinstance(parent_of(method), ast.ClassDef)
    return in_class and getattr(method, "name", "") != "forward"


def _effects(script: Script, model: Model, code: Code) -> str:
    for site, occurrence in code.events("set_attribute", "set_elsewhere"):
        if site.node in code.all and is_module(occurrence.this):
            return f"its forward pass sets `{ast.unparse(site.node)}` ({at(site)}), which compiled code may not repeat"
    for kind, site in events_of(script, WEIGHTS):
        if site.node in code.all and site.call is not None:
            return f"its forward pass makes a layer, {kind.removeprefix('torch.')}, with new weights ({at(site)})"
    for site, _ in code.events("sync"):
        if site.node in code.all:
            return f"its forward pass reads a value on {at(site)}, where the graph breaks"
    for kind, site in events_of(script, NOISY):
        if site.node in code.all:
            return f"its forward pass calls {kind.removeprefix('builtins.')}() on {at(site)}, where the graph breaks"
    return ""


def _control(script: Script, model: Model, code: Code) -> str:
    for node in (n for part in code.parts for n in ast.walk(part)):
        tests = [node.test] if isinstance(node, TESTS) else []
        for test in tests:
            if any(is_data(script.values(t)) for t in _operands(test)):
                return f"{at(node)} decides by the values of a tensor, where the graph breaks"
        if isinstance(node, ast.While):
            return f"its forward pass holds a while loop ({at(node)})"
        over = [node.iter] if isinstance(node, (ast.For, ast.comprehension)) else []
        for expr in (e for o in over for e in nodes_in(o, ast.expr)):
            if any(not t.param for t in of_kind(script.values(expr), Tensor)):
                return f"{at(over[0])} loops over a tensor: each turn becomes part of the graph, and compiling takes very long"
    return ""


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition whose values decide: not those of ``x is None``."""
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _operands(value)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _operands(inner)
        case ast.Compare(left=left, ops=ops, comparators=others):
            if not any_of(ops, IDENTITY):
                yield from (left, *others)
        case _:
            yield test


def _foreign_code(script: Script, model: Model, code: Code) -> str:
    for part in code.parts:
        for node in ast.walk(part):
            for thing in applied_functions(script, node) if isinstance(node, VARIABLES) else ():
                return f"{thing.node.name} on {at(node)} is an autograd Function, where the graph may break"
            if isinstance(node, PAUSES):
                return f"{at(node)} leaves the forward pass in the middle"
    for kind in ("torch.diagonal_scatter", ".diagonal_scatter"):
        for site, _ in code.events(kind):
            return (
                f"torch 2.13 may lose the gradient of diagonal_scatter ({at(site)}, pytorch#182012)"
            )
    for site, occurrence in code.events("call_unknown"):
        if (
            isinstance(occurrence.this, Unknown)
            and site.node in code.all
            and not code.is_known(site)
        ):
            return f"its forward pass calls something that is not known ({at(site)}): {occurrence.this.why}"
    return ""
