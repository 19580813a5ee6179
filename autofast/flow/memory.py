"""Which tensors may share memory: what an expression is a view of, whether it is memory of its own,
what a node writes to.

Variables are followed by their definitions inside of one function. What comes from elsewhere (a
parameter, an attribute, an element of a list, the result of a function) is memory that is not
followed further.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from functools import cached_property

from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.defuse import bound_to
from autofast.flow.mappings import Mappings
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes
from autofast.model.calls import arguments_of, is_augmented, is_method, is_name
from autofast.model.contents import each_once, with_contents
from autofast.model.names import LEGACY_TENSORS, last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import ByNode, Nodes, function_of, parent_of
from autofast.model.syntax import (
    SEQUENCES,
    is_constant,
    is_read,
    is_stored,
    is_text,
    is_unary,
)
from autofast.model.values import (
    Const,
    Dict,
    Ext,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    all_of,
    certainly,
    const,
    is_const,
    surely_named,
)
from autofast.ops import is_in_place, is_view, may_share, op

FACTORIES = wordset("randn rand randint zeros ones full arange linspace eye randperm", "torch.")
# Functions that give memory of its own.
NEW = FACTORIES | {"torch.tensor", "torch.stack", "torch.cat"}
NEW_ARRAYS = wordset(
    """array zeros zeros_like ones ones_like empty empty_like full full_like arange linspace eye concatenate stack
