"""What leaves a piece of code: whether a tensor made inside may meet autograd outside.

A tensor made under ``torch.inference_mode()`` may be read anywhere, but outside it must neither be saved for a backward nor changed
in place: both are errors. So everything that may carry one out is followed - names, containers, attributes, results of functions - to
the places where it is used. Reading it as a number, printing it and saving it is harmless; what is not understood is a leak.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.flow.scopes import (
    COMPREHENSIONS,
    FUNCTIONS,
    declared,
    is_local,
    is_parameter,
    owner,
    parameters,
    variables_of,
)
from autofast.model import names
from autofast.model.calls import call_of, is_method
from autofast.model.contents import attributes, opened, wrapped
from autofast.model.events import Occurrence
from autofast.model.kinds import is_loss, is_module
from autofast.model.script import Script
from autofast.model.source import (
    at,
    function_of,
    is_generator,
    parent_of,
    source_of,
    statement_of,
    walk,
)
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Partial,
    Reason,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    const,
)
from autofast.ops import is_in_place
from autofast.read.recover.region import Region

# fmt: off
NUMBERS = frozenset({
    "item", "tolist", "numpy", "size", "dim", "numel", "nelement", "element_size", "stride", "is_floating_point", "is_contiguous",
    "get_device", "count", "index",
})
FACTS = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "layout", "is_sparse"})
READS = frozenset({
    "builtins.print", "builtins.float", "builtins.int", "builtins.bool", "builtins.str", "builtins.repr", "builtins.format", "builtins.len",
    "builtins.isinstance", "builtins.id", "builtins.type", "builtins.hash", "torch.save",
})
CHOOSES = frozenset({"builtins.max", "builtins.min", "builtins.sorted"})  # of several things, without computing with them
PASS_ON = frozenset({"random", "heapq", "queue", "multiprocessing", "threading", "collections", "itertools", "functools", "operator"})
FRESH = frozenset({  # a tensor of their own, made where they run
    "eq", "ne", "lt", "gt", "le", "ge", "sum", "mean", "argmax", "argmin", "topk", "max", "min", "mul", "add", "sub", "div", "pow", "exp",
    "log", "softmax", "log_softmax", "sigmoid", "tanh", "relu", "sqrt", "square", "norm", "std", "var", "prod", "abs", "neg", "clone", "cat",
    "stack", "sort", "argsort", "cumsum", "matmul", "mm", "bmm", "round", "floor", "ceil", "where", "isnan", "isinf", "isfinite",
    "nonzero", "gather", "index_select", "masked_select", "repeat", "one_hot", "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "bincount",
})
COUNTED = frozenset({"is_inference", "_version"})
KEEPERS = frozenset({"append", "appendleft", "add", "insert", "extend", "extendleft", "update", "setdefault"})
# fmt: on
CLIMB = (
    ast.UnaryOp,
    ast.BoolOp,
    ast.IfExp,
    ast.Slice,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.Starred,
    *COMPREHENSIONS,
)
ENDS = (
    ast.FormattedValue,
    ast.Expr,
    ast.If,
    ast.While,
    ast.Assert,
    ast.Raise,
    ast.Delete,
    ast.comprehension,
)
YIELDS = "it yields in between: what the caller does then would run in the same mode"


def carries(values: Values) -> bool:
    """Whether these values may be, or hold, a tensor."""
    return any(
        isinstance(t, Tensor)
        or (isinstance(t, Unknown) and not _is_of_arrays(t) and t.reason is not Reason.UNDEFINED)
        for t in opened(values, _in_data)
    )


def _is_of_arrays(thing: Unknown) -> bool:
    """What a library returned that computes with arrays of its own (pandas keeps tensors as objects where it is given some: see ``_Leaks``)."""
    returned = thing.reason in (Reason.RESULT, Reason.METHOD)
    return returned and thing.name.startswith(("numpy.", "scipy.", "sklearn.", "pandas."))


def _in_data(thing: Thing) -> Iterable[Thing]:
    if isinstance(thing, Partial):
        return (t for given in thing.args.all() for t in given)
    return wrapped(thing) or (() if is_module(thing) else attributes(thing))


def leak(script: Script, region: Region) -> str:
    """How a tensor made in ``region`` may come to autograd outside it; empty where none can."""
    return next((why for why in _Leaks(script, region).reasons() if why), "")


class _Leaks:
    def __init__(self, script: Script, region: Region):
        self.script, self.region = script, region
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)
        self.seen: set[int] = set()
        # Objects that only keep numbers, as far as they have been followed.
        self.keepers: set[tuple[int, str]] = set()

    def reasons(self) -> Iterator[str]:
        region = self.region
        if region.yields:
            yield YIELDS
        for site in self.script.methods(
            "register_forward_hook", "register_module_forward_hook", "register_forward_pre_hook"
        ):
            yield f"the hook of {at(site.node)} may keep it"
        for (kind, _), site in self.script.log.each():
            if kind.startswith("pandas."):
                given = [v for o in site if o.args is not None for v in o.args.all()]
                if any(isinstance(t, Tensor) for v in given for t in opened(v, _in_data)):
                    yield f"{at(site.node)} gives tensors to pandas, which may keep them"
        yield from self.kept()
        yield from (self.read(name) for name in self.tainted())
        for statement in region.statements:
            for part in walk(statement):
                if (
                    isinstance(part, ast.Return)
                    and part.value is not None
                    and function_of(part) is region.scope
                ):
                    yield self.returned(part)

    # ------------------------------------------------------------------------------------------------ what is kept
    def kept(self) -> Iterator[str]:
        """Stores other than in local variables, here and in the functions called here."""
        for site, occurrence in self.region.sites(self.script, "set_attribute", "set_elsewhere"):
            if (
                carries(occurrence.result)
                and not self.born_inside(occurrence.this)
                and (why := self.keeper(occurrence.this, getattr(site.node, "attr", "")))
            ):
                yield f"`{ast.unparse(site.node)}` keeps a tensor made here ({at(site.node)}){why}"
        for site, occurrence in self.region.sites(
            self.script, "append", "set_item", "tensor_write", "inplace"
        ):
            if (
                site.kind != "inplace"
                and not carries(occurrence.result)
                or self.born_inside(occurrence.this)
            ):
                continue
            root = root_of(site.node)
            if site.kind == "inplace" and _is_computed(site.node):
                continue
            if site.kind in ("inplace", "tensor_write") and _stays_normal(occurrence):
                continue
            if (root is not None and is_local(root)) or self.local_names(occurrence.this):
                continue  # followed as a variable
            yield f"{at(site.node)} changes something that outlives this place"
        for function in self.functions():
            for part in walk(function):
                if (
                    isinstance(part, ast.Name)
                    and isinstance(part.ctx, ast.Store)
                    and part.id in declared(function_of(part))
                ):
                    value = getattr(statement_of(part), "value", None)
                    here = function is not self.region.scope or self.region.holds(part)
                    if here and (value is None or carries(self.script.values(value))):
                        yield f"the global `{part.id}` may keep a tensor made here ({at(part)})"

    def keeper(self, thing: Thing | None, attribute: str) -> str:
        """Why an object that keeps tensors may bring them to autograd (after a colon); empty for a meter that is only filled here and read.

        Of a module, which has parameters besides, only this attribute is asked for.
        """
        module = thing is not None and is_module(thing)
        if (
            not isinstance(thing, Inst)
            or (module and (not attribute or self.is_registered(attribute)))
            or thing.open
            or thing.cls.external - {"builtins.object", "torch.nn.Module"}
        ):
            return ": what is done with it is not followed"
        key = (id(thing), attribute if module else "")
        if key in self.keepers:
            return ""
        self.keepers.add(key)
        for site in self.script.log.of("set_attribute", "set_elsewhere"):
            for occurrence in site:
                in_place = isinstance(parent_of(site.node), ast.AugAssign) and carries(
                    occurrence.result
                )
                if (
                    in_place
                    and occurrence.this is thing
                    and not self.region.meets(site, occurrence)
                ):
                    return f", and it is changed on {at(site.node)} too"
        for site in self.script.log.of("call_unknown"):
            for occurrence in site:
                if occurrence.args is not None and any(
                    thing in given for given in occurrence.args.all()
                ):
                    return f": {at(site.node)} gives it to something that is not known"
        names = {name for name, values in thing.attrs.items() if carries(values)}
        if module:
            names = {attribute}
        for node in self.script.nodes:
            if (
                isinstance(node, ast.Attribute)
                and node.attr in names
                and isinstance(node.ctx, ast.Load)
                and not self.region.holds(node)
            ):
                found = self.script.values(node.value)
                mine = thing in found or module and any(isinstance(t, Unknown) for t in found)
                if mine and (why := self.use(node)):
                    return f": {why}"
        return ""

    def is_registered(self, attribute: str) -> bool:
        """Whether it may be a buffer or a parameter, which is loaded and moved in place."""
        sites = self.script.methods("register_buffer", "register_parameter")
        given = [const(o.args.get(0, "name")) for s in sites for o in s if o.args is not None]
        return ... in given or attribute in given

    def functions(self) -> list[ast.AST]:
        """The project's functions that run in the region."""
        found: dict[int, ast.AST] = {}
        if isinstance(self.region.scope, FUNCTIONS):
            found[id(self.region.scope)] = self.region.scope
        for frame in self.region.calls(self.script):
            found[id(frame.func.node)] = frame.func.node
        return list(found.values())

    def born_inside(self, thing: Thing | None) -> bool:
        made = getattr(thing, "made", None)
        node = getattr(thing, "node", None)
        return (isinstance(node, ast.AST) and self.region.holds(node)) or (
            isinstance(made, tuple) and self.region.reaches(made)
        )

    def local_names(self, thing: Thing | None) -> list[ast.Name]:
        """The variables of the scope (no parameters) that hold this container."""
        if not isinstance(thing, (Seq, Dict)):
            return []
        scope = self.region.scope
        names = [
            n
            for n in walk(scope)
            if isinstance(n, ast.Name) and any(t is thing for t in self.script.values(n))
        ]
        return [n for n in names if function_of(n) is scope and is_local(n)]

    # ------------------------------------------------------------------------------------------------ names
    def tainted(self) -> Iterator[ast.Name]:
        """The places that read a local variable which may hold something made here: bound in the region, or a container filled there."""
        region = self.region
        if region.whole:
            return
        for part in (n for statement in region.statements for n in walk(statement)):
            if (
                isinstance(part, ast.Name)
                and isinstance(part.ctx, ast.Store)
                and function_of(part) is region.scope
                and not self.adds_to_one_from_outside(part)
            ):
                yield from self.bound(part)
        for site, occurrence in region.sites(
            self.script, "append", "set_item", "tensor_write", "inplace", "set_attribute"
        ):
            root = root_of(site.node) if region.holds(site.node) else None
            for name in [root] if root is not None else self.local_names(occurrence.this):
                if function_of(name) is region.scope and is_local(name):
                    yield from self.filled(name, region.node)

    def bound(self, target: ast.AST) -> list[ast.Name]:
        """The places that read what is bound to ``target``, a name or a parameter."""
        name = target.arg if isinstance(target, ast.arg) else target.id  # type: ignore[attr-defined]
        return self.flow.definitions(target).uses(Definition(name, target))

    def adds_to_one_from_outside(self, name: ast.Name) -> bool:
        """``hits += ...`` in place, of a tensor that was made before the region: it stays one that autograd takes."""
        statement = parent_of(name)
        if not isinstance(statement, ast.AugAssign):
            return False
        site = self.script.log.at("augment", statement)
        old = [t for o in site for t in o.data["old"]] if site is not None else []
        origins = self.flow.definitions(name).origins(name)
        return (
            bool(old)
            and all(isinstance(t, Tensor) for t in old)
            and not any(self.region.holds(d.node) for d in origins if not d.is_augmented)
        )

    def filled(self, name: ast.Name, at: ast.AST) -> list[ast.Name]:
        """The places that read the object of a variable after ``at`` has put something into it."""
        variable = variables_of(name).of(name)
        return self.flow.definitions(at).uses_after(variable, at) if variable is not None else []

    def read(self, name: ast.Name) -> str:
        """What happens outside the region to what a variable holds where it is read."""
        if self.region.holds(name) or isinstance(name.ctx, ast.Del):
            return ""
        if isinstance(name.ctx, ast.Load):
            return self.use(name)
        return f"`{name.id}` is changed in place on {at(name)}" if self.is_tensor(name) else ""

    def is_tensor(self, node: ast.expr) -> bool:
        return any(isinstance(t, (Tensor, Unknown)) for t in self.script.values(node))

    # ------------------------------------------------------------------------------------------------ uses
    def use(self, expr: ast.expr) -> str:
        """Why the value of ``expr``, outside the region, may meet autograd; empty where it is only read."""
        if id(expr) in self.seen:
            return ""
        self.seen.add(id(expr))
        values = self.script.values(expr)
        if values and not carries(values):
            return ""
        if not values and not isinstance(expr, (ast.Starred, ast.Slice)):
            return "" if self.is_dead(expr) else f"{at(expr)} is not followed by the reader"
        parent = parent_of(expr)
        match parent:
            case ast.Attribute():
                return self.attribute(expr, parent)
            case ast.Subscript():
                if isinstance(parent.ctx, ast.Store):
                    added = isinstance(parent_of(parent), ast.AugAssign) and self.is_tensor(parent)
                    return (
                        f"`{_text(expr)}` is changed in place on {at(expr)}"
                        if added or self.is_tensor(expr)
                        else ""
                    )
                return self.operand(
                    parent, [p for p in (parent.value, parent.slice) if p is not expr]
                ) or self.use(parent)
            case ast.BinOp():
                why = self.operand(
                    parent, [p for p in (parent.left, parent.right) if p is not expr]
                )
                return why or ("" if self.is_plain(expr) else self.use(parent))
            case ast.Compare():
                return ""
            case ast.IfExp() if parent.test is expr:
                return ""
            case ast.NamedExpr():
                return self.use(parent) or self.target(parent.target, parent)
            case ast.keyword():
                call = parent_of(parent)
                return (
                    self.argument(expr, call)
                    if isinstance(call, ast.Call)
                    else f"{at(expr)} is not understood"
                )
            case ast.Call():
                return self.argument(expr, parent)
            case ast.Assign():
                return next((why for t in parent.targets if (why := self.target(t, parent))), "")
            case ast.AnnAssign() | ast.AugAssign():
                return self.target(parent.target, parent)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is expr:
                return self.target(parent.target, parent)
            case ast.Return():
                return self.returned(parent)
        if isinstance(parent, ENDS):
            return ""
        if isinstance(parent, CLIMB):
            return self.use(parent)
        return f"{at(expr)} uses it in a way that is not understood"

    def is_dead(self, expr: ast.expr) -> bool:
        """The script never comes here (and the reader has not given up before)."""
        return not any("too large" in note for note in self.script.notes)

    def operand(self, parent: ast.expr, parts: list[ast.expr]) -> str:
        """An operation whose other operand carries a gradient saves this one for the backward.

        What a model made counts as such also where gradients are off: whether they are may be changed in the same rewrite.
        """
        for part in parts:
            for tensor in self.script.values(part):
                if isinstance(tensor, Unknown) and function_of(parent) is not self.region.scope:
                    return f"{at(parent)} combines it with something that is not known"
                if (
                    isinstance(tensor, Tensor)
                    and tensor.dtype != "int"
                    and (tensor.grad or tensor.models or tensor.param)
                ):
                    return f"{at(parent)} combines it with a tensor that may need gradients"
        return ""

    def attribute(self, expr: ast.expr, parent: ast.Attribute) -> str:
        call, name = call_of(parent), parent.attr
        if name in FACTS:
            return ""
        if name in COUNTED and self.is_tensor(expr):
            return f"{at(expr)} asks in which mode it was made"
        if call is None:
            return self.use(parent)
        if name in NUMBERS or name in KEEPERS and not self.is_tensor(expr):
            return ""
        if name == "backward" or name == "requires_grad_":
            return f"{at(expr)} needs its gradient"
        if name.endswith("_") and not name.endswith("__"):
            return f"`{_text(expr)}` is changed in place on {at(expr)}"
        why = self.operand(call, [*call.args, *(k.value for k in call.keywords)])
        return why or ("" if name in FRESH and self.is_plain(expr) else self.use(call))

    def is_plain(self, expr: ast.expr) -> bool:
        """Certainly a tensor or a number: what is computed of it outside is a tensor like any other."""
        return all(isinstance(t, (Tensor, Const, Num)) for t in self.script.values(expr))

    def argument(self, expr: ast.expr, call: ast.AST | None) -> str:
        assert isinstance(call, ast.Call)
        others = [a for a in (*call.args, *(k.value for k in call.keywords)) if a is not expr]
        callees = self.script.values(call.func)
        for thing in callees:
            if isinstance(thing, Ref) and thing.name in READS:
                continue
            if why := self.passed(thing, expr, call, others):
                return why
        return "" if callees else f"{at(expr)} is not followed by the reader"

    def passed(self, thing: Thing, expr: ast.expr, call: ast.Call, others: list[ast.expr]) -> str:
        """``expr`` is an argument of a call of ``thing``."""
        text = _text(call.func)
        if isinstance(thing, Ref):
            if (
                thing.name.rsplit(".", 1)[-1] in ("Parameter", "Buffer", "from_pretrained")
                or thing.name == "builtins.setattr"
            ):
                return f"{at(expr)} makes it a part of an object"
            if thing.name.startswith("torch.") and _writes(thing.name, call):
                return f"`{text}` changes it in place ({at(expr)})"
            if thing.name.startswith("torch.") and any(
                isinstance(t, Ext) for t in self.script.values(call)
            ):
                return f"`{text}` keeps it ({at(expr)})"
            if thing.name.split(".")[0] in PASS_ON:
                return f"`{text}` passes it on ({at(expr)})"
            if thing.name in CHOOSES:
                return self.use(call)
            if (mine := _in_turn(thing.name, expr, call)) is not None:
                return self.target(mine, call)
            fresh = thing.name.startswith("torch.") and thing.name.rsplit(".", 1)[-1] in FRESH
            return self.operand(call, others) or ("" if fresh else self.use(call))
        if isinstance(thing, Method):
            if isinstance(thing.this, (Seq, Dict)):
                return self.stored(call)
            if isinstance(thing.this, Tensor):
                return (
                    self.operand(call, [*others, call.func.value])
                    if isinstance(call.func, ast.Attribute)
                    else ""
                )
            if is_module(thing.this):
                return f"`{text}` gets it on {at(expr)}"
            if isinstance(thing.this, Unknown):
                return f"`{text}` gets it on {at(expr)}, and is not known: {thing.this.why}"
            return self.use(call)
        if isinstance(thing, (Func, Bound)) or isinstance(thing, Inst) and code_of(thing):
            found = [self.parameter(callee, expr, call) for callee in code_of(thing)]
            plain = [p for p in found if p is not None]
            gets = f"{text}() gets it on {at(expr)}"
            return (
                gets
                if len(plain) < len(found)
                else self.first(n for p in plain for n in self.bound(p))
            )
        if is_loss(thing):
            return self.operand(call, others)
        if isinstance(thing, Ext) and thing.name in names.ACTIVATIONS:
            return self.operand(call, others) or self.use(call)
        if isinstance(thing, Unknown):
            return f"`{text}` gets it on {at(expr)}, and is not known: {thing.why}"
        kind = "a class" if isinstance(thing, (Cls, Partial)) else "an object"
        return f"`{text}` ({kind}) gets it on {at(expr)}"

    def stored(self, call: ast.Call) -> str:
        """It is put into a container."""
        return self.put(root_of(call), call, f"{at(call)} keeps it")

    def put(self, root: ast.Name | None, at: ast.AST, keeps: str) -> str:
        """It becomes a part of what ``root`` holds; ``keeps`` is the reason where that may be more than a variable."""
        if root is None or is_parameter(owner(root) or function_of(root), root.id):
            return keeps
        return self.first(self.filled(root, at))

    def first(self, names: Iterable[ast.Name]) -> str:
        return next((why for n in names if (why := self.read(n))), "")

    def target(self, target: ast.expr, place: ast.AST) -> str:
        """It is bound to ``target``."""
        if isinstance(target, ast.Name):
            return self.first(self.bound(target))
        if isinstance(target, (ast.Tuple, ast.List)):
            return next((why for t in target.elts if (why := self.target(t, place))), "")
        if isinstance(target, ast.Starred):
            return self.target(target.value, place)
        keeps = f"`{_text(target)}` keeps it ({at(target)})"
        if isinstance(target, ast.Subscript):
            return self.put(root_of(target), place, keeps)
        owners = (
            self.script.values(target.value) if isinstance(target, ast.Attribute) else frozenset()
        )
        return (
            ""
            if owners and not any(self.keeper(t, getattr(target, "attr", "")) for t in owners)
            else keeps
        )

    def returned(self, node: ast.Return) -> str:
        """A result that holds a tensor is followed to the places that call the function."""
        site = self.script.log.at("return", node)
        if site is None or not any(carries(o.result) for o in site):
            return ""
        function = function_of(node)
        leaves = f"{getattr(function, 'name', 'a lambda')}() returns a tensor ({at(node)})"
        if (
            not isinstance(function, ast.FunctionDef)
            or is_generator(function)
            or self.calls.complete(function)
        ):
            return leaves
        return next(
            (
                f"{leaves}: {why}"
                for c in self.calls.sites(function)
                if not self.region.holds(c) and (why := self.use(c))
            ),
            "",
        )

    def parameter(self, callee: Callee, expr: ast.expr, call: ast.Call) -> ast.arg | None:
        """The parameter that gets ``expr``; None where that is not plain."""
        function = callee.function
        if (
            not isinstance(function, ast.FunctionDef)
            or is_generator(function)
            or self.calls.is_decorated(function)
        ):
            return None
        return next(
            (p for p in parameters(function) if self.calls.argument(call, callee, p.arg) is expr),
            None,
        )


