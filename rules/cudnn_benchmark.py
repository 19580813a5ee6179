"""cudnn-benchmark: let cuDNN measure which algorithm is fastest for each convolution."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edits import Before
from autofast.finding import Effect, Finding, Options, rule
from autofast.read.events import BranchFrame, CallFrame, Site, Stack, inside
from autofast.read.source import block_of, parent_of, source_of, statement_of
from autofast.read.values import Arg, Const, Ext, Func, Inst, Num, Ref, Seq, Tensor, Thing, Unknown, Values, const, ordered
from autofast.script import Dataset, Loader, Script

from ._batches import indexed
from ._setup import setup_place, trained_models
from ._torch import torch_in, uses_gpu

FLAG = "torch.backends.cudnn.benchmark"
CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "torchvision.models.")
# all images alike
ONE_SIZE = frozenset(["MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST", "CIFAR10", "CIFAR100", "SVHN", "STL10", "USPS", "FakeData"])
CROPS = frozenset(["CenterCrop", "RandomCrop", "RandomResizedCrop", "FiveCrop", "TenCrop"])


@rule("cudnn-benchmark", Effect.ROUNDING, groups=("backend",))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Let cuDNN measure which algorithm is fastest for each convolution."""
    if options.target == "cpu" or not script.steps or not uses_gpu(script) or _decided(script):
        return
    place = setup_place(script)
    place = None if place is None else above_tf32(place)
    if place is None or not any(layer.startswith(CONVOLUTIONS) for m in trained_models(script) for layer in m.layers):
        return
    message = "cuDNN chooses algorithms for convolutions by a rule of thumb"
    torch, imports = torch_in(source_of(place))
    value = _value(script, place, torch)
    if value is None:
        line = getattr(script.deterministic[0], "lineno", 0)
        yield Finding(place, message, refusal=f"determinism is asked for on line {line}: measured choices differ from run to run")
    elif "lightning" in script.frameworks or "hf-trainer" in script.frameworks:
        yield Finding(place, message, refusal="the Trainer sets this: see trainer-args")
    elif why := varying(script):
        todo = f"set {torch}.backends.cudnn.benchmark = True if all batches have one shape"
        yield Finding(place, message, advice=f"{todo}: {why}")
    else:
        yield Finding(place, message, edits=(*imports, Before(place, f"{torch}.backends.cudnn.benchmark = {value}")))


# ------------------------------------------------------------------------------------------------ determinism
def _decided(script: Script) -> bool:
    """The flag is set somewhere; switching it off together with ``deterministic = True`` is part of asking for determinism."""
    asked = [_branch(node) for node in script.deterministic]
    return any(_branch(site.node) is None or _branch(site.node) not in asked or _may_be_on(site) for site in script.flags(FLAG))


def _branch(node: ast.AST) -> ast.AST | None:
    """The ``if`` directly around a statement."""
    outer = parent_of(statement_of(node))
    return outer if isinstance(outer, ast.If) else None


def _may_be_on(site: Site) -> bool:
    return any(t != Const(False) for o in site for t in o.result)


def _value(script: Script, place: ast.stmt, torch: str) -> str | None:
    """True, or what says at run time that nobody has asked for determinism; None where it is asked for in any case."""
    if not script.deterministic:
        return "True"
    asked: dict[str, None] = {}
    for site in [*script.flags("torch.backends.cudnn.deterministic"), *script.calls("torch.use_deterministic_algorithms")]:
        if not any(site.node is node for node in script.deterministic):
            continue
        if any(_certain(o.stack) for o in site) or not _before(script, site, place):
            return None
        flag = "backends.cudnn.deterministic" if site.kind == "set_flag" else "are_deterministic_algorithms_enabled()"
        asked[f"{torch}.{flag}"] = None
    if len(asked) != 1 or any(not any(n is s.node for k in _ASKING for s in script.log.of(k)) for n in script.deterministic):
        return None
    return f"not {next(iter(asked))}"


_ASKING = ("set_flag", "torch.use_deterministic_algorithms")


def _certain(stack: Stack) -> bool:
    return not any(isinstance(f, BranchFrame) and not f.known for f in stack)


