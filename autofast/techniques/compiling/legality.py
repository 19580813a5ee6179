"""What speaks against compiling a model: asked of the whole script, of how the model is used, and
of the code of its forward pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from autofast.facts.double_backward import functional_derivative, gradients_of_gradients
from autofast.facts.model_objects import own_state
from autofast.facts.parts import not_known
from autofast.facts.precision.code import Code, applied
from autofast.facts.retained_graphs import gone_through_twice
from autofast.flow.callgraph import code_of
from autofast.model.calls import is_method, is_name, keyword_of, short_name
from autofast.model.contents import opened, unwrapped
from autofast.model.events import CallFrame, LoopFrame, Site, Stack
from autofast.model.kinds import is_module
from autofast.model.script import Model, Script, Step
from autofast.model.source import at, enclosing, nodes_in, parent_of
from autofast.model.syntax import IDENTITY, TESTS, VARIABLES, is_text
from autofast.model.values import (
    Arguments,
    Cls,
    Const,
    Ext,
    Inst,
    Num,
    Seq,
    Tensor,
    Unknown,
    Values,
    const,
)
from autofast.ops.families import RECURRENT

TOLD = frozenset("is_scripting is_tracing ignore unused export".split())

SINCE = (2, 3)
# Pytorch#193061: wrong gradients of chained, modulated LayerNorms, from the first to before the
# second.
WRONG_NORM = ((2, 10), (2, 14))
FRAMEWORKS = {
    "accelerate": "pass dynamo_backend= to Accelerator instead",
    "lightning": "Lightning has its own place for torch.compile",
    "fabric": "fabric.setup(torch.compile(model)) is its place here",
    "hf-trainer": "pass torch_compile=True to TrainingArguments instead",
    "apex": "apex.amp changes the functions that are called: put torch.amp in its place first",
    "deepspeed": "the DeepSpeed engine compiles",
}
ENVIRONMENTS = ("gym.", "gymnasium.", "pettingzoo.", "procgen.", "envpool.")
SPARSE = tuple(
    "torch.sparse torch.spmm torch.hspmm torch_sparse. .to_sparse torch.sspaddmm".split()
)
COMPLEX = ("torch.fft.", "torch.stft", "torch.view_as_complex", "torch.complex", "torch.polar")
GRAPHS = ("torch_geometric.", "dgl.", "torch_scatter.", "torch_cluster.")
PACKED = ("torch.nn.utils.rnn.pack_padded_sequence", "torch.nn.utils.rnn.pack_sequence")
HOOKS = re.compile(r"^register_(module_|multi_grad_|full_)?(forward|backward)?_?(pre_)?hook$")
HOOKED = tuple(
    """torch.nn.utils.spectral_norm torch.nn.utils.weight_norm torch.nn.utils.prune.
    torch.nn.utils.parametrize. torch.nn.utils.parametrizations. wandb.watch""".split()
)
MANY = ("torch.nn.Sequential", "torch.nn.Transformer")
DETECTION = ("fasterrcnn", "maskrcnn", "keypointrcnn", "retinanet", "ssd", "fcos")
PADS = frozenset(
    """pad_sequence pack_sequence pad_packed_sequence max nested_tensor
    nested_tensor_from_tensor_list""".split()
)
NOISY = tuple(
    """builtins.print builtins.open builtins.input logging. time. random. numpy.random.
    warnings.warn tqdm.""".split()
)
COMPILES = re.compile(r"^--?(no[-_])?(use[-_])?(torch[-_]?)?(compile|dynamo)\b")


# ---------------------------------------------------------------------------- the script as a whole
def is_there(script: Script) -> ast.AST | None:
    """Where the script knows about torch.compile already, perhaps behind an option."""
    return next(
        (node for node in script.nodes if _compiles(node)),
        None,
    )


class Compiled:
    """The decision that models are compiled."""


def _compiles(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        named = is_name(node.value, "re", "regex", "sre")
        return (node.attr == "compile" and not named) or node.attr in ("torch_compile", "_dynamo")
    if isinstance(node, ast.Import):
        return any(a.name.startswith("torch._dynamo") for a in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(("torch._dynamo", "torch.compiler")) or (
            node.module == "torch" and any(a.name in ("compile", "_dynamo") for a in node.names)
        )
    if isinstance(node, ast.keyword):
        return node.arg in ("torch_compile", "dynamo_backend")
    return is_text(node) and bool(COMPILES.match(node.value))


def against_script(script: Script) -> str:
    """Why nothing in this script should be compiled; empty where nothing speaks against."""
    for name, node in script.frameworks.items():
        return f"{FRAMEWORKS.get(name, name)} ({at(node)})"
    for check in (_double_backward, _graphs_used_twice, _hooks, _scripted, _shared, _data, _swaps):
        if why := check(script):
            return why
    return ""


def _double_backward(script: Script) -> str:
    if (node := gradients_of_gradients(script)) is not None:
        return f"{at(node)} computes gradients of gradients, which compiled code has not"
    if (found := functional_derivative(script)) is not None:
        kind, node = found
        return f"{at(node)} differentiates by {kind}, whose gradients may be wrong in compiled code"
    return ""


def _graphs_used_twice(script: Script) -> str:
    for step in script.steps:
        for backward in step.backwards:
            kept = keyword_of(backward.node, "retain_graph")
            if kept is not None and const(script.values(kept)) is not False:
                return f"{at(backward.node)} keeps the graph for another backward, and the graph of compiled code is used once"
    if (twice := gone_through_twice(script)) is not None:
        first, second, forward = twice
        lines = f"{at(first.node)} and {at(second.node)} go back through the forward pass of {at(forward)}"
        return f"{lines}, and the graph of compiled code is used once"
    return ""


def _hooks(script: Script) -> str:
    for node in script.each(ast.Attribute):
        if HOOKS.match(node.attr):
            return f"{at(node)} registers a hook: compiled code does not call all of them"
    for kind, site in _kinds(script, HOOKED):
        return (
            f"{kind}() on {at(site.node)} works by hooks: compiled code does not call all of them"
        )
    return ""


def _scripted(script: Script) -> str:
    node = next((n for n in jit_uses(script) if not _class_of(n)), None)
    return f"{at(node)} uses TorchScript" if node is not None else ""


def jit_uses(script: Script) -> Iterator[ast.Attribute]:
    for node in script.each(ast.Attribute):
        if node.attr == "jit" and ast.unparse(node) == "torch.jit":
            if getattr(parent_of(node), "attr", "") not in TOLD:
                yield node


def _class_of(node: ast.AST) -> ast.ClassDef | None:
    return enclosing(node, ast.ClassDef)


def _shared(script: Script) -> str:
    for site in script.methods("share_memory"):
        return f"several processes train one model in shared memory ({at(site.node)})"
    modules = {id(inner) for m in script.models for inner in unwrapped(m.thing)}
    for site in script.processes:
        if any(
            modules & {id(t) for t in opened(v)}
            for o in site
            if o.args is not None
            for v in o.args.all()
        ):
            return f"the model is given to another process or thread ({at(site.node)}), and is compiled in none but its own"
    return ""


def _data(script: Script) -> str:
    for kind, site in _kinds(script, SPARSE):
        return f"sparse tensors ({at(site.node)}, {kind.lstrip('.')}) are not compiled"
    for kind, site in _kinds(script, GRAPHS):
        return f"graphs of {kind.split('.')[0]} ({at(site.node)}) have other sizes in each batch"
    for _, site in _kinds(script, PACKED):
        return f"packed sequences ({at(site.node)}) have other sizes in each batch"
    without_loader = (
        () if any(step.loaders for step in script.steps) else ("torch.distributions.Categorical",)
    )
    for kind, site in _kinds(script, (*ENVIRONMENTS, *without_loader)):
        return f"it acts in an environment ({kind}, {at(site.node)}): states one by one, and episodes of other lengths"
    for kind, site in _kinds(script, COMPLEX):
        return f"complex numbers ({kind}, {at(site.node)}) have no compiled kernels"
    for site in script.calls("torch.use_deterministic_algorithms"):
        if any(o.args is not None and const(o.args.get(0, "mode")) is not False for o in site):
            return f"{at(site.node)} asks for deterministic algorithms, and compiled code computes in another order"
    for site in script.log.of("new", "torch.nn.functional.embedding"):
        if any(o.args is not None and o.args.get(-1, "sparse") - {Const(False)} for o in site):
            return f"the embedding of {at(site.node)} may have sparse gradients, which compiled code has not"
    return ""


def _swaps(script: Script) -> str:
    """``p.data = average[name]`` while the model is in use."""
    first = min((o.order for m in script.models for s in m.forwards for o in s), default=0)
    for site in script.log.of("tensor_write", "set_attribute"):
        for occurrence in site:
            is_weight = isinstance(occurrence.this, Tensor) and occurrence.this.param == "param"
            if is_weight and occurrence.data.get("name") == "data" and occurrence.order > first:
                return f"{at(site.node)} puts other weights into the model, which compiled code may not see"
    return ""


def _kinds(script: Script, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Site]]:
    return ((kind, site) for (kind, _), site in script.log.each() if kind.startswith(prefixes))


# ---------------------------------------------------------------------------------------- one model
def against(script: Script, model: Model, code: Code) -> str:
    """Why this model must not be compiled; empty where nothing speaks against."""
    if why := not_known(model):
        return why
    if why := _by_method(model):
        return why
    if any(layer.rsplit(".", 1)[-1].startswith(DETECTION) for layer in model.layers):
        return f"{model.name} is a detection model, whose lists of boxes have other sizes in each batch"
    if jit := next(
        (n for n in jit_uses(script) if any(_class_of(n) is c for c in model.classes)), None
    ):
        return f"{at(jit)} uses TorchScript"
    if (
        isinstance(model.thing, Ext)
        and model.thing.name.startswith("torch.nn.")
        and not model.thing.name.startswith(MANY)
    ):
        return f"it is a single {model.name}: there is nothing to fuse"
    if any(
        isinstance(f, LoopFrame) and isinstance(f.node, (ast.For, ast.While))
        for f in model.thing.made
    ):
        return "a new model is made in each turn of a loop, and each would be compiled again"
    if (
        "LayerNorm" in model.layers
        and script.torch.is_at_least(WRONG_NORM[0])
        and script.torch.rules_out(WRONG_NORM[1])
    ):
        return "the project asks for torch 2.10 to 2.13, which may compute wrong gradients for LayerNorm (pytorch#193061)"
    checks: tuple[Callable[[Script, Model, Code], str], ...] = (
        _inputs,
        _shapes,
        _state,
        own_state,
        _effects,
        _control,
        _foreign_code,
    )
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
            if any(isinstance(t, Inst) and not is_module(t) for t in values):
                return f"its input on {at(site.node)} is no plain tensor"
            if any(isinstance(t, Num) for t in values) and not any(
                isinstance(t, Tensor) for t in values
            ):
                return f"{at(site.node)} gives it a number: it is compiled again where that changes"
            if any(isinstance(t, Seq) and t.items is None and t.kind == "list" for t in values):
                return f"{at(site.node)} gives it a list, whose length may be another in each batch"
        if not any(
            isinstance(t, (Tensor, Seq)) or hasattr(t, "entries") for g in given for t in g.values
        ):
            why = next(
                (t.why for g in given for t in g.values if isinstance(t, Unknown)),
                args.open or "no tensor is seen",
            )
            return f"what it gets on {at(site.node)} is not known: {why}"
    return ""


def _given(model: Model) -> Iterator[tuple[Site, Arguments]]:
    return (
        (site, o.args)
        for site in model.forwards
        for o in site
        if o.args is not None and o.grad in ("on", "maybe")
    )


def padded(script: Script, model: Model) -> str:
    """Where batches get the size of their longest item, in words; empty where nothing shows
    that.
    """
    things = [t for step in _steps(script, model) for t in step.loaders]
    for loader in script.loaders:
        if any(t in things for t in loader.things) and (why := _pads(script, loader.args)):
            return f"{why} ({at(loader.node)})"
    return ""


def _steps(script: Script, model: Model) -> list[Step]:
    return [
        s
        for s in script.steps
        if any(inner is model.thing for t in s.models for inner in unwrapped(t))
    ]


def _shapes(script: Script, model: Model, code: Code) -> str:
    mine = _steps(script, model)
    for site in script.calls("torch.nn.functional.interpolate"):
        for occurrence in site:
            in_step = any(
                isinstance(f, LoopFrame) and any(f.node is s.loop for s in mine)
                for f in occurrence.stack
            )
            in_step &= _module_of(occurrence.stack) is None
            size = occurrence.args.get(1, "size") if occurrence.args is not None else frozenset()
            if in_step and size and const(size) is ...:
                return f"{at(site.node)} resizes the batches to sizes that change"
    return ""


def _pads(script: Script, args: Arguments) -> str:
    if args.get(-1, "batch_sampler") - {Const(None)}:
        return "a batch_sampler makes the batches"
    for thing in args.get(6, "collate_fn"):
        for call in (n for c in code_of(thing) if c.makes is None for n in ast.walk(c.function)):
            name = short_name(call.func) if isinstance(call, ast.Call) else ""
            if name in PADS:
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
            and not (isinstance(model.thing, Inst) and owner in _lineage(model.thing.cls))
        ):
            return f"{at(frame.node)} trains through {owner.node.name}.{frame.func.name}(), and only what model(...) calls is compiled"
    return ""


def _lineage(cls: Cls) -> list[Cls]:
    return [cls, *cls.ancestors()]


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
            here = isinstance(kept, ast.Attribute) and any(
                t is model.thing for t in script.values(kept.value)
            )
            if (here and not _building(node) and not _is_layers(script, kept)) or (
                id(node) in code.all
                and isinstance(kept, ast.Attribute)
                and not _is_layers(script, kept)
            ):
                return f"{at(node)} keeps values in a list of the model"
    return ""


def _building(node: ast.AST) -> bool:
    while node is not None and not isinstance(node, (ast.FunctionDef, ast.Module)):
        node = parent_of(node)  # type: ignore[assignment]
    return (
        isinstance(node, ast.FunctionDef)
        and isinstance(parent_of(node), ast.ClassDef)
        and node.name != "forward"
    )


def _is_layers(script: Script, kept: ast.expr) -> bool:
    return any(isinstance(t, Ext) and is_module(t) for t in script.values(kept))


def _effects(script: Script, model: Model, code: Code) -> str:
    for site, occurrence in code.events("set_attribute", "set_elsewhere"):
        if id(site.node) in code.all and occurrence.this is not None and is_module(occurrence.this):
            return f"its forward pass sets `{ast.unparse(site.node)}` ({at(site.node)}), which compiled code may not repeat"
    for site, _ in code.events("sync"):
        if id(site.node) in code.all:
            return f"its forward pass reads a value on {at(site.node)}, where the graph breaks"
    for kind, site in _kinds(script, NOISY):
        if id(site.node) in code.all:
            return f"its forward pass calls {kind.removeprefix('builtins.')}() on {at(site.node)}, where the graph breaks"
    return ""


def _control(script: Script, model: Model, code: Code) -> str:
    for node in (n for part in code.parts for n in ast.walk(part)):
        tests = [node.test] if isinstance(node, TESTS) else []
        for test in tests:
            if any(_is_data(script.values(t)) for t in _operands(test)):
                return f"{at(node)} decides by the values of a tensor, where the graph breaks"
        if isinstance(node, ast.While):
            return f"its forward pass holds a while loop ({at(node)})"
        over = [node.iter] if isinstance(node, (ast.For, ast.comprehension)) else []
        for expr in (e for o in over for e in nodes_in(o, ast.expr)):
            if any(isinstance(t, Tensor) and not t.param for t in script.values(expr)):
                return f"{at(over[0])} loops over a tensor: each turn becomes part of the graph, and compiling takes very long"
    return ""


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition whose values decide: not those of ``x is None``."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _operands(test.operand)
    elif isinstance(test, ast.Compare):
        if not any(isinstance(op, IDENTITY) for op in test.ops):
            yield from (test.left, *test.comparators)
    else:
        yield test


def _is_data(values: Values) -> bool:
    return bool(values) and all(isinstance(t, Tensor) and not t.param for t in values)


def _foreign_code(script: Script, model: Model, code: Code) -> str:
    for part in code.parts:
        for node in ast.walk(part):
            for thing in applied(script, node) if isinstance(node, VARIABLES) else ():
                return f"{thing.node.name} on {at(node)} is an autograd Function, where the graph may break"
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
                return f"{at(node)} leaves the forward pass in the middle"
    for kind in ("torch.diagonal_scatter", ".diagonal_scatter"):
        for site, _ in code.events(kind):
            return f"torch 2.13 may lose the gradient of diagonal_scatter ({at(site.node)}, pytorch#182012)"
    for site, occurrence in code.events("call_unknown"):
        if (
            isinstance(occurrence.this, Unknown)
            and id(site.node) in code.all
            and not code.is_known(site)
        ):
            return f"its forward pass calls something that is not known ({at(site.node)}): {occurrence.this.why}"
    return ""