# ------------------------------------------------------------------------------------------------ small questions
def root_of(node: ast.AST) -> ast.Name | None:
    """The variable at the bottom of ``x.append(...)``, ``x[0][i]``; none where an attribute of an object is between."""
    if is_method(node):
        node = node.func.value
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _in_turn(name: str, expr: ast.expr, call: ast.Call) -> ast.expr | None:
    """The variable that gets the elements of ``expr`` in ``for x, y in zip(expr, other)``."""
    loop = parent_of(call)
    if name != "builtins.zip" or not isinstance(loop, (ast.For, ast.comprehension)):
        return None
    plain = [a for a in call.args if not isinstance(a, ast.Starred)]
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    if loop.iter is not call or len(names) != len(call.args) or len(plain) < len(names):
        return None
    mine = names[call.args.index(expr)] if expr in call.args else None
    return None if isinstance(mine, ast.Starred) else mine


def ends_with_call(node: ast.AST, region: Region) -> bool:
    """It goes into a variable of a function that the region calls, which can hand it on by its result only."""
    root = root_of(node.target if isinstance(node, ast.AugAssign) else node)
    return (
        root is not None
        and not region.holds(node)
        and not isinstance(function_of(root), ast.Module)
        and is_local(root)
    )


def _writes(name: str, call: ast.Call) -> bool:
    """``torch.clamp_(x, 0)``, ``F.relu(x, inplace=True)``, ``F.dropout(x, 0.5, True, True)``, ``torch.exp(x, out=x)``."""
    flags = [a for a in call.args[1:] if not isinstance(a, ast.Constant) or a.value is True]
    placed = (
        name.startswith("torch.nn.functional.")
        and len(call.args) > 1
        and bool(flags)
        and "dropout" in name
    )
    return (
        is_in_place(name, flags=True)
        or placed
        or any(k.arg in ("inplace", "out", None) for k in call.keywords)
    )


def _stays_normal(occurrence: Occurrence) -> bool:
    """Numbers are written into a tensor: one that was made before stays a tensor as autograd takes them, whatever the mode is now."""
    return isinstance(occurrence.this, Tensor) and occurrence.data.get("name") != "set_"


def _is_computed(node: ast.AST) -> bool:
    """``x.sum().mul_(2)``: what is changed in place has just been computed, and nothing else holds it."""
    made = node.func.value if is_method(node) else None
    return is_method(made) and made.func.attr in FRESH


def _text(node: ast.AST) -> str:
    return source_of(node).segment(node).split("\n")[0]
