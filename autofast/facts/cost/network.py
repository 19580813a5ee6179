"""An item on its way through a model, layer by layer: what it costs, and what comes out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from math import prod

from autofast.facts.cost.bounds import largest_value
from autofast.facts.cost.run_counts import over_layers
from autofast.facts.cost.shapes import TRAINED, Shape, Unsized, Work, layer
from autofast.model.calls import is_name
from autofast.model.contents import wrapped_by
from autofast.model.events import LoopFrame
from autofast.model.kinds import is_module, ways_made
from autofast.model.names import VISION, WRAPPERS, last_part
from autofast.model.script import Script
from autofast.model.several import all_known, of_kind
from autofast.model.source import Nodes
from autofast.model.syntax import Def, positional_names
from autofast.model.values import (
    Arguments,
    Bound,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Ref,
    Seq,
    Thing,
    Values,
    begins,
    is_named,
    ordered,
    unbound,
)

TORCH = ("torch.nn.functional.", "torch.nn.", "torch.")
DEEP = 40  # calls inside each other
# Attributes and methods that give no tensor, and calls that are never given one.
PLAIN = ("builtins.", "math.", "typing.", "random.")
# Of an image of 224 x 224 pixels: 10^9 multiplications, 10^6 numbers that convolutions put out (and
# more where their activations are costly), and how many of these there are; 10^6 parameters.
BACKBONES = """resnet18 1.82 2.5 20 11.7,resnet34 3.67 3.7 36 21.8,resnet50 4.12 11.1 53 25.6,
    resnet101 7.83 16.2 104 44.5,resnet152 11.6 22.6 155 60.2,resnext50_32x4d 4.27 14.4 53 25,
    densenet121 2.87 6.9 120 8,vgg11 7.6 7.4 8 133,vgg16 15.5 13.6 13 138,vgg16_bn 15.5 13.6 13 138,
    squeezenet1_1 0.36 2.5 26 1.2,mobilenet_v2 0.31 10 52 3.5,mobilenet_v3_large 0.23 8 62 5.5,
    mobilenet_v3_small 0.06 3 52 2.5,efficientnet_b0 0.4 13 81 5.3,convnext_tiny 4.5 13.5 22 28.6"""
FIGURES = {name: [*map(float, found)] for name, *found in map(str.split, BACKBONES.split(","))}
HEADS = frozenset("fc classifier head".split())  # behind the convolutions
Value = Shape | tuple["Shape | None", ...] | None
Env = dict[str, Value]


class Network:
    """Follows batches through models; :attr:`work` is what that costs for one item."""

    def __init__(self, script: Script):
        self.script, self.work, self.depth = script, Work(), 0
        self.loops: Nodes = set()  # around the model's own making

    def run(self, thing: Thing, shape: Shape) -> Shape:
        """What the model makes of an item; raises :class:`Unsized` where that is not known."""
        made = ways_made(thing)
        self.loops |= {f.node for f in made if isinstance(f, LoopFrame) and not self.depth}
        if any(
            isinstance(f, LoopFrame) and not f.unrolled and f.node not in self.loops for f in made
        ):
            raise Unsized("how many layers it has is not known")
        if getattr(thing, "open", ""):
            raise Unsized("its layers are not known")
        self.depth += 1
        if self.depth > DEEP:
            raise Unsized("it is too deep")
        try:
            return self._run(thing, shape)
        finally:
            self.depth -= 1

    def _run(self, thing: Thing, shape: Shape) -> Shape:
        if isinstance(thing, Inst):
            forward = thing.attrs.get("forward") or thing.cls.find("forward") or frozenset()
            found = self._call(forward, [shape], None, thing)
            if not isinstance(found, Shape):
                raise Unsized("what it gives is not known")
            return found
        if is_named(thing, Ext, WRAPPERS):
            return self._chain(wrapped_by(thing), shape)
        if begins(thing, Ext, "torch.nn."):
            short = last_part(thing.name)
            if short in ("Sequential", "ModuleList"):
                return self._sequential(thing.args, shape)
            found = layer(short, thing.args, shape, self.work, self._most)
            if found is not None:
                return found
            raise Unsized(f"what {short} costs is not known")
        if begins(thing, Ext, VISION):
            return self._backbone(thing, shape)
        raise Unsized("its layers are not known")

    def _backbone(self, thing: Ext, shape: Shape) -> Shape:
        """A network of a library, which ends in a row of features or classes."""
        name = last_part(thing.name)
        if name not in FIGURES or not thing.attrs.keys() <= HEADS or len(shape.dims) != 2:
            raise Unsized("its layers are not known")
        multiplied, put_out, layers, parameters = FIGURES[name]
        # Behind each convolution stands a normalisation.
        flop, numbers, launched = TRAINED * 2e9 * multiplied, 2e6 * put_out, int(9 * layers)
        work = Work(flop, 0, numbers, launched, int(1e6 * parameters), launched // 3)
        self.work.add(work, prod(-(-d // 32) for d in shape.dims) / 7**2)
        return Shape(None)

    def _sequential(self, args: Arguments, shape: Shape) -> Shape:
        if not args.known or args.named:
            raise Unsized("its layers are not known")
        for given in args.positional:
            for part in ordered(given.values):
                if isinstance(part, Seq) and part.exact is None:
                    raise Unsized("its layers are not known")
                parts = part.exact if isinstance(part, Seq) else None
                for inner in parts if parts is not None else (frozenset({part}),):
                    shape = self._chain(ordered(inner), shape)
        return shape

    def _chain(self, things: Sequence[Thing], shape: Shape) -> Shape:
        if not things:
            raise Unsized("its layers are not known")
        for thing in things:
            shape = self.run(thing, shape)
        return shape

    def _most(self, expr: ast.expr) -> int | None:
        return largest_value(self.script, expr)

    # ----------------------------------------------------------------------- code of forward passes
    def _call(
        self, called: Values, given: Sequence[Value], call: ast.Call | None, this: Inst | None
    ) -> Value:
        """What the functions and layers give that may be called here."""
        shapes = list(_shapes(given))
        result: Value = None
        modules = [t for t in ordered(called) if is_module(t)]
        if modules:
            if not shapes:
                raise Unsized("what a layer is given is not known")
            return self._chain(modules, shapes[0])
        for thing in ordered(called):
            bound = thing.this if isinstance(thing, Bound) else this
            func = unbound(thing)
            if isinstance(func, Func):
                if isinstance(func.node, ast.Lambda) or not isinstance(bound, Inst | None):
                    raise Unsized("a function is not followed")
                found: Value = self._function(func.node, given, bound)
            elif not shapes:
                continue  # sizes, options, flags
            elif isinstance(thing, (Ref, Method)) and call is not None:
                found = self._operation(thing, shapes, call)
            else:
                raise Unsized("a call is not followed")
            result = _larger(result, found)
        if not called and shapes:
            raise Unsized("a call is not followed")
        return result

    def _operation(self, thing: Ref | Method, shapes: list[Shape], call: ast.Call) -> Value:
        name = last_part(thing.name)
        if isinstance(thing, Ref):
            if thing.name.startswith(PLAIN):
                return None
            if not thing.name.startswith(TORCH):
                raise Unsized(f"what {thing.name} costs is not known")
        first = 1 if isinstance(thing, Ref) else 0
        args = Arguments(call, [Given(self.script.values(a), a) for a in call.args])
        for k in call.keywords:
            args.named[k.arg or ""] = Given(self.script.values(k.value), k.value)
        if name in ("view", "reshape"):
            return self._reshaped(call.args[1 + first :], shapes[0])
        if name in ("size", "dim", "numel", "item"):
            return None
        if name in ("cat", "concat"):
            self.work.kernels += 2
            largest = max(shapes, key=lambda s: s.positions)
            channels = all_known(s.channels for s in shapes)
            return Shape(sum(channels) if channels else None, largest.dims)
        found = layer(name, args, shapes[0], self.work, self._most, first)
        if found is None:
            raise Unsized(f"what {name}() costs is not known")
        return found

    def _reshaped(self, sizes: Sequence[ast.expr], shape: Shape) -> Shape:
        """By the sizes behind that of the batch: features, or channels and images."""
        found = [self.script.constant(size) for size in sizes]
        known = [n if isinstance(n, int) and n > 0 else None for n in found]
        if len(known) == 1:
            flat, given = known[0] or shape.elements, shape.elements
            if self.work.convolutions and shape.dims and given and flat != given:
                raise Unsized(
                    "what is flattened does not fit", over=1 if given > (flat or 0) else -1
                )
            return Shape(flat)
        exact = all_known(known)
        if not exact or prod(exact) != (shape.elements or prod(exact)):
            raise Unsized("what a tensor is reshaped to is not known")
        return Shape(exact[0], tuple(exact[1:]))

    def _function(
        self,
        node: Def,
        given: Sequence[Value],
        this: Inst | None,
    ) -> Value:
        names = positional_names(node.args)
        names = names[1:] if this is not None and names[:1] == ["self"] else names
        env: Env = dict(zip(names, given, strict=False))
        self.depth += 1
        if self.depth > DEEP:
            raise Unsized("it is too deep")
        results: list[Value] = []
        self._block(node.body, env, this, results)
        self.depth -= 1
        return _larger(*results)

    def _block(
        self, body: Iterable[ast.stmt], env: Env, this: Inst | None, results: list[Value]
    ) -> None:
        for stmt in body:
            match stmt:
                case ast.Assign(targets=targets, value=value):
                    found = self._value(value, env, this)
                    for target in targets:
                        _bind(target, found, env)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    _bind(target, self._value(value, env, this), env)
                case ast.AugAssign(target=ast.Name(id=name), value=value):
                    self.work.kernels += 2
                    env[name] = _larger(env.get(name), self._value(value, env, this))
                case ast.Return(value=ast.expr() as value):
                    results.append(self._value(value, env, this))
                case ast.Expr(value=value):
                    self._value(value, env, this)
                case ast.If(test=test, body=then, orelse=other):
                    self._value(test, env, this)
                    self._block(then, env, this, results)
                    self._block(other, env, this, results)
                case ast.With(body=inner):
                    self._block(inner, env, this, results)
                case ast.For(body=inner):
                    before = self.work.convolutions + self.work.products
                    self._block(inner, env, this, results)
                    if (
                        not over_layers(stmt)
                        and self.work.convolutions + self.work.products > before
                    ):
                        raise Unsized("how often a loop turns is not known")
                case (
                    ast.Pass()
                    | ast.Assert()
                    | ast.Import()
                    | ast.ImportFrom()
                    | ast.Return()
                    | ast.Raise()
                ):
                    pass
                case _:
                    raise Unsized("a statement is not followed")

    def _value(self, expr: ast.expr, env: Env, this: Inst | None) -> Value:
        match expr:
            case ast.Name(id=name):
                return env.get(name)
            case ast.Call(func=func, args=args, keywords=keywords):
                given = [self._value(a, env, this) for a in args]
                given += [self._value(k.value, env, this) for k in keywords]
                called = self.script.values(func)
                if isinstance(func, ast.Attribute):
                    if is_name(func.value, "self") and this:
                        called = this.attrs.get(func.attr) or called
                    else:
                        given.insert(0, self._value(func.value, env, this))
                return self._call(called, given, expr, this)
            case ast.BinOp(left=left, op=op, right=right):
                found = _larger(self._value(left, env, this), self._value(right, env, this))
                if isinstance(op, ast.MatMult) and found is not None:
                    raise Unsized("what a product costs is not known")
                self.work.kernels += 2 if found is not None else 0
                return found
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                parts = [self._value(e, env, this) for e in elts]
                return tuple(s for p in parts for s in (p if isinstance(p, tuple) else (p,)))
            case ast.Attribute(value=value, attr=attr):
                inner = self._value(value, env, this)
                return None if attr in ("shape", "device", "dtype", "ndim", "is_cuda") else inner
            case ast.Subscript(value=value):
                inner = self._value(value, env, this)
                return next(_shapes([inner]), None)
            case ast.Constant() | ast.JoinedStr() | ast.Slice():
                return None
        inside = of_kind(ast.iter_child_nodes(expr), ast.expr)
        return _larger(*(self._value(part, env, this) for part in inside))


def _shapes(given: Iterable[Value]) -> Iterator[Shape]:
    for value in given:
        for part in value if isinstance(value, tuple) else (value,):
            if part is not None:
                yield part


def _larger(*given: Value) -> Value:
    shapes = list(_shapes(given))
    return max(shapes, key=lambda s: s.positions * (s.channels or 1)) if shapes else None


def _bind(target: ast.expr, found: Value, env: Env) -> None:
    match target:
        case ast.Name(id=name):
            env[name] = found
        case ast.Tuple(elts=elts) if isinstance(found, tuple) and len(found) == len(elts):
            for part, value in zip(elts, found, strict=True):
                _bind(part, value, env)
        case ast.Tuple(elts=elts):
            for part in elts:
                _bind(part, found, env)
