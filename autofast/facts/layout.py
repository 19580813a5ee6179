"""What channels_last asks of a model: is it made of 2-D convolutions, and does anything in its code
rely on the usual layout?
"""

from __future__ import annotations

import ast

from autofast.facts.batch.samples import is_layer
from autofast.facts.dimensions import SAME, dimension_count
from autofast.facts.parts import not_known
from autofast.facts.precision.activations import is_activation
from autofast.facts.precision.code import Code
from autofast.facts.precision.foreign import custom_function, handed_out
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.model import names
from autofast.model.calls import is_method
from autofast.model.names import TIMM, VISION, last_part
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ancestors, at, function_of, nodes_in
from autofast.model.tensors import tensors_in
from autofast.model.values import Ext, Inst, Tensor, Thing, Unknown, any_of, begins, const
from autofast.ops.families import OF_SEQUENCES

CONVOLUTIONS = wordset("Conv2d ConvTranspose2d LazyConv2d")
# Module.to(channels_last) raises for a weight of five dimensions.
NOT_FLAT = wordset("Conv3d ConvTranspose3d LazyConv3d BatchNorm3d")
NO_CONVOLUTIONS = ("vit_", "swin", "maxvit")
DROPOUT = tuple(
    "vgg alexnet mobilenet efficientnet squeezenet inception googlenet convnext *".split()
)  # of torchvision: draw masks in forward
ELEMENTWISE = wordset(
    "ReLU ReLU6 LeakyReLU PReLU ELU SELU GELU SiLU Mish Hardswish Tanh Sigmoid Identity"
)
ELEMENTWISE |= {"Dropout", "Dropout2d"}
LAYOUT_READS = tuple(
    ".stride .data_ptr .as_strided .as_strided_ .storage .untyped_storage torch.as_strided .numpy".split()
)
# Networks of segmentation_models_pytorch that reshape nothing by `.view()`.
SEGMENTATION = wordset("Unet UnetPlusPlus Linknet FPN PSPNet DeepLabV3 DeepLabV3Plus")
DRAWS = tuple(
    """torch.randn_like torch.rand_like torch.nn.functional.dropout torch.normal torch.bernoulli
    .normal_ .uniform_ .bernoulli_ .random_""".split()
)
INSTANCE_NORM = "torch.nn.functional.instance_norm"
# What looks at weights by ``.view(-1)``, in torch itself (tried with torch 2.13).
FLATTENING = (
    "torch.nn.utils.parameters_to_vector",
    *(f"torch.nn.utils.prune.{n}_unstructured" for n in ("global", "l1", "random")),
    *(f"torch.nn.utils.prune.{n}Unstructured.apply" for n in ("L1", "Random")),
)
# What gives as many dimensions as it is given: methods, and functions.
SAME_DIMENSIONS = SAME | wordset("permute flip roll clamp type_as requires_grad_")
OF_IMAGES = wordset(
    "pad interpolate relu leaky_relu gelu dropout normalize", "torch.nn.functional."
)
FILLING_FLAT = ("torch.nn.init.orthogonal_", "torch.nn.init.orthogonal")


def is_convolutional(model: Model) -> bool:
    """Most of its work is convolutions of images."""
    if any(layer.startswith(OF_SEQUENCES) for layer in model.layers) or model.layers & NOT_FLAT:
        return False
    vision = [x.removeprefix(VISION) for x in model.layers if x.startswith(VISION)]
    timm = [x.removeprefix(TIMM) for x in model.layers if x.startswith(TIMM)]
    vision += [name for name in timm if name.startswith(names.ONE_TENSOR)]
    if isinstance(model.thing, Ext) and names.is_of_model_library(model.thing.name):
        library, _, made = model.thing.name.partition(".")
        if library in ("efficientnet_pytorch", "geffnet"):
            return True
        if library == "segmentation_models_pytorch":
            encoder = model.thing.args.get(0, "encoder_name")
            return made in SEGMENTATION and (
                not encoder or str(const(encoder)).startswith(names.ONE_TENSOR)
            )
    return bool(model.layers & CONVOLUTIONS) or any(
        not name.startswith(NO_CONVOLUTIONS) for name in vision
    )