vstack hstack column_stack tile repeat random.rand random.randn random.random random.randint random.uniform random.normal""",
    "numpy.",
)
WRAPPED = wordset("torch.from_numpy torch.as_tensor")  # tensors in the memory of arrays
LEGACY = frozenset(f"torch.{name}" for name in LEGACY_TENSORS)
# What gives the memory of an argument another name, besides torch's own operations.
PARAMETERS = wordset("torch.nn.Parameter torch.nn.Buffer")
RENAMING = PARAMETERS | wordset("memoryview list tuple iter", "builtins.")
RENAMING |= {"torch.autograd.Variable", *LEGACY}
RENAMING |= wordset(
    """asarray asanyarray ascontiguousarray frombuffer from_dlpack ndarray ravel reshape transpose squeeze expand_dims swapaxes
    moveaxis rollaxis broadcast_to broadcast_arrays split array_split hsplit vsplit dsplit atleast_1d atleast_2d atleast_3d
    diagonal diag flip fliplr flipud rot90 real imag require trim_zeros asarray_chkfinite real_if_close einsum nditer
    lib.stride_tricks.sliding_window_view lib.stride_tricks.as_strided""",
    "numpy.",
)
RENAMING |= {"copy.copy", "torch.utils.data.default_convert"}
# Where the flag stands.
INPLACE_LAYERS = dict.fromkeys("ReLU ReLU6 SiLU SELU Mish Hardswish Hardsigmoid".split(), 0)
DROPOUTS = "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout".split()
INPLACE_LAYERS |= dict.fromkeys([*DROPOUTS, "LeakyReLU", "ELU", "CELU"], 1)
INPLACE_LAYERS |= dict.fromkeys("Hardtanh Threshold RReLU".split(), 2)
# Layers whose result may be their argument, or a view of it; and those that have others do it.
PASSING_LAYERS = {f"torch.nn.{n}" for n in ("Identity", "Flatten", "Unflatten", *DROPOUTS)}
WRAPPING_LAYERS = wordset(
    "Sequential DataParallel parallel.DataParallel parallel.DistributedDataParallel"
)

Makers = Set[ast.AST | None]
ARRAY = ast.Pass()  # stands for what made an array that is not followed


class Memory:
    """``script.analysis(Memory)``"""

    def __init__(self, script: Script):
        self.script = script
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)
        self._parameters: ByNode[frozenset[str]] = {}
        self._attributes: dict[str, bool] = {}

    # ----------------------------------------------------------------------- what is a view of what
    def sources(self, expr: ast.expr) -> frozenset[ast.AST]:
        """All that ``expr`` may be, or be a view of: expressions, and the nodes of
        definitions of variables.
        """
        start: list[ast.AST] = [expr]
        return frozenset(with_contents(start, self.below))

    def below(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is, or is a view of, one step further down."""
        if isinstance(node, ast.Name) and is_stored(node) and not is_augmented(node):
            value, whole = bound_to(node)
            if value is not None and (
                whole or (isinstance(value, ast.Call) and any(self.viewed(value)))
            ):
                yield value
        elif isinstance(node, ast.Name):
            yield from (d.node for d in self.flow.reaching(node))
        elif isinstance(node, ast.IfExp):
            yield from (node.body, node.orelse)
        elif isinstance(node, ast.NamedExpr):
            yield node.value
        elif is_unary(node, ast.UAdd):  # a tensor's is the tensor itself
            yield node.operand
        elif isinstance(node, SEQUENCES):
            yield from node.elts
        elif isinstance(node, ast.Dict):
            yield from node.values
        elif isinstance(node, ast.expr):
            yield from self.viewed(node)

    def viewed(self, node: ast.expr) -> Iterator[ast.expr]:
        """What a view is one of: ``h`` of ``h.view(-1)``, ``torch.movedim(h, 0, 1)``."""
        functions = self.script.library_functions(node)
        if isinstance(node, ast.Call) and any(_gives_back(n, node) for n in functions):
            yield from (a for a in node.args if not isinstance(a, ast.Constant))
            yield from (k.value for k in node.keywords if k.arg in ("input", "self", "tensor"))
        elif (inner := view_of(node)) is not None:
            yield inner
        elif is_method(node) and (is_in_place(node.func.attr, flags=True) or _copies_not(node)):
            yield node.func.value  # `x.mul_(2)` is `x`
        elif isinstance(node, ast.Call) and any(map(passes_on, self.script.called(node))):
            yield from node.args

    def may_share(self, a: ast.expr, b: ast.expr) -> bool:
        """Whether two expressions of one function may share memory, by its own variables."""
        return not self.sources(a).isdisjoint(self.sources(b))

    def is_fresh(self, expr: ast.expr) -> bool:
        """Memory that nothing else holds: made by a factory, by arithmetic, or a view of such."""
        values = self.script.values
        match expr:
            case ast.Call(keywords=keywords) if any(
                k.arg in (None, "out", "inplace", "copy", "like") for k in keywords
            ) or any(asks_in_place(n, expr) for n in self.script.library_functions(expr)):
                return False
            case ast.Call(func=func, args=[data, *_]) if surely_named(values(func), Ref, WRAPPED):
                return self.is_fresh(data)
            case ast.Call(func=func, args=[data]) if surely_named(values(func), Ref, LEGACY):
                return certainly(values(data), Const, Seq) or self.is_fresh(data)
            case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args) if all_of(
                values(expr.func), Method
            ):
                return bool(values(inner)) and (
                    _computes(f"torch.{attr}")
                    or (is_view(attr) and self.is_fresh(inner))
                    or (attr == "new" and self._are_sizes(args))
                )
            case ast.Call(func=func):
                return surely(
                    isinstance(t, Ref)
                    and (
                        t.name in NEW
                        or t.name in NEW_ARRAYS
                        or (t.name.startswith("torch.") and _computes(t.name))
                    )
                    for t in values(func)
                )
            case (
                ast.BinOp(left=left, right=right)
                | ast.Compare(left=left, comparators=[right])
                | ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=left as right)
            ):
                return all(
                    isinstance(t, (Tensor, Num, Const))
                    for side in (left, right)
                    for t in values(side)
                )
            case ast.Attribute(value=inner, attr=attr):
                return is_view(attr) and self.is_fresh(inner)
            case ast.Subscript(value=inner):
                return self.is_fresh(inner)
        return False

    def made_by(self, expr: ast.expr, own: bool = False) -> frozenset[ast.AST] | None:
        """The expressions that made the memory of what ``expr`` holds, all of them new
        memory; None where these are not known, or, with ``own``, where a variable of the module or
        of another function may have held it before the function ran.
        """
        found: Nodes = set()
        todo = [expr]
        for node in each_once(todo):
            if self.is_fresh(node):
                found.add(node)
            elif isinstance(node, ast.Name) and (is_read(node) or is_augmented(node)):
                # `x += 1` leaves it where it is
                origins = self.flow.origins(node)
                if own and any(function_of(d.node) is not function_of(node) for d in origins):
                    return None
                made = [bound_to(d.node) for d in origins if not d.is_augmented]
                made = [(v, whole) for v, whole in made if v is None or self._runs(v)]
                if not surely(value is not None and whole for value, whole in made):
                    return None
                todo += (value for value, _ in made if value is not None)
            elif isinstance(node, ast.IfExp):
                todo += (node.body, node.orelse)
            elif viewed := [*self.viewed(node)]:
                todo += viewed
            elif isinstance(node, ast.Call) and not self.calls.may_run_others(node):
                callees = self.calls.callees(node)
                results = [r for c in callees for r in self.calls.results(c.function)]
                if not results:  # an object, whose items may be anything
                    return None
                todo += results
            else:
                return None
        return frozenset(found)

    def _are_sizes(self, args: list[ast.expr]) -> bool:
        """Whether ``x.new(*args)`` is told sizes, or numbers: of one tensor it would be a view."""
        return len(args) != 1 or certainly(self.script.values(args[0]), Const, Num, Seq)

    def is_apart(self, expr: ast.expr) -> bool:
        """Whether all that ``expr`` may hold is certainly in memory of its own: to write to it
        changes nothing that was there before.
        """
        return self.begins_as_number(expr) or self.made_by(expr, own=True) is not None

    def _runs(self, expr: ast.expr) -> bool:
        return bool(self.script.unread) or self.script.reached(expr)

    def memory_of(self, made: ast.AST | None) -> frozenset[ast.AST | None]:
        """The nodes that made the memory of a tensor which ``made`` made: those of the array in
        ``torch.from_numpy(array)``; None for any, :data:`ARRAY` for any array's.
        """
        found: set[ast.AST | None] = set()
        if isinstance(made, ast.Call) and not self.is_fresh(made):
            for expr in self.viewed(made):
                things = self.script.values(expr) or (None,)
                found |= self.made_by(expr) or {self._maker(t) for t in things}
        return frozenset(found or {made})

    def may_be_one(self, some: Makers, others: Makers) -> bool:
        """Whether what the nodes of one set made may be memory that those of the other made."""
        if None in some or None in others or not some.isdisjoint(others):
            return True
        return any(
            ARRAY in one and any(n is None or not self.script.must_be(n, Tensor) for n in other)
            for one, other in ((some, others), (others, some))
        )

    def _maker(self, thing: Thing | None) -> ast.AST | None:
        tensor = thing.synced if isinstance(thing, Num) else thing
        return tensor.made if isinstance(tensor, Tensor) else ARRAY

    @cached_property
    def handed(self) -> list[tuple[ast.AST, ast.expr]]:
        """Where a tensor or a parameter gets the memory of what is there, with the expressions for
        both: ``x.data = y``, ``x.set_(y)``, ``nn.Parameter(y)``.
        """
        found: list[tuple[ast.AST, ast.expr]] = []
        for node in self.script.nodes:
            match node:
                case (
                    ast.Assign(targets=[ast.Attribute(value=x, attr="data")], value=y)
                    | ast.Call(func=ast.Attribute(value=x, attr="set_"), args=[y, *_])
                ):
                    found += [(node, x), (node, y)]
                case ast.Call(args=[y, *_]) if self.script.library_functions(node) & PARAMETERS:
                    found.append((node, y))
        return [(node, e) for node, e in found if not self._is_computed(e)]

    def _is_computed(self, expr: ast.expr) -> bool:
        """New memory, if ``expr`` is a tensor, of which nothing else may be known."""
        computes = is_method(expr) and _computes(f"torch.{expr.func.attr}")
        return computes or isinstance(expr, ast.BinOp) or self.is_fresh(expr)

    # --------------------------------------------------------------------------- what is written to
    def written(self, node: ast.AST) -> list[ast.expr]:
        """The expressions whose memory a node itself writes to (an assignment to a variable writes
        to none).
        """
        match node:
            case ast.AugAssign(target=target):
                return [target]
            case ast.Subscript(ctx=ast.Store(), value=value):
                new = not is_augmented(node) and self.script.analysis(Mappings).holds(value)
                return [] if new else [value]
            case ast.Attribute(value=value, attr=attr) if is_in_place(attr):
                if not self.script.may_be(value, Ref):
                    return [value]
                return []
            case ast.Call():
                return [
                    *(k.value for k in node.keywords if k.arg == "out"),
                    *self._written_by(node),
                ]
        return []

    def written_in(self, nodes: Iterable[ast.AST]) -> frozenset[ast.AST]:
        """The sources of all that some nodes write to."""
        return frozenset(s for n in nodes for e in self.written(n) for s in self.sources(e))

    def begins_as_number(self, target: ast.expr) -> bool:
        """Whether ``target += ...`` never writes to memory that something else has: a sum that
        begins with a constant is an object of its own.
        """
        if isinstance(target, ast.Attribute):
            return self._attribute_begins_as_number(target.attr)
        if not isinstance(target, ast.Name):
            return False
        made = [d for d in self.flow.origins(target) if not d.is_augmented]
        return surely(d.value is not None and _is_number(self.script.values(d.value)) for d in made)

    def _attribute_begins_as_number(self, name: str) -> bool:
        """Whether all that is put under this name, in any object, is a number."""
        if name not in self._attributes:
            stores = [parent_of(n) for n in self.script.nodes if is_stored(n) and _puts(n, name)]
            made = [p for p in stores if not isinstance(p, ast.AugAssign)]
            self._attributes[name] = (
                bool(made)
                and not self.script.calls("builtins.setattr")
                and all(
                    isinstance(p, (ast.Assign, ast.AnnAssign))
                    and p.value is not None
                    and _is_number(self.script.values(p.value))
                    for p in made
                )
            )
        return self._attributes[name]

    def _written_by(self, call: ast.Call) -> list[ast.expr]:
        """The arguments that a call writes to: ``F.relu(x, inplace=True)``, ``torch.relu_(x)``, a
        layer of that kind, a project function.
        """
        given = [a for a in arguments_of(call) if not isinstance(a, ast.Constant)]
        if asks_in_place("", call):
            return given
        for thing in self.script.called(call):
            if isinstance(thing, Ref) and _writes_first(thing.name, call):
                return given
            if isinstance(thing, Ref) and (known := op(thing.name)) is not None and known.mutates:
                return [a for n, a in enumerate(call.args) if n in known.mutates]
            if isinstance(thing, Ext) and is_in_place_layer(thing):
                return given
        pairs = [
            (c, self.written_parameters(c.function))
            for c in self.calls.callees(call)
            if c.makes is None
        ]
        return [
            a
            for a in given
            if any(names and names & {*self.calls.given_to(call, c, a)} for c, names in pairs)
        ]

    def written_parameters(self, function: Function) -> frozenset[str]:
        """The parameters that a function writes to by its own statements, not by what it calls."""
        if function not in self._parameters:
            nodes = [n for n in own_nodes(function) if not isinstance(n, ast.Call)]
            found = self.written_in(nodes)
            self._parameters[function] = frozenset(
                n.arg for n in nodes if isinstance(n, ast.arg) and n in found
            )
        return self._parameters[function]

    def is_given_entries(self, call: ast.Call, argument: ast.expr) -> bool:
        """Whether all that the call writes to this argument are entries of a dict
        (``outputs["loss"] = loss``): what the dict held before stays as it is.
        """
        stores: list[bool] = []
        for callee in self.calls.callees(call):
            names = {*self.calls.given_to(call, callee, argument)}
            nodes = [n for n in own_nodes(callee.function) if not isinstance(n, ast.Call)]
            given = {n for n in nodes if isinstance(n, ast.arg) and n.arg in names}
            for node in nodes:
                mine = [e for e in self.written(node) if not given.isdisjoint(self.sources(e))]
                stores += [isinstance(node, ast.Subscript) and self._is_entry(node) for _ in mine]
        return surely(stores)

    def _is_entry(self, target: ast.Subscript) -> bool:
        """``d[key] = ...`` of a dict: no tensor has a name for a key."""
        base = self.script.values(target.value)
        named = is_text(target.slice) or isinstance(self.script.constant(target.slice), str)
        return not is_augmented(target) and (
            certainly(base, Dict) or (named and all_of(base, Dict, Tensor))
        )


