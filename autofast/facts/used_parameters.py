"""Which parameters a module has, and which of them its forward pass certainly uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.scopes import parameters
from autofast.model.calls import is_name, names_in
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.several import wordset
from autofast.model.source import at, children, contains_kind, nodes_in, walk
from autofast.model.syntax import DISPLAYS, TURN_ENDS, Def, is_stored
from autofast.model.values import (
    COLLECTIONS,
    Const,
    Ext,
    Func,
    Inst,
    Tensor,
    Thing,
    Unknown,
    all_of,
    any_of,
    is_named,
    of_kind,
)
from autofast.read.library.module_parts import MORE
from autofast.rule import Refusal

CONTAINERS = wordset("torch.nn.Sequential torch.nn.ModuleList torch.nn.ModuleDict")
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
SOME_OF_THEM = wordset("choice choices sample islice compress")
PARTS = wordset("values items children modules named_children")
FACTS = wordset("shape device dtype ndim training data")
Key = tuple[int, str]  # a layer, or an attribute of a module that is a parameter


def parameters_of(module: Thing) -> Iterator[tuple[Key, str]]:
    """The layers with parameters below a module, and single parameters, with their names."""
    todo, seen = [module], set()
    while todo:
        part = todo.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, COLLECTIONS):
            todo.extend(part.any())
        elif isinstance(part, Inst) and is_module(part):
            if "?" in part.cls.external or any(last_part(n) in HOLDERS for n in part.cls.external):
                raise Refusal(f"what parameters {part.cls.node.name} has is not known")
            if any_of(part.attrs.get(MORE, ()), Unknown):
                raise Refusal(f"what parameters {part.cls.node.name} has is not known")
            for name, found in part.attrs.items():
                if any(t.param == "param" for t in of_kind(found, Tensor)):
                    yield (id(part), name), f"{part.cls.node.name}.{name}"
                todo.extend(t for t in found if is_module(t) or isinstance(t, COLLECTIONS))
        elif is_named(part, Ext, CONTAINERS):
            if part.args.loose is None:
                todo.extend(_held(part))
            else:
                yield from (
                    (_inside(part, key), name)
                    for held in _held(part)
                    for key, name in parameters_of(held)
                )
        elif isinstance(part, Ext) and is_module(part):
            short = last_part(part.name)
            if short not in HOLDERS | WITHOUT or not part.name.startswith("torch.nn."):
                raise Refusal(f"which parameters {short} uses in each step is not known")
            if "bidirectional" in part.args.named:
                raise Refusal(
                    f"{short} runs in two directions, of which the loss need not use both"
                )
            if any(t != Const(False) for t in part.arg("_freeze")):
                raise Refusal(f"the weights of {short} ({at(part)}) may be frozen")
            if short in HOLDERS and _has_weights(part):
                yield (id(part), ""), f"{short} of {at(part)}"


def _has_weights(layer: Ext) -> bool:
    """Whether it has parameters, where it is a norm: those of instances have to be told to."""
    name = last_part(layer.name)
    told = layer.args.get(3, "affine") | layer.arg("elementwise_affine") if "Norm" in name else None
    return told is None or (told != {Const(False)} if told else "Instance" not in name)


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
    if opened or not all(is_module(t) or isinstance(t, COLLECTIONS) for t in held):
        raise Refusal(f"what {last_part(container.name)} of {at(container)} holds is not known")
    return held


def used_parameters(module: Thing, above: tuple[object, ...]) -> set[Key]:
    """The layers and parameters that certainly take part in the result of a module."""
    if module in above:
        return set()
    above = (*above, module)
    if isinstance(module, COLLECTIONS):
        return {key for t in module.any() for key in used_parameters(t, above)}
    if isinstance(module, Ext):
        if module.name not in CONTAINERS:
            return {(id(module), "")}
        used = {key for t in _held(module) for key in used_parameters(t, above)}
        return used if module.args.loose is None else {_inside(module, key) for key in used}
    if not isinstance(module, Inst):
        return set()
    forward = module.cls.methods("forward")
    return _of_method(module, forward[0], above) if len(forward) == 1 else set()


def _of_method(this: Inst, func: Func, above: tuple[object, ...]) -> set[Key]:
    if isinstance(func.node, ast.Lambda) or func.decorators or not parameters(func.node):
        return set()
    keys: set[Key] = set()
    for name in Slice(func.node).attributes:
        found = this.attrs.get(name, frozenset())
        if len([t for t in found if not isinstance(t, Unknown)]) == 1:
            keys.add((id(this), name))
            keys |= {key for t in found for key in used_parameters(t, above)}
        elif not found:
            methods = [f for f in this.cls.methods(name) if f.node not in above]
            keys |= {key for f in methods for key in _of_method(this, f, (*above, f.node))}
    return keys


class Slice:
    """The attributes of ``self`` that flow into what a straight function returns, in
    :attr:`attributes`.
    """

    def __init__(self, function: Def):
        self.this = parameters(function)[0].arg
        self.attributes: set[str] = set()
        self.needed: set[str] = set()
        body = function.body
        returns = of_kind(walk(function), (ast.Return, ast.Yield, ast.YieldFrom))
        if not isinstance(body[-1], ast.Return) or len(returns) != 1 or body[-1].value is None:
            raise Refusal(f"{function.name}() ({at(function)}) does not end in one place")
        if isinstance(body[-1].value, DISPLAYS):
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
                    if all_of(targets, ast.Name, ast.Tuple):
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
            case ast.If() if not self.has_layers(stmt) and not contains_kind(stmt, *TURN_ENDS):
                pass
            case _:
                raise Refusal("may leave a layer out", stmt)

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