def why_not_channels_last(script: Script, model: Model, code: Code) -> str:
    """Why the model must keep its layout; empty where nothing speaks against."""
    if why := not_known(model):
        return why
    if lazy := next((n for n in sorted(model.layers) if n.startswith("Lazy")), ""):
        return f"{lazy} has no weights before the first forward pass, and converting none raises"
    if "InstanceNorm2d" in model.layers or any(True for _ in code.events(INSTANCE_NORM)):
        return (
            "InstanceNorm2d gives NCHW whatever it is given: each convolution would convert again"
        )
    if (deep := _of_five_dimensions(script, model)) is not None:
        return f"{at(deep)} keeps a tensor of five dimensions, which cannot be converted"
    if any(w.name.startswith("torch.jit") for w in model.wraps):
        return f"{model.name} is a TorchScript module"
    if sites := script.methods("share_memory"):
        return f"{at(sites[0])} puts the weights into shared memory: a new layout would be a copy outside it"
    if sites := script.calls(*FLATTENING):
        return f"{at(sites[0])} flattens the weights with .view(), which raises in this layout"
    closures = script.log.of("closure")
    if any(o.name == "LBFGS" or (o.name == "Optimizer" and closures) for o in script.optimizers):
        return "LBFGS flattens the gradients with .view(), which raises in this layout"
    for site, occurrence in code.events(*LAYOUT_READS):
        if isinstance(occurrence.this, Tensor) and is_activation(frozenset({occurrence.this})):
            return f"{at(site)} looks at how values are laid out in memory"
    for site, occurrence in code.events("call_unknown"):
        if isinstance(occurrence.this, Unknown) and any(
            is_activation(g.values) for g in occurrence.args.positional
        ):
            return f"{at(site)} gives values to something that is not known: {occurrence.this.why}"
    if (out := handed_out(code)) is not None:
        return f"{at(out[0])} gives values to {out[1]}, which may count on the usual layout"
    if why := custom_function(code):
        return why
    for site in model.forwards:
        for occurrence in site:
            if occurrence.args.positional:
                given = occurrence.args.positional[0].values
            else:
                given = frozenset()
            if any_of(given, Inst):
                return f"its input on {at(site)} is no plain tensor"
    return ""


def _of_five_dimensions(script: Script, model: Model) -> ast.Call | None:
    """A parameter or buffer for which ``Module.to(memory_format=torch.channels_last)`` raises: it
    converts four dimensions and tries five.
    """
    calls = (n for c in model.classes for n in nodes_in(c, ast.Call) if n.args)
    for call in calls:
        is_buffer = is_method(call, "register_buffer") and len(call.args) > 1
        is_parameter = script.library_functions(call) & {"torch.nn.Parameter"}
        kept = call.args[1] if is_buffer else call.args[0] if is_parameter else None
        if kept is not None and dimension_count(script, kept) == 5:
            return call
    return None


def filled_flat(script: Script, models: list[Model], since: int) -> str:
    """Where weights are filled after ``since`` by what flattens them; not where the model is made,
    which is before that.
    """
    made = {m.node for m in models}
    for site in script.calls(*FILLING_FLAT):
        if any(o.order > since and not any(f.node in made for f in o.stack) for o in site):
            return f"{at(site)} flattens the weights with .view(), which raises in this layout"
    return ""