def view_of(expr: ast.expr) -> ast.expr | None:
    """``h`` for ``h.view(-1)``, ``h[0]`` and ``h.T``; None for what is no view."""
    if isinstance(expr, (ast.Subscript, ast.Starred)):
        return expr.value
    func = expr.func if isinstance(expr, ast.Call) else expr
    return func.value if isinstance(func, ast.Attribute) and is_view(func.attr) else None


def base_of(expr: ast.expr) -> ast.expr:
    """The expression at the bottom of a chain of views and parts."""
    while (inner := view_of(expr)) is not None:
        expr = inner
    return expr


def views_around(node: ast.expr) -> ast.expr:
    """``h.view(-1)[2:].t()`` around ``h.view(-1)``: the largest expression that is a view of
    ``node``.
    """
    while True:
        parent = parent_of(node)
        outer = parent_of(parent) if isinstance(parent, ast.Attribute) else None
        whole = outer if isinstance(outer, ast.Call) and outer.func is parent else parent
        if (
            not isinstance(whole, (ast.Subscript, ast.Attribute, ast.Call))
            or view_of(whole) is None
        ):
            return node
        if isinstance(whole, ast.Subscript) and (whole.value is not node or not is_read(whole)):
            return node
        node = whole


def is_in_place_layer(thing: Ext) -> bool:
    """A layer that writes to its input; of a Sequential, the first one. (One that is made around
    itself, in a loop, is looked at once.)
    """
    first = [thing]
    for layer in each_once(first):
        if layer.name == "torch.nn.Sequential" and layer.args.positional:
            first += of_kind(layer.args.positional[0].values, Ext)
            continue
        place = INPLACE_LAYERS.get(layer.name.removeprefix("torch.nn."), 9)
        flag = layer.args.get(place, "inplace")
        if flag and const(flag) is not False:
            return True
    return False


