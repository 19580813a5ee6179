"""Whether every parameter gets a gradient in every step: where one does not, a gradient of None is
not the same as one of zeros.

Proven for models whose ``forward`` is a straight line: what flows into its result is followed
backwards through assignments and loops over lists of layers. A condition around a layer, an early
return or anything else that is not understood is no proof.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.flow.loops import loops_around
from autofast.flow.program import Flow
from autofast.flow.scopes import owner, parameters
from autofast.model.calls import is_name, names_in
from autofast.model.contents import unwrapped
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    LoopFrame,
    Site,
    Stack,
    TryFrame,
    below,
    inside,
)
from autofast.model.kinds import is_loss, is_module
from autofast.model.script import Backward, Script, Step
from autofast.model.source import at, children, holds, nodes_in, walk
from autofast.model.syntax import is_stored
from autofast.model.values import Cls, Dict, Ext, Func, Inst, Ref, Seq, Tensor, Thing, Unknown
from autofast.read.library.module_parts import MORE
from autofast.rule import Refusal

CONTAINERS = frozenset({"torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"})
# layers of torch.nn whose parameters all take part in each forward, and those without any
_HOLDERS = """Linear Bilinear Embedding Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d BatchNorm2d
BatchNorm3d LayerNorm GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d RMSNorm PReLU LSTM GRU RNN LSTMCell GRUCell RNNCell
MultiheadAttention TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder TransformerDecoder Transformer"""
_WITHOUT = """ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh Softmax LogSoftmax Softplus Softsign Hardtanh Hardswish
Hardsigmoid Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d Flatten Unflatten Upsample PixelShuffle
PixelUnshuffle ZeroPad2d ReflectionPad2d ReplicationPad2d"""
_NO_GRADIENT = "argmax argmin argsort sign round floor ceil long int bool detach item size dim numel new_zeros multinomial"
HOLDERS, WITHOUT, NO_GRADIENT = (
    frozenset(names.split()) for names in (_HOLDERS, _WITHOUT, _NO_GRADIENT)
)
# Functions that give some of what they are given: random.choice(self.heads).
SOME_OF_THEM = frozenset("choice choices sample islice compress".split())
PARTS = frozenset("values items children modules named_children".split())
FACTS = frozenset({"shape", "device", "dtype", "ndim", "training", "data"})


def left_out(script: Script, step: Step, models: Iterable[Thing]) -> str:
    """What shows that a step may leave parameters of ``models`` without a gradient; empty where all
    of them certainly get one.
    """
    try:
        reached = [
            x for b in step.backwards if _always(step, b) for m in _makers(b) for x in unwrapped(m)
        ]
        if several := _gives_several(script, step):
            return f"{at(several)} returns several values, and the loss need not use all of them"
        used = {
            key for x in reached if _is_called(script, step, x) for key in used_parameters(x, ())
        }
        missing = next(
            (
                name
                for model in models
                for x in unwrapped(model)
                for key, name in parameters_of(x)
                if key not in used
            ),
            "",
        )
    except Refusal as why:
        return str(why)
    return (
        f"nothing shows that {missing} takes part in the loss of every step"
        if missing
        else _switched(script, step)
    )


# ------------------------------------------------------------------------------ what has parameters
Key = tuple[int, str]  # a layer, or an attribute of a module that is a parameter


def parameters_of(module: Thing) -> Iterator[tuple[Key, str]]:
    """The layers with parameters below a module, and single parameters, with their names."""
    todo, seen = [module], set()
    while todo:
        part = todo.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, (Seq, Dict)):
            todo.extend(part.any())
        elif isinstance(part, Inst) and is_module(part):
            if "?" in part.cls.external or any(
                n.rsplit(".", 1)[-1] in HOLDERS for n in part.cls.external
            ):
                raise Refusal(f"what parameters {part.cls.node.name} has is not known")
            if any(isinstance(t, Unknown) for t in part.attrs.get(MORE, ())):
                raise Refusal(f"what parameters {part.cls.node.name} has is not known")
            for name, found in part.attrs.items():
                if any(isinstance(t, Tensor) and t.param == "param" for t in found):
                    yield (id(part), name), f"{part.cls.node.name}.{name}"
                todo.extend(t for t in found if is_module(t) or isinstance(t, (Seq, Dict)))
        elif isinstance(part, Ext) and part.name in CONTAINERS:
            if part.args.loose is None:
                todo.extend(_held(part))
            else:
                yield from (
                    (_inside(part, key), name)
                    for held in _held(part)
                    for key, name in parameters_of(held)
                )
        elif isinstance(part, Ext) and is_module(part):
            short = part.name.rsplit(".", 1)[-1]
            if short not in HOLDERS | WITHOUT or not part.name.startswith("torch.nn."):
                raise Refusal(f"which parameters {short} uses in each step is not known")
            if "bidirectional" in part.args.named:
                raise Refusal(
                    f"{short} runs in two directions, of which the loss need not use both"
                )
            if short in HOLDERS:
                yield (id(part), ""), f"{short} of {at(part.node)}"


def _inside(container: Ext, key: Key) -> Key:
    """The key of a layer that a loop made, of which some may be elsewhere: only those in this
    container count.
    """
    return id(container), f"{key[0]} {key[1]}"


def _held(container: Ext) -> list[Thing]:
    """The modules in a Sequential, ModuleList or ModuleDict."""
    added = [t for found in container.attrs.values() for t in found]
    held = [t for g in container.args.positional for t in g.values]
    held += [t for t in added if is_module(t) or isinstance(t, Unknown)]
    listed = container.args.loose is not None and container.name == "torch.nn.Sequential"
    opened = container.args.open and not listed
    if opened or not all(is_module(t) or isinstance(t, (Seq, Dict)) for t in held):
        raise Refusal(
            f"what {container.name.rsplit('.', 1)[-1]} of {at(container.node)} holds is not known"
        )
    return held


# --------------------------------------------------------------------------- what each forward uses
def used_parameters(module: Thing, above: tuple[int, ...]) -> set[Key]:
    """The layers and parameters that certainly take part in the result of a module."""
    if id(module) in above:
        return set()
    above = (*above, id(module))
    if isinstance(module, (Seq, Dict)):
        return {key for t in module.any() for key in used_parameters(t, above)}
    if isinstance(module, Ext):
        if module.name not in CONTAINERS:
            return {(id(module), "")}
        used = {key for t in _held(module) for key in used_parameters(t, above)}
        return used if module.args.loose is None else {_inside(module, key) for key in used}
    if not isinstance(module, Inst):
        return set()
    forward = [f for f in module.cls.find("forward") or () if isinstance(f, Func)]
    return _of_method(module, forward[0], above) if len(forward) == 1 else set()


def _of_method(this: Inst, func: Func, above: tuple[int, ...]) -> set[Key]:
    if isinstance(func.node, ast.Lambda) or func.decorators or not parameters(func.node):
        return set()
    keys: set[Key] = set()
    for name in Slice(func.node).attributes:
        found = this.attrs.get(name, frozenset())
        if len([t for t in found if not isinstance(t, Unknown)]) == 1:
            keys.add((id(this), name))
            keys |= {key for t in found for key in used_parameters(t, above)}
        elif not found:
            methods = [
                f
                for f in this.cls.find(name) or ()
                if isinstance(f, Func) and id(f.node) not in above
            ]
            keys |= {key for f in methods for key in _of_method(this, f, (*above, id(f.node)))}
    return keys


class Slice:
    """The attributes of ``self`` that flow into what a straight function returns, in
    :attr:`attributes`.
    """

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef):
        self.this = parameters(function)[0].arg
        self.attributes: set[str] = set()
        self.needed: set[str] = set()
        body = function.body
        returns = [
            n for n in walk(function) if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom))
        ]
        if not isinstance(body[-1], ast.Return) or len(returns) != 1 or body[-1].value is None:
            raise Refusal(f"{function.name}() ({at(function)}) does not end in one place")
        if isinstance(body[-1].value, (ast.Tuple, ast.List, ast.Dict)):
            raise Refusal(
                f"{function.name}() ({at(function)}) returns several values, and the loss need not use all of them"
            )
        self.take(body[-1].value)
        self.block(body[:-1])

    def block(self, body: list[ast.stmt]) -> None:
        for stmt in reversed(body):
            self.statement(stmt)

    def statement(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.Assign(targets=targets, value=value):
                bound = {n.id for t in targets for n in nodes_in(t, ast.Name)}
                if bound & self.needed:
                    if all(isinstance(t, (ast.Name, ast.Tuple)) for t in targets):
                        self.needed -= bound
                    self.take(value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                if name in self.needed:
                    self.take(value)
            case ast.For(target=target, iter=over, body=body, orelse=[]):
                before = set(self.needed)
                for _ in range(2):  # what one pass needs, the pass before it has to give
                    self.block(body)
                    self.needed |= before
                if not self.needed.isdisjoint(names_in(target)):
                    self.take_each(over)
            case ast.Expr() | ast.Assert() | ast.Pass():
                pass
            case ast.If() if not self.has_layers(stmt) and not is_skipping(stmt):
                pass
            case _:
                raise Refusal(f"{at(stmt)} may leave a layer out")

    def take_each(self, over: ast.expr) -> None:
        """What a loop goes through as a whole: ``self.layers``, ``enumerate(self.layers)``,
        ``self.layers.values()``.
        """
        match over:
            case ast.Call(func=ast.Name(id="enumerate" | "zip" | "reversed" | "list"), args=parts):
                for part in parts:
                    self.take_each(part)
            case ast.Call(func=ast.Attribute(value=of, attr=name), args=[]) if name in PARTS:
                self.take_each(of)
            case ast.Name() | ast.Attribute() | ast.Tuple() | ast.List():
                self.take(over)

    def has_layers(self, node: ast.AST) -> bool:
        return any(
            self.is_this(n.value) and n.attr not in FACTS for n in nodes_in(node, ast.Attribute)
        ) or any(is_stored(n) and n.id in self.needed for n in nodes_in(node, ast.Name))

    def is_this(self, node: ast.AST) -> bool:
        return is_name(node, self.this)

    def take(self, expr: ast.AST) -> None:
        """All names and attributes of ``self`` in an expression, but those that only numbers or
        facts are read from.
        """
        match expr:
            case ast.Compare() | ast.IfExp() | ast.Lambda() | ast.NamedExpr() | ast.BoolOp():
                return
            case ast.Call(func=ast.Attribute(attr=name)) if name in NO_GRADIENT | SOME_OF_THEM:
                return
            case ast.Attribute(value=value, attr=name):
                if name not in FACTS:
                    self.attributes.update({name} if self.is_this(value) else ())
                    self.take(value)
                return
            case ast.Subscript(value=value):
                # self.layers[i] is one of them.
                if not (isinstance(value, ast.Attribute) and self.is_this(value.value)):
                    self.take(value)
                return
            case ast.Name(id=name):
                self.needed.add(name)
        for child in children(expr):
            self.take(child)


def is_skipping(stmt: ast.If) -> bool:
    """Whether it may leave out what follows in the iteration of a loop, or further iterations."""
    return holds(stmt, ast.Continue, ast.Break)


# ------------------------------------------------------------------------ what happens in each step
def _always(step: Step, backward: Backward) -> bool:
    """This backward runs in every iteration that gets as far."""
    return any(not _conditions(below(o.stack, step.loop)) for o in backward.site)


def _makers(backward: Backward) -> frozenset[Thing]:
    """The models behind the loss, whichever way it was computed."""
    every = [t.models for t in backward.tensors]
    return (
        frozenset.intersection(*every)
        if every and all(t.grad for t in backward.tensors)
        else frozenset()
    )


def _conditions(stack: Stack) -> bool:
    return any(
        isinstance(f, TryFrame) or (isinstance(f, BranchFrame) and not f.known) for f in stack
    )


def _is_called(script: Script, step: Step, model: Thing) -> bool:
    """One call of the model, with gradients, runs in every iteration."""
    for site in step.forwards:
        for o in site:
            mine = (
                o.this is not None
                and any(x is model for x in unwrapped(o.this))
                and inside(o.stack, step.loop)
                and o.grad == "on"
            )
            if (
                mine
                and isinstance(site.node, ast.Call)
                and not _conditions(below(o.stack, step.loop))
            ):
                calls = [
                    site.node,
                    *(f.node for f in below(o.stack, step.loop) if isinstance(f, CallFrame)),
                ]
                single = len([t for t in script.values(site.node.func) if is_module(t)]) == 1
                if single and not any(_left_before(script, step, call) for call in calls):
                    return True
    return False


def _gives_several(script: Script, step: Step) -> ast.AST | None:
    """A call of a model in the step whose result has parts, however they are put together."""
    calls = (s.node for s in step.forwards if any(inside(o.stack, step.loop) for o in s))
    return next(
        (
            node
            for node in calls
            if any(isinstance(t, (Seq, Dict, Inst)) for t in script.values(node))
        ),
        None,
    )


def _left_before(script: Script, step: Step, call: ast.AST) -> bool:
    """An earlier statement may leave the function of this call, or the iteration."""
    graph = script.analysis(Flow).graph(call)
    loop = next((outer for outer in loops_around(call) if outer is step.loop), None)
    return any(not isinstance(s, ast.Raise) for s in graph.leaving_before(call, loop))


def _switched(script: Script, step: Step) -> str:
    """A place in the step that cuts results off from their gradients, or one that switches
    parameters on and off once it has run.
    """
    flow = script.analysis(Flow)
    for site in script.log.of(
        ".detach", ".detach_", ".requires_grad_", "tensor_write", "set_attribute"
    ):
        switches = site.kind == ".requires_grad_"
        for o in site:
            if switches or o.data.get("name") == "requires_grad":
                trained = any(
                    flow.may_follow(site.node, o.stack, s.loop, s.stack) for s in script.steps
                )
                if trained and flow.may_follow(step.loop, step.stack, site.node, o.stack):
                    return f"{at(site.node)} switches gradients on and off"
            elif (
                inside(o.stack, step.loop)
                and site.kind.startswith(".detach")
                and isinstance(o.this, Tensor)
                and o.this.models
                and o.this.grad
                and not o.this.loss
            ):
                return (
                    f"{at(site.node)} detaches a result, so that what made it may get no gradient"
                )
    return ""


# ------------------------------------------------------------------- signs that gradients come late
def comes_late(script: Script, models: Iterable[Thing]) -> str:
    """A sign that some parameters get their first gradient later than others; empty where there is
    none (which is no proof).
    """
    wanted = {id(x): x for t in models for x in unwrapped(t)}
    mine = [m for m in script.models if id(m.thing) in wanted]
    if (
        not wanted
        or any(isinstance(t, Unknown) for t in wanted.values())
        or len(mine) < len(wanted)
    ):
        return "what the optimizer updates is not known, and so whether all of it gets gradients from the first step on"
    for model in mine:
        if model.unknown or _is_foreign(model.layers):
            return f"whether all of {model.name} gets gradients from the first step on is not known"
        for cls in model.classes:
            if place := _varies(script, cls):
                return f"a layer of {cls.name} may be left out ({place}), and get its first gradient later than others"
    return _later_in_steps(script, set(wanted))


def _is_foreign(layers: Iterable[str]) -> bool:
    """Models of libraries other than torch and torchvision, which may leave layers out at
    random.
    """
    return (
        any("." in name and not name.startswith("torchvision.models.") for name in layers)
        or "create_model" in layers
    )


def _varies(script: Script, cls: ast.ClassDef) -> str:
    """The line of a layer that is used under a condition which may change from step to step."""
    for method in (n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name != "__init__"):
        calls = [n for n in nodes_in(method, ast.Call) if _is_layer(script, n.func)]
        graph = script.analysis(Flow).graph(method)
        for node in walk(method) if calls else ():
            if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not _fixed(
                script, cls, method, node.test
            ):
                inside_it = {id(n) for n in walk(node)}
                leaves = holds(node, ast.Return, ast.Continue, ast.Break)
                if any(id(c) in inside_it or (leaves and graph.may_follow(c, node)) for c in calls):
                    return at(node)
        for call in calls:
            if isinstance(call.func, ast.Subscript) and not _is_counted(method, call.func.slice):
                return at(call)
    return ""


def _is_layer(script: Script, func: ast.expr) -> bool:
    found = script.values(func)
    if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Attribute):
        return True
    return any(is_module(t) and not is_loss(t) for t in found)


def _fixed(script: Script, cls: ast.ClassDef, method: ast.FunctionDef, test: ast.expr) -> bool:
    """The test asks for what was decided when the model was made: attributes that only ``__init__``
    sets, and constants.
    """
    names = [n for n in nodes_in(test, ast.Name) if not _is_this(method, n)]
    asked = {n.attr for n in nodes_in(test, ast.Attribute)}
    calls = list(nodes_in(test, ast.Call))
    setters = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name != "__init__"]
    changed = {n.attr for f in setters for n in nodes_in(f, ast.Attribute) if is_stored(n)}
    library = all(
        bool(found := script.values(n)) and all(isinstance(t, (Ref, Cls)) for t in found)
        for n in names
    )
    return (
        library
        and all(script.values(c.func) <= ASKS and script.values(c.func) for c in calls)
        and not asked & changed
    )


ASKS = frozenset(Ref(f"builtins.{n}") for n in ("isinstance", "len", "hasattr", "bool"))


def _is_this(method: ast.FunctionDef, name: ast.Name) -> bool:
    """The object whose method it is: ``self``."""
    return name.id in [p.arg for p in parameters(method)[:1]] and owner(name) is method


def _is_counted(method: ast.FunctionDef, index: ast.expr) -> bool:
    """A constant, or the variable of a loop: every element has its turn."""
    loops = {
        n.id
        for f in walk(method)
        if isinstance(f, (ast.For, ast.comprehension))
        for n in nodes_in(f.target, ast.Name)
    }
    names = list(nodes_in(index, ast.Name))
    return all(n.id in loops or _is_this(method, n) for n in names) and not holds(index, ast.Call)


def _later_in_steps(script: Script, wanted: set[int]) -> str:
    """A model that only some steps call, or parameters that are switched on while training."""
    for step in script.steps:
        around = {id(f.node) for f in step.stack if isinstance(f, LoopFrame)}
        for site in script.log.of(".requires_grad_", "tensor_write", "set_attribute"):
            switches = site.kind == ".requires_grad_" or any(
                o.data.get("name") == "requires_grad" for o in site
            )
            if switches and any(id(f.node) in around for o in site for f in o.stack):
                return f"{at(site.node)} switches gradients on or off while training"
        for site in step.forwards:
            for o in site:
                mine = o.this is not None and any(id(x) in wanted for x in unwrapped(o.this))
                if (
                    mine
                    and inside(o.stack, step.loop)
                    and not _is_unconditional(step.forwards, o.this, step)
                ):
                    return f"not every step calls what is called on {at(site.node)}"
    return ""


def _is_unconditional(sites: list[Site], model: Thing | None, step: Step) -> bool:
    """Some call of the model stands under no condition, or one stands in each arm of the same
    condition.
    """
    ways = [
        below(o.stack, step.loop)
        for s in sites
        for o in s
        if o.this is model and inside(o.stack, step.loop)
    ]
    arms = {
        (id(f.node), f.arm)
        for way in ways
        for f in way
        if isinstance(f, BranchFrame) and not f.known
    }
    return any(
        all(
            (id(f.node), not f.arm) in arms
            for f in way
            if isinstance(f, BranchFrame) and not f.known
        )
        for way in ways
    )
