"""Who touches gradients besides the optimizer: reads, writes, hooks, and whatever is given
something that has gradients.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.facts.optimizers import fused_with_momentum
from autofast.facts.parts import parts_of
from autofast.facts.scaler import Event, is_none_test
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import taken_by
from autofast.flow.holders import ADDERS, FOLLOWED, Holders
from autofast.flow.program import Flow, definitions_at
from autofast.model.calls import arguments_of, is_name, short_name, unstarred
from autofast.model.contents import each_once, with_contents, without_wrappers
from autofast.model.events import CallFrame
from autofast.model.kinds import is_module, is_optimizer
from autofast.model.names import first_part, last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import ancestors, at, contains_kind, enclosing, function_of, parent_of
from autofast.model.syntax import (
    DEFS,
    SIMPLE,
    TAKERS,
    VARIABLES,
    is_attribute,
    is_constant,
    is_stored,
    is_text,
)
from autofast.model.values import (
    OBJECTS,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Reason,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    any_of,
    begins,
    const,
    is_weight,
)
from autofast.rule import Refusal

HOOKS = wordset("""register_hook register_post_accumulate_grad_hook register_backward_hook
    register_full_backward_hook register_full_backward_pre_hook register_module_backward_hook
    register_module_full_backward_hook register_module_full_backward_pre_hook
    register_multi_grad_hook register_prehook register_comm_hook""")
FACTS = wordset(
    "shape dtype device is_sparse layout is_cuda ndim numel size dim is_contiguous stride"
)
ZEROING = wordset("zero_ detach_ requires_grad_")
DIFFERENTIATES = (
    "torch.autograd.grad",
    "torch.autograd.functional.",
    "torch.func.",
    "torch.autograd.gradcheck",
)
# with apex there is no scaler, but where it goes
HARMLESS = (
    *"torch. builtins. math. time. logging. tqdm. os. sys. copy. itertools. functools. collections.".split(),
    *"apex.amp.initialize apex.amp.scale_loss apex.amp.master_params".split(),
)


def _has_backward(script: Script, node: ast.ClassDef) -> bool:
    """Whether a class, or one that extends it, may say how it is differentiated: a Function without
    that (an old ``Detect``) never is.
    """
    own = {getattr(s, "name", "") for s in node.body}
    own |= {n.id for s in of_kind(node.body, ast.Assign) for n in of_kind(s.targets, ast.Name)}
    if own & {"backward", "vjp", "setup_context"} or node.decorator_list:
        return True
    others = script.each(ast.ClassDef)
    return any(
        isinstance(t, Cls) and t.node is node
        for other in others
        for base in other.bases
        for t in script.values(base)
    )


def against_scaler(script: Script) -> str:
    """A way in which gradients are computed, seen, changed or used that does not go with a scaler;
    empty where there is none.
    """
    if sites := script.calls("builtins.exec"):
        return f"exec() on {at(sites[0])} may run steps that are not seen here"
    for site in script.calls("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"):
        if any(const(o.args.get(0, "mode")) is not False for o in site):
            return f"{at(site)} makes gradients that overflow an error, and a scaler finds its scale by overflows"
    for node in script.analysis(_nodes):
        if isinstance(node, ast.Attribute):
            # a runner of the project may have a `register_hook` of its own
            if node.attr in HOOKS and not script.must_be(node, Bound):
                return f"{node.attr}() on {at(node)} would get scaled gradients"
            if node.attr == "watch" and any(_is_of(t, "wandb") for t in script.values(node)):
                return f"wandb.watch() on {at(node)} records gradients, which would be scaled"
        elif is_text(node) and node.value in HOOKS:
            return f"{node.value}() on {at(node)} would get scaled gradients"
        elif isinstance(node, ast.ClassDef) and any(
            begins(t, Ref, "torch.autograd.") for base in node.bases for t in script.values(base)
        ):
            if _has_backward(script, node):
                return f"{node.name} ({at(node)}) has a backward of its own, which would get scaled gradients"
    for kind, site in ((k, s) for (k, _), s in script.log.each()):
        if kind.startswith(DIFFERENTIATES) and not _is_dead(script, site.node):
            return f"{kind}() on {at(site)} computes gradients that nothing scales"
    return fused_with_momentum(script)


def gradient_hooks(script: Script) -> Iterator[ast.Attribute]:
    """Where code is set that sees gradients before an optimizer does."""
    asked = (n for n in script.each(ast.Attribute) if n.attr in HOOKS and script.reached(n))
    return (n for n in asked if not script.must_be(n, Bound))


def _is_of(thing: Thing, library: str) -> bool:
    """Whether something is a name of a library, an object of it, or a method of one."""
    while isinstance(thing, Method):
        thing = thing.this
    return isinstance(thing, (Ref, Ext)) and first_part(thing.name) == library


def gradient_accesses(script: Script, *, strict: bool = True) -> tuple[list[Event], list[Event]]:
    """What is done to ``.grad``: at its nodes, and after statements.

    Where it is no parameter's, :class:`Refusal` is raised; that is left out where this is not
    ``strict``.
    """
    found: list[Event] = []
    after: list[Event] = []
    if strict and (text := named_in_text(script, "grad")) is not None:
        raise Refusal("gets at gradients by name", text)
    for node in script.analysis(_nodes):
        if is_attribute(node, "grad"):
            if script.may_be(node, Ref, Func, Cls):
                continue  # torch.autograd.grad
            kind = use_of(node)
            if not kind:
                continue
            if kind == "zero":
                things = owning_optimizers(script, node.value)
                if isinstance(things, str):
                    continue
                place = _loop_over_parameters(script, node)
                if place is not None and things is not None:
                    after.append(Event("zero", place, things))
                elif things is not None or place is not None:
                    found.append(Event("zero", node, things, sure=False))
                continue
            things = owning_optimizers(script, node.value)
            if isinstance(things, str):
                if strict:
                    raise Refusal(f"reads {things}", node)
                continue
            found.append(Event(kind, node, things))
            if kind == "read":
                found += [Event("read", n, things) for n in _aliases(script, node, strict)]
        elif isinstance(node, ast.Call) and strict:
            if (event := _foreign(script, node)) is not None:
                found.append(event)
    return found, after


BY_NAME = tuple("getattr setattr eval exec attrgetter methodcaller".split())


def named_in_text(script: Script, attribute: str) -> ast.AST | None:
    """A call that gets at an attribute, or a method of that name, by a text: ``getattr(p,
    "grad")``.
    """
    for node in script.analysis(_nodes):
        if isinstance(node, ast.Call) and short_name(node.func) in BY_NAME:
            said = " ".join(str(a.value) for a in node.args if isinstance(a, ast.Constant))
            if re.search(rf"(?<!\w)_?{attribute}_?\b", said):
                return node
    return None


def use_of(node: ast.Attribute) -> str:
    """``read``, ``write`` or ``zero``; empty where nothing depends on the values."""
    parent = parent_of(node)
    if isinstance(node.ctx, ast.Del):
        return "zero"
    if is_stored(node):
        if isinstance(parent, ast.Assign) and is_nothing(parent.value):
            return "zero"
        return "read" if isinstance(parent, ast.AugAssign) else "write"
    if is_none_test(node):
        return ""
    while isinstance(parent, ast.Attribute):
        if parent.attr in (FACTS | ZEROING):
            return "zero" if parent.attr == "zero_" else ""
        if parent.attr != "data":
            break
        parent = parent_of(parent)
    return "read"


def is_nothing(value: ast.expr) -> bool:
    """``None``, or zeros: what leaves no gradient."""
    if isinstance(value, ast.IfExp):
        return is_nothing(value.body) and is_nothing(value.orelse)
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute):
            name = value.func.attr
        else:
            name = getattr(value.func, "id", "")
        return name in ("zeros_like", "zeros")
    return is_constant(value, None)


def owning_optimizers(script: Script, expr: ast.expr) -> frozenset[int] | None | str:
    """The optimizers (ids) whose parameter ``expr`` is; None where it is one, of which is not
    known; else, in words, what it is.
    """
    if groups := _of_groups(script, expr):
        return groups
    mine = frozenset(
        t
        for t in script.values(expr)
        if not (isinstance(t, Unknown) and t.reason is Reason.UNDEFINED)
    )
    words = f"the gradient of `{ast.unparse(expr)}`, which is not known to be a parameter"
    if not surely(is_weight(t) for t in mine):
        return _of_part(script, expr) or words
    if (
        isinstance(expr, ast.Name)
        and expr.id in free_parameters(script)
        and not _given(script, expr.id)
    ):
        return words
    models = _models_of(script, expr)
    if not models:
        return None
    ids: set[int] = set()
    for optimizer in script.optimizers:
        if models & {*parts_of(*optimizer.params), *map(id, optimizer.things)}:
            ids |= {id(t) for t in optimizer.things}
    if not ids and all(o.params for o in script.optimizers):
        return f"the gradient of `{ast.unparse(expr)}`, which no optimizer updates"
    return frozenset(ids) or None


def _of_groups(script: Script, expr: ast.expr) -> frozenset[int]:
    """The optimizers in ``for group in optimizer.param_groups: for expr in group["params"]``."""
    found: list[Thing] = []
    for over in _loops_for(script, expr) if isinstance(expr, ast.Name) else ():
        match over:
            case ast.Subscript(value=ast.Name() as group, slice=ast.Constant(value="params")):
                for groups in _loops_for(script, group):
                    if not is_attribute(groups, "param_groups"):
                        return frozenset()
                    found += script.values(groups.value)
            case _:
                return frozenset()
    return frozenset(map(id, found)) if all(is_optimizer(t) for t in found) else frozenset()


def _of_part(script: Script, expr: ast.expr) -> frozenset[int]:
    """The optimizers of ``net`` in ``last = list(net.children())[-1]``, ``for expr in
    last.parameters()``.
    """
    found: set[int] = set()
    for over in _loops_for(script, expr) if isinstance(expr, ast.Name) else ():
        match over:
            case ast.Call(
                func=ast.Attribute(value=ast.Name() as part, attr="parameters" | "named_parameters")
            ):
                made = script.analysis(Flow).value(part)
                if made is None:
                    return frozenset()
                models = _models_of(script, made)
                mine = [o for o in script.optimizers if models & parts_of(*o.params).keys()]
                if not mine or len(models - set().union(*(parts_of(*o.params) for o in mine))):
                    return frozenset()
                found |= {id(t) for o in mine for t in o.things}
            case _:
                return frozenset()
    return frozenset(found)


def _models_of(script: Script, expr: ast.expr) -> set[int]:
    """The models (and optimizers) that a parameter is taken from, where the code around says so."""
    found: set[int] = set()
    todo: list[ast.expr] = [expr]
    for part in each_once(todo):
        for node in ast.walk(part):
            if not isinstance(node, VARIABLES):
                continue
            for thing in script.values(node):
                if isinstance(thing, OBJECTS) and is_module(thing):
                    found |= {id(t) for t in without_wrappers(thing)}
                elif is_optimizer(thing):
                    found.add(id(thing))
            if isinstance(node, ast.Name):
                todo += _loops_for(script, node)
    return found


def _loops_for(script: Script, name: ast.Name) -> list[ast.expr]:
    """What the loops and comprehensions go over that gave a variable its value; none where
    something else may have.
    """
    takers = [taken_by(d.node)[0] for d in definitions_at(script, name)]
    loops = [taker.iter for taker in takers if isinstance(taker, TAKERS)]
    return loops if len(loops) == len(takers) else []


def _loop_over_parameters(script: Script, node: ast.AST) -> ast.stmt | None:
    """The outermost loop around that goes over parameters, where nothing but conditions stand
    between.
    """
    found: ast.stmt | None = None
    for outer in ancestors(node):
        if isinstance(outer, ast.For):
            if not any(_gives_parameters(script, n) for n in ast.walk(outer.iter)):
                break
            found = outer
        elif not isinstance(outer, (ast.If, *SIMPLE, ast.expr)):
            break
    return found


GIVES = ("parameters", "named_parameters", "param_groups")


def _gives_parameters(script: Script, node: ast.AST) -> bool:
    """``model.parameters()``, ``group["params"]``, or a variable that holds parameters."""
    if is_attribute(node, *GIVES):
        return True
    if isinstance(node, ast.Subscript):
        return bool(script.constant(node.slice) == "params")
    found = with_contents(script.values(node)) if isinstance(node, VARIABLES) else ()
    return any(t.param == "param" for t in of_kind(found, Tensor))


def free_parameters(script: Script) -> set[str]:
    """Variables that a Parameter is made for, outside of any model."""
    return script.analysis(_free_parameters)


def _free_parameters(script: Script) -> set[str]:
    sites = script.calls("torch.nn.Parameter")
    outer = [enclosing(s.node, ast.Assign) for s in sites]
    return {t.id for a in outer if a is not None for t in a.targets if isinstance(t, ast.Name)}


def _given(script: Script, name: str) -> bool:
    return any(is_name(n, name) for o in script.optimizers for n in ast.walk(o.node))


def _aliases(script: Script, node: ast.expr, strict: bool) -> list[ast.Name]:
    """The places that use a gradient through a variable which it is kept in. A backward may have
    changed it by then.
    """
    holders = script.analysis(Holders)
    for holder in holders.ever(node) if strict else ():
        if holder.how in FOLLOWED and contains_kind(holder.node, ast.Attribute):
            raise Refusal(f"keeps gradients in `{ast.unparse(holder.node)}`", node)
    return [n for n in of_kind(holders.mentions(node), ast.Name) if not _only_asks(n)]


def _only_asks(name: ast.Name) -> bool:
    """``g is None``, ``g.shape``, ``grads.append(h)``: nothing of the gradient itself is read."""
    up = parent_of(name)
    return is_none_test(name) or is_attribute(up, *ADDERS, *FACTS)


# ----------------------------------------------------------------- calls that may look at gradients
def _foreign(script: Script, call: ast.Call) -> Event | None:
    """A call of something outside the project that is given a model, its parameters or an
    optimizer.
    """
    callees = script.called(call)
    if not callees or all(_is_harmless(t) for t in callees):
        return None
    ids: set[int] = set()
    for given in arguments_of(call):
        for thing in with_contents(script.values(unstarred(given))):
            for optimizer in script.optimizers:
                if thing in optimizer.things:
                    if any_of(callees, Unknown):
                        raise Refusal(
                            f"what `{ast.unparse(call.func)}` on {at(call)} does with the optimizer is not known"
                        )
                    ids.add(id(thing))
                elif any(
                    m in without_wrappers(q)
                    for m in without_wrappers(thing)
                    for q in optimizer.params
                ) or (is_weight(thing)):
                    ids |= {id(t) for t in optimizer.things}
    return Event("read", call, frozenset(ids)) if ids else None


def _is_harmless(callee: Thing) -> bool:
    """A function of the project (which is followed), of Python or of torch, or a constructor."""
    if isinstance(callee, (Func, Bound, Cls, Inst, Const)):
        return True
    if isinstance(callee, Ref):
        return callee.name.startswith(HARMLESS) or last_part(callee.name)[:1].isupper()
    if isinstance(callee, Method):
        this = callee.this
        return isinstance(this, (Seq, Dict, Tensor, Const)) or (
            isinstance(this, (Ext, Ref)) and this.name.startswith(HARMLESS)
        )
    return begins(callee, Ext, HARMLESS)


# -------------------------------------------------------------------------------- what is looked at
def _nodes(script: Script) -> list[ast.AST]:
    """``script.analysis(_nodes)``: the nodes of all code of the project that something may run."""
    kinds = (ast.Attribute, ast.Call, ast.Constant, ast.ClassDef)
    return [n for n in script.nodes if isinstance(n, kinds) and not _is_dead(script, n)]


def _is_dead(script: Script, node: ast.AST) -> bool:
    """In a function that nothing calls or names, and in which nothing is trained."""
    dead = script.analysis(_dead)
    function = function_of(node)
    while not isinstance(function, ast.Module):
        if id(function) in dead:
            return True
        function = function_of(function)
    return False


def _dead(script: Script) -> set[int]:
    """The functions that nothing runs, by all that is known: ``backward`` of an autograd
    Function is run by torch.
    """
    calls = script.analysis(CallGraph)
    trained = script.log.of(".backward", ".manual_backward")
    trains = {
        f.func.node for site in trained for o in site for f in o.stack if isinstance(f, CallFrame)
    }
    nodes = (n for n in script.nodes if isinstance(n, DEFS))
    named = (
        n
        for n in nodes
        if not (n.name.startswith("__") or n.name in ("forward", "backward") or n.decorator_list)
    )
    return {id(n) for n in named if n not in trains and calls.is_unused(n)}