def passes_on(layer: Thing, around: frozenset[Thing] = frozenset()) -> bool:
    """Whether what a layer of torch gives may be the memory of its input; one that is ``around``
    itself, made so in a loop, does what the others in it do.
    """
    if not isinstance(layer, Ext) or layer in around:
        return False
    name = layer.name.removeprefix("torch.nn.")
    if name in WRAPPING_LAYERS:
        inner = (g.values for g in layer.args.positional)
        outer = around | {layer}
        return not any(
            surely(isinstance(t, Ext) and not passes_on(t, outer) for t in v) for v in inner
        )
    return layer.name in PASSING_LAYERS or is_in_place_layer(layer)


def is_false(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Constant) and expr.value is False


CLIPS = wordset("clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_")


def renames(name: str) -> bool:
    """Whether what a function gives may be the memory of what it is given."""
    return is_view(name) or name in RENAMING


def _gives_back(name: str, call: ast.Call) -> bool:
    """The same of a call, which may ask for it: ``F.relu(x, inplace=True)``, ``np.array(a,
    copy=False)``.
    """
    return renames(name) or asks_in_place(name, call) or _copies_not(call)


def _copies_not(call: ast.Call) -> bool:
    """Whether a call may be told to copy nothing: ``a.astype(kind, copy=False)``."""
    return any(k.arg == "copy" and not is_constant(k.value, True) for k in call.keywords)


