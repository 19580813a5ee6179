"""What channels_last asks of a model: is it made of 2-D convolutions, and does anything in its code rely on the usual layout?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edits import Edit, Rewrite
from autofast.read import names
from autofast.read.source import ancestors, parent_of, source_of, statement_of
from autofast.read.values import Ext, Inst, Ref, Tensor, Thing, Unknown, Values, const
from autofast.script import Model, Script

from ._hazards import Code, is_activation
from ._places import block, index
from ._shared import is_reshaping, written_through

CONVOLUTIONS = frozenset({"Conv2d", "ConvTranspose2d", "LazyConv2d"})
NOT_FLAT = frozenset(
    {"Conv3d", "ConvTranspose3d", "LazyConv3d", "BatchNorm3d"}
)  # Module.to(channels_last) raises for a weight of five dimensions
OTHER_LAYERS = ("LSTM", "GRU", "RNN", "Transformer", "MultiheadAttention")
VISION = "torchvision.models."
NO_CONVOLUTIONS = ("vit_", "swin", "maxvit")
DROPOUT = (
    "vgg",
    "alexnet",
    "mobilenet",
    "efficientnet",
    "squeezenet",
    "inception",
    "googlenet",
    "convnext",
    "*",
)  # of torchvision: draw masks in forward
ELEMENTWISE = frozenset(
    {"ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "SELU", "GELU", "SiLU", "Mish", "Hardswish", "Tanh", "Sigmoid", "Identity"}
)
ELEMENTWISE |= {"Dropout", "Dropout2d"}
LAYOUT_READS = (".stride", ".data_ptr", ".as_strided", ".as_strided_", ".storage", ".untyped_storage", "torch.as_strided", ".numpy")
DRAWS = (
    "torch.randn_like",
    "torch.rand_like",
    "torch.nn.functional.dropout",
    "torch.normal",
    "torch.bernoulli",
    ".normal_",
    ".uniform_",
    ".bernoulli_",
    ".random_",
)


def is_convolutional(model: Model) -> bool:
    """Most of its work is convolutions of images."""
    if any(layer.startswith(OTHER_LAYERS) for layer in model.layers) or model.layers & NOT_FLAT:
        return False
    vision = [layer.removeprefix(VISION) for layer in model.layers if layer.startswith(VISION)]
    if isinstance(model.thing, Ext) and model.thing.name == "timm.create_model":
        named = const(model.thing.args.get(0, "model_name"))
        return isinstance(named, str) and named.startswith(names.ONE_TENSOR) and not named.startswith(NO_CONVOLUTIONS)
    return bool(model.layers & CONVOLUTIONS) or any(not layer.startswith(NO_CONVOLUTIONS) for layer in vision)


def against(script: Script, model: Model, code: Code) -> str:
    """Why the model must keep its layout; empty where nothing speaks against."""
    if model.unknown:
        return f"what {model.name} is made of is not known: {model.unknown}"
    if any(w.name.startswith("torch.jit") for w in model.wraps):
        return f"{model.name} is a TorchScript module"
    if sites := script.methods("share_memory"):
        return f"line {_line(sites[0].node)} puts the weights into shared memory: a new layout would be a copy outside it"
    if sites := script.calls("torch.nn.utils.parameters_to_vector"):
        return f"line {_line(sites[0].node)} flattens the weights with .view(), which raises in this layout"
    if any(o.name == "LBFGS" for o in script.optimizers):
        return "LBFGS flattens the gradients with .view(), which raises in this layout"
    for site, occurrence in code.events(*LAYOUT_READS):
        if isinstance(occurrence.this, Tensor) and is_activation(frozenset({occurrence.this})):
            return f"line {_line(site.node)} of {source_of(site.node).rel} looks at how values are laid out in memory"
    for site, occurrence in code.events("call_unknown"):
        if (
            isinstance(occurrence.this, Unknown)
            and occurrence.args is not None
            and any(is_activation(g.values) for g in occurrence.args.positional)
        ):
            return f"line {_line(site.node)} gives values to something that is not known: {occurrence.this.why}"
    if why := code.custom_function():
        return why
    for site in model.forwards:
        for occurrence in site:
            given = occurrence.args.positional[0].values if occurrence.args is not None and occurrence.args.positional else frozenset()
            if any(isinstance(t, Inst) for t in given):
                return f"its input on line {_line(site.node)} is no plain tensor"
    return ""


def draws(script: Script, model: Model, code: Code, since: int) -> bool:
    """Random numbers are put into tensors of this layout, in another order then: dropout, or weights that are filled after ``since``."""
    names = {name.removeprefix(VISION) for name in model.layers if name.startswith(VISION)}
    if model.layers & {"Dropout", "AlphaDropout", "FeatureAlphaDropout"} or any(n.startswith(DROPOUT) for n in names):
        return True
    if any(True for _ in code.events(*DRAWS)):
        return True
    fills = [
        s for (kind, _), s in script.log._sites.items() if kind.startswith("torch.nn.init.") or kind in (".apply", ".normal_", ".uniform_")
    ]
    return any(o.order > since for s in fills for o in s)


# ------------------------------------------------------------------------------------------------ views
def reshapes(script: Script, code: Code, models: Values) -> Iterator[Edit] | str:
    """``.view()`` of values that may be in the other layout becomes ``.reshape()``, which is the same where both work."""
    if why := _unbound(script):
        return why
    found: list[Edit] = []
    for node, base in _reshapings(script, code, models):
        if line := written_through(script, node, base):
            where = f"line {line} of {source_of(node).rel}"
            return f"{where} writes through a view, which would be a copy in this layout (or the reverse)"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("view", "view_as"):
            found.append(
                Rewrite(node.func, "{value}." + {"view": "reshape", "view_as": "reshape_as"}[node.func.attr], {"value": node.func.value})
            )
    return iter(found)


def _reshapings(script: Script, code: Code, models: Values) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that give values which may be in the other layout another shape, and these values."""
    for source in script.sources:
        for node in ast.walk(source.tree):
            base = is_reshaping(script, node)
            if base is None or not isinstance(node, ast.Call):
                continue
            found = script.values(base)
            mine = any(isinstance(t, Tensor) and (t.models & models or t.param) and t.dtype != "int" for t in found)
            if (mine or (id(node) in code.all and is_activation(found))) and not _is_fine(script, node, base):
                yield node, base