def _before(script: Script, site: Site, place: ast.stmt) -> bool:
    """Whether the script comes to ``site`` before it comes to ``place``."""
    inside_place = {id(n) for n in ast.walk(place)}
    orders = [o.order for _, other in script.log.each() if id(other.node) in inside_place for o in other]
    return bool(orders) and all(o.order < min(orders) for o in site)


# ------------------------------------------------------------------------------------------------ shapes
def above_tf32(place: ast.stmt) -> ast.stmt:
    """The flag stands above the one for TF32, whichever of them is written first."""
    here = block_of(place)
    n = next(i for i, stmt in enumerate(here) if stmt is place)
    while n and "set_float32_matmul_precision" in source_of(place).segment(here[n - 1]):
        n -= 1
    return here[n]


def varying(script: Script) -> str:
    """Why inputs may have other shapes from one step to the next; empty where they certainly have one."""
    loaders = [x for x in script.loaders if x.trains]
    if not loaders:
        return "what the steps train on does not come from a DataLoader, so its shape is not known"
    for loader in loaders:
        if why := varies(script, loader):
            return why
    for site in script.calls("torch.nn.functional.interpolate", "torch.nn.functional.upsample"):
        for occurrence in site:
            inner = {f.func.name for f in occurrence.stack if isinstance(f, CallFrame)}
            if "forward" not in inner and any(inside(occurrence.stack, step.loop) for step in script.steps):
                return f"batches are resized on line {getattr(site.node, 'lineno', 0)} of {source_of(site.node).rel}"
    return ""


def varies(script: Script, loader: Loader) -> str:
    """Why batches of this loader may have other shapes from one to the next."""
    for given in ("collate_fn", "batch_sampler"):
        if any(t != Const(None) for t in loader.args.get(-1, given)):
            if given == "collate_fn" and loader.datasets and all(_stacks(loader, d) for d in loader.datasets) and _collates(script, loader):
                continue
            return f"the loader on line {loader.node.lineno} has its own {given}, which may pad batches to different sizes"
    if not loader.datasets:
        return f"the dataset of the loader on line {loader.node.lineno} is not known"
    for dataset in loader.datasets:
        if not one_size(dataset) and not _stacks(loader, dataset):
            return f"nothing shows that all images of {dataset.name} get one size"
    return ""


def _stacks(loader: Loader, dataset: Dataset) -> bool:
    """Any two items may meet in a batch, and the default collate function stacks only what has one shape."""
    sizes = loader.args.get(1, "batch_size")
    many = [t.default if isinstance(t, Arg) else frozenset({t}) for t in sizes]
    mixes = any(t != Const(False) for t in loader.args.get(2, "shuffle")) or any(t != Const(None) for t in loader.args.get(3, "sampler"))
    constant = not (dataset.iterable or dataset.writes or dataset.set_outside or dataset.unknown)
    return mixes and constant and bool(many) and all(isinstance(n := const(v), int) and n > 1 for v in many)


def _collates(script: Script, loader: Loader) -> bool:
    """Its own collate function stacks one thing of each item, and all else in the batch are whole numbers, which nothing convolves."""
    for thing in loader.args.get(-1, "collate_fn"):
        if not isinstance(thing, Func) or not isinstance(thing.node, ast.FunctionDef) or len(thing.node.args.args) != 1:
            return False
        last, returns = thing.node.body[-1], [n for n in ast.walk(thing.node) if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom))]
        if not isinstance(last, ast.Return) or last.value is None or len(returns) != 1:
            return False
        parts = last.value.elts if isinstance(last.value, (ast.Tuple, ast.List)) else [last.value]
        stacks = [_is_stack(script, thing.node, p) for p in parts]
        if not any(stacks) or not all(stack or _whole(script, p) for stack, p in zip(stacks, parts, strict=True)):
            return False
    return True