def _computes(name: str) -> bool:
    """Whether it is an operation of torch whose result is always in memory of its own."""
    return op(name) is not None and not may_share(name) and not is_in_place(name)


def _writes_first(name: str, call: ast.Call) -> bool:
    if name.startswith("torch.nn.utils.") and last_part(name) in CLIPS:
        return False  # it writes to the gradients of what it is given
    return is_in_place(name) or asks_in_place(name, call)


def asks_in_place(name: str, call: ast.Call) -> bool:
    """Whether a function is told to write to what it is given first, or may be:
    ``F.relu(x, inplace=True)``, ``F.leaky_relu(x, 0.1, flag)``, ``F.dropout(x, *options)``.
    """
    known = op(name)
    place = known.inplace if known is not None else None
    flags = [k.value for k in call.keywords if k.arg == "inplace"]
    if place is not None:
        flags += call.args[place : place + 1]
        flags += [k.value for k in call.keywords if k.arg is None]
        flags += of_kind(call.args[:place], ast.Starred)
    return not all(map(is_false, flags))


def _puts(node: ast.AST, name: str) -> bool:
    """``x.name = ...``, or ``name = ...`` in the body of a class."""
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return is_name(node, name) and isinstance(parent_of(parent_of(node) or node), ast.ClassDef)


def _is_number(values: Values) -> bool:
    return surely(is_const(t, int, float, complex) for t in values)