def _unbound(script: Script) -> str:
    """A ``view`` that is not simply called on a tensor: ``torch.Tensor.view(x, -1)``, ``v = x.view``, ``getattr(x, "view")``."""
    for source in script.sources:
        for node in ast.walk(source.tree):
            line = getattr(node, "lineno", 0)
            if isinstance(node, ast.Attribute) and node.attr in ("view", "view_as") and isinstance(node.ctx, ast.Load):
                found, parent = script.values(node.value), parent_of(node)
                called = isinstance(parent, ast.Call) and parent.func is node
                if any(isinstance(t, Ref) and t.name.startswith("torch.") for t in found) or (not called and _may_be_tensor(found)):
                    return f"line {line} of {source.rel} uses `{node.attr}` as a function, which raises in this layout"
            elif isinstance(node, ast.Call) and any(isinstance(a, ast.Constant) and a.value in ("view", "view_as") for a in node.args):
                names = {t.name for t in script.values(node.func) if isinstance(t, Ref)}
                if names & {"builtins.getattr", "operator.methodcaller", "operator.attrgetter"}:
                    return f"line {line} of {source.rel} uses `view` as a function, which raises in this layout"
    return ""


def _may_be_tensor(found: Values) -> bool:
    return any(isinstance(t, (Tensor, Unknown)) for t in found)


def _is_fine(script: Script, node: ast.Call, base: ast.expr) -> bool:
    """A view of something that is contiguous, or of a 1x1 image, or one of the dtype."""
    if any(isinstance(t, Ref) for a in node.args for t in script.values(a)):
        return True
    value: ast.AST | None = base
    if isinstance(value, ast.Name):
        value = _last_value(node, value.id)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr in ("contiguous", "flatten", "reshape"):
        return True
    return any(_is_pooled(t, value, script) for t in script.values(value.func))


def _is_pooled(callee: Thing, call: ast.Call, script: Script) -> bool:
    if isinstance(callee, Ext) and callee.name == "torch.nn.AdaptiveAvgPool2d":
        return const(callee.args.get(0, "output_size")) in (1, (1, 1))
    if isinstance(callee, Ref) and callee.name == "torch.nn.functional.adaptive_avg_pool2d" and len(call.args) > 1:
        return const(script.values(call.args[1])) in (1, (1, 1))
    return isinstance(callee, Ext) and callee.name == "torch.nn.Linear"


def _last_value(node: ast.AST, name: str) -> ast.expr | None:
    """What ``name`` was last set to, in the statements just above."""
    statement = statement_of(node)
    here = block(statement)
    for other in reversed(here[: max(index(here, statement), 0)]):
        if isinstance(other, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in other.targets):
            return other.value
        if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(other)):
            return None
    return None


# ------------------------------------------------------------------------------------------------ images
def takes_image(script: Script, model: Model) -> bool:
    """The first input goes as it is into a layer that wants four dimensions."""
    return _starts_flat(script, model.thing, set())


def _starts_flat(script: Script, thing: Thing, seen: set[int]) -> bool:
    if id(thing) in seen:
        return False
    seen.add(id(thing))
    if isinstance(thing, Ext):
        short = thing.name.rsplit(".", 1)[-1]
        if thing.name.startswith(VISION) or thing.name == "timm.create_model":
            return True
        if short == "Sequential":
            first = thing.args.positional[0].values if thing.args.positional else frozenset()
            inner = [x for t in first for x in (t.any() if hasattr(t, "any") else (t,))]
            if bool(inner) and len(first) == len(inner) and all(_starts_flat(script, t, seen) for t in inner):
                return True
            every = [t for g in thing.args.positional for t in g.values]  # of a list, in an order that is not known
            return all(_is_flat(t) or _is_elementwise(t) for t in every) and any(_is_flat(t) for t in every)
        return _is_flat(thing)
    if isinstance(thing, Inst):
        for site in script.log.of("forward"):
            for occurrence in site:
                raw = any(t.batch for t in occurrence.data.get("inputs", ()))
                inside = any(isinstance(a, ast.ClassDef) and a is thing.cls.node for a in ancestors(site.node))
                if raw and inside and occurrence.this is not None and _starts_flat(script, occurrence.this, seen):
                    return True
    return False


def _is_flat(thing: Thing) -> bool:
    """A layer that wants four dimensions."""
    short = thing.name.rsplit(".", 1)[-1] if isinstance(thing, Ext) else ""
    return isinstance(thing, Ext) and thing.name.startswith("torch.nn.") and short.endswith("2d") and not short.startswith("Dropout")


def _is_elementwise(thing: Thing) -> bool:
    """A layer that works number by number, on any dimensions."""
    return isinstance(thing, Ext) and thing.name.startswith("torch.nn.") and thing.name.rsplit(".", 1)[-1] in ELEMENTWISE


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)