def _is_stack(script: Script, function: ast.FunctionDef, expr: ast.expr) -> bool:
    """``torch.stack(images)``, where ``images`` has one tensor of each item."""
    if isinstance(expr, ast.Name):
        values = [s.value for s in function.body if isinstance(s, ast.Assign) and any(_names(t, expr.id) for t in s.targets)]
        stores = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == expr.id and isinstance(n.ctx, ast.Store)]
        known = bool(values) and len(stores) == len(values)
        return known and isinstance(values[-1], ast.Call) and _is_stack(script, function, values[-1])
    if not isinstance(expr, ast.Call) or script.values(expr.func) != {Ref("torch.stack")} or not expr.args:
        return False
    batch, given = function.args.args[0].arg, expr.args[0]
    if isinstance(given, (ast.ListComp, ast.GeneratorExp)):
        return len(given.generators) == 1 and not given.generators[0].ifs and _is_named(given.generators[0].iter, batch)
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Tuple() as target], value=ast.Call(func=func, args=[ast.Starred(value=held)])):
                if isinstance(given, ast.Name) and _names(target, given.id) and Ref("builtins.zip") in script.values(func):
                    return _is_named(held, batch)
            case ast.For(iter=over, body=body) if _is_named(over, batch):
                appends = [s.value.func for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
                if any(isinstance(f, ast.Attribute) and f.attr == "append" and ast.unparse(f.value) == ast.unparse(given) for f in appends):
                    return not any(isinstance(n, (ast.Continue, ast.Break)) for n in ast.walk(statement))
    return False


def _whole(script: Script, expr: ast.expr) -> bool:
    """Whole numbers only: a tensor of them, or a list."""
    if isinstance(expr, ast.Call) and script.values(expr.func) <= {Ref("torch.LongTensor"), Ref("torch.IntTensor")}:
        return script.reached(expr)
    found = script.values(expr)
    things = [t for thing in found for t in (thing.any() if isinstance(thing, Seq) else (thing,))]
    return bool(found) and all((isinstance(t, Tensor) and t.dtype == "int") or isinstance(t, (Num, Const)) for t in things)


def _names(target: ast.expr, name: str) -> bool:
    return any(_is_named(t, name) for t in (target.elts if isinstance(target, ast.Tuple) else [target]))


def _is_named(expr: ast.expr, name: str) -> bool:
    return isinstance(expr, ast.Name) and expr.id == name


def one_size(dataset: Dataset) -> bool:
    """Whether all items certainly have one shape: rows of tensors, equal images, or a transform that crops or resizes to a fixed size."""
    thing = dataset.thing
    if not indexed(dataset):
        return True
    if isinstance(thing, Ext):
        given = frozenset(t for g in (*thing.args.positional, *thing.args.named.values()) for t in g.values)
        sizes = _sizes(given)
        return False not in sizes if sizes or thing.name.rsplit(".", 1)[-1] in ONE_SIZE else False
    if isinstance(thing, Inst):
        given = frozenset(t for values in thing.attrs.values() for t in values)
        sizes = _sizes(given)
        return bool(sizes) and False not in sizes
    return False


def _sizes(found: Values) -> list[bool]:
    """For each pipeline of transforms among these things: whether its last word about the size is a fixed one."""
    verdicts: list[bool] = []
    for thing in ordered(found):
        if isinstance(thing, Ext) and thing.name.startswith("torchvision.transforms"):
            steps = _steps(thing)
            words = [w for step in steps if (w := _word(step)) is not None]
            if words:
                verdicts.append(words[-1])
    return verdicts


def _steps(thing: Ext) -> list[Thing]:
    if not thing.name.endswith((".Compose", ".Sequential")):
        return [thing]
    inner: list[Thing] = []
    for given in thing.args.positional:
        for part in given.values:
            elements = part.items if isinstance(part, Seq) and part.items is not None else (part.any(),) if isinstance(part, Seq) else ()
            for element in elements:
                inner += [s for t in ordered(element) for s in (_steps(t) if isinstance(t, Ext) else [t])]
    return inner


def _word(step: Thing) -> bool | None:
    """True: fixes the size. False: leaves sizes different, or may. None: says nothing about the size."""
    if isinstance(step, Unknown):
        return False
    if not isinstance(step, Ext):
        return None
    short = step.name.rsplit(".", 1)[-1]
    if short in CROPS:
        return True
    if short in ("Resize", "Scale"):  # Resize(256) keeps the ratio of the sides: only a pair fixes both
        size = step.args.get(0, "size")
        pair = any(isinstance(t, Seq) for t in size) or isinstance(const(size), tuple)
        return pair or None
    return False if short in ("Pad", "RandomApply", "RandomChoice") else None