def draws_in_layout(script: Script, model: Model, code: Code, since: int) -> bool:
    """Random numbers are put into tensors of this layout, in another order then: dropout, or
    weights that are filled after ``since``.
    """
    names = {x.removeprefix(VISION).removeprefix(TIMM) for x in model.layers}
    if model.layers & {"Dropout", "AlphaDropout", "FeatureAlphaDropout"} or any(
        n.startswith(DROPOUT) for n in names
    ):
        return True
    if any(True for _ in code.events(*DRAWS)):
        return True
    fills = [
        s
        for (kind, _), s in script.log.each()
        if kind.startswith("torch.nn.init.") or kind in (".apply", ".normal_", ".uniform_")
    ]
    return any(o.order > since for s in fills for o in s)


# ------------------------------------------------------------------------------------------- images
def takes_image(script: Script, model: Model) -> bool:
    """The first input goes as it is into a layer that wants four dimensions."""
    return _starts_flat(script, model.thing, set())


def _starts_flat(script: Script, thing: Thing, seen: set[int]) -> bool:
    if id(thing) in seen:
        return False
    seen.add(id(thing))
    if isinstance(thing, Ext):
        short = last_part(thing.name)
        if thing.name.startswith(VISION) or names.is_of_model_library(thing.name):
            return True
        if short == "Sequential":
            first = thing.args.positional[0].values if thing.args.positional else frozenset()
            inner = [x for t in first for x in (t.any() if hasattr(t, "any") else (t,))]
            if (
                bool(inner)
                and len(first) == len(inner)
                and all(_starts_flat(script, t, seen) for t in inner)
            ):
                return True
            # Of a list, in an order that is not known.
            every = [t for g in thing.args.positional for t in g.values]
            return all(_is_flat(t) or is_layer(t, ELEMENTWISE) for t in every) and any(
                _is_flat(t) for t in every
            )
        return _is_flat(thing)
    if isinstance(thing, Inst):
        for site in script.log.of("forward"):
            for occurrence in site:
                raw = any(t.batch for t in occurrence.data.get("inputs", ()))
                inside = any(
                    isinstance(a, ast.ClassDef) and a is thing.cls.node
                    for a in ancestors(site.node)
                )
                if (
                    raw
                    and inside
                    and occurrence.this is not None
                    and site.call
                    and any(_keeps_dimensions(script, x, set()) for x in site.call.args[:1])
                    and _starts_flat(script, occurrence.this, seen)
                ):
                    return True
    return False


def _keeps_dimensions(script: Script, expr: ast.expr, seen: set[ast.expr]) -> bool:
    """Whether it certainly has as many dimensions as what ``forward`` is given: points that are
    gathered into groups come with three and go on with four.
    """
    if expr in seen:  # once more around a loop
        return True
    seen.add(expr)
    match expr:
        case ast.Name():
            graph = script.analysis(CallGraph)
            return surely(
                (made.is_parameter and getattr(function_of(made.node), "name", "") == "forward")
                or surely(
                    g is not None and _keeps_dimensions(script, g, seen) for g in graph.gives(made)
                )
                for made in script.analysis(Flow).reaching(expr)
            )
        case ast.BinOp(left=left, right=right):
            sides = [x for x in (left, right) if any(t.batch for t in tensors_in(script.values(x)))]
            return surely(_keeps_dimensions(script, x, seen) for x in sides)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in SAME_DIMENSIONS:
            is_tensor = bool(tensors_in(script.values(inner)))
            return is_tensor and _keeps_dimensions(script, inner, seen)
        case ast.Call(args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *_]) if (
            "torch.cat" in script.library_functions(expr)
        ):
            return any(_keeps_dimensions(script, part, seen) for part in parts)
        case ast.Call(args=[inner, *_]) if script.library_functions(expr) & OF_IMAGES:
            return _keeps_dimensions(script, inner, seen)
    return False


def _is_flat(thing: Thing) -> bool:
    """A layer that wants four dimensions."""
    short = last_part(thing.name) if isinstance(thing, Ext) else ""
    return (
        begins(thing, Ext, "torch.nn.") and short.endswith("2d") and not short.startswith("Dropout")
    )
