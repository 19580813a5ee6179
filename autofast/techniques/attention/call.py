"""The call of ``scaled_dot_product_attention`` that stands for attention that is written out, and
what speaks against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.edit.edits import Before, Edits, Holes, Remove, Replace, Rewrite
from autofast.facts.attribute_values import lasting_value
from autofast.facts.dimensions import dimension_count, may_be_vector
from autofast.facts.double_backward import functional_derivative, gradients_of_gradients
from autofast.flow.changes import may_change
from autofast.flow.positions import statements_beside
from autofast.flow.program import Flow
from autofast.flow.scopes import binds
from autofast.model.calls import is_name
from autofast.model.names import FORWARD_HOOKS, first_part, last_part
from autofast.model.script import Script
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.source import (
    ancestors,
    at,
    enclosing,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    statements_around,
)
from autofast.model.syntax import FUNCTIONS, is_attribute, is_stored
from autofast.model.values import Ext, is_named, one
from autofast.rule import Effect, Refusal
from autofast.techniques.attention.masks import is_causal, is_infinite, mask_text, may_differ
from autofast.techniques.attention.written_out import Attention, Scale
from autofast.write.imports import functional_in
from autofast.write.spelling import torch_in

LONG = 88  # characters; more do not go into one line
ROOTS = wordset("math.sqrt numpy.sqrt")
OTHER_FLOATS = (".half", ".double", ".bfloat16", "apex.amp.initialize", "torch.set_default_dtype")


def against_script(script: Script) -> str:
    """Why no attention of a script should become one call; empty where nothing speaks against
    it.
    """
    if (node := gradients_of_gradients(script)) is not None:
        return f"{at(node)} computes gradients of gradients, which fused attention has not"
    if (found := functional_derivative(script)) is not None:
        return f"{at(found[1])} differentiates by {found[0]}, which fused attention may not know"
    if (node := _scripted(script)) is not None:
        return f"{at(node)} compiles by TorchScript, which tells numbers apart"
    if script.deterministic:
        return f"{at(script.deterministic[0])} asks for deterministic algorithms, and the backward of fused attention is none"
    return ""


def _scripted(script: Script) -> ast.AST | None:
    """The first use of ``torch.jit.script``, also as a decorator."""
    for site in script.calls("torch.jit.script"):
        return site.node
    for source in script.sources:
        for node in source.nodes if "jit" in source.text else ():
            for decorator in getattr(node, "decorator_list", ()):
                if script.library_name(decorator) == "torch.jit.script":
                    return node
    return None


def one_call(script: Script, found: Attention) -> tuple[Edits, Effect]:
    """The edits that put one call in the place of a whole attention, and their effect.

    Raises :class:`Refusal` where the call would not be the same.
    """
    source = source_of(found.product)
    name, imports = functional_in(source)
    holes = {"q": found.query, "k": found.key, "v": found.value}
    more, less = _dimensions(script, found)
    words = ["{" + n + "}" + found.turns.get(n, "") + more for n in holes]
    effect = Effect.ROUNDING
    _not_hidden(found.product, first_part(name))
    for side in (found.query, found.value):
        if may_be_vector(script, side):
            raise Refusal(f"`{ast.unparse(side)}` has one dimension, and the call needs two")
    mask = found.mask
    filled: Edits = ()
    if mask is not None and found.scales_mask and found.scale is not None:
        if not (is_infinite(script, mask) and _is_positive(script, found.scale.by)):
            raise Refusal(f"the mask is scaled, too ({at(found.scale.by)})")
    causal = mask is not None and is_causal(script, found)
    if mask is not None and not causal:
        _one_dtype(script)
        text, quoted = mask_text(script, mask)
        torch, needed = torch_in(source)
        if "TORCH" in text:
            text, imports = text.replace("TORCH", torch), (*imports, *needed)
            _not_hidden(found.product, torch)
        if mask.fill is not None:  # below a condition
            filled, text = _kept_apart(mask.fill, text, quoted)
        else:
            holes |= quoted
        words.append(f"attn_mask={text}")
        effect = Effect.RECIPE if may_differ(script, mask) else effect
    if found.dropout is not None and (
        text := _dropout(script, found.dropout, holes, found.may_drop_nothing)
    ):
        words.append(f"dropout_p={text}")
        effect = max(effect, Effect.SAMPLING)
    if causal:
        words.append("is_causal=True")
    if (text := _scale(script, found, holes)) != "default":
        words.append(f"scale={text}")
    gone = list(dict.fromkeys([*found.statements, *_only_for_default(script, found, holes)]))
    _nothing_between(script, found, gone, holes.values())
    if any(
        c is not None and not script.library_function(c) for c in (found.softmax, found.dropout)
    ):
        no_hooks(script)
    call = f"{name}.scaled_dot_product_attention({', '.join(words)})"
    call += less + found.turns.get("product", "")
    unread = (Rewrite(weights, "None") for weights in found.unread)
    edits = (*_in_place(found.product, call, holes), *unread)
    return (*imports, *filled, *edits, *(Remove(s) for s in gone)), effect


FUSED = 4  # dimensions; tensors of others are computed step by step, as they were


def _dimensions(script: Script, found: Attention) -> tuple[str, str]:
    """What makes four dimensions of the query, the key and the value, and what takes that back from
    the result: the fused kernels take no others (``sdp_utils``, ``check_tensor_shapes``).
    """
    sides = (found.query, found.key, found.value)
    known = {dimension_count(script, side) for side in sides} - {None}
    names = (script.operation(n)[0] for n in nodes_in(found.product, ast.Call))
    if any(last_part(name) in ("bmm", "baddbmm") for name in names):
        known.add(3)  # which these take
    count = one(known, FUSED) or FUSED
    if count > FUSED:
        raise Refusal(f"no fused kernel takes {count} dimensions", found.query)
    missing = FUSED - count
    if not missing:
        return "", ""
    return f"[{', '.join(['None'] * missing)}]", f"[{', '.join(['0'] * missing)}]"


def _kept_apart(fill: ast.stmt, text: str, quoted: Holes) -> tuple[Edits, str]:
    """A variable for the mask that ``if masked: scores.masked_fill_(mask, -inf)`` fills in."""
    gate = enclosing(fill, ast.If)
    assert gate is not None
    name = source_of(fill).fresh("bias" if "where" in text else "keep")
    return (Before(gate, f"{name} = None"), Replace(fill, f"{name} = {text}", quoted)), name


def _in_place(product: ast.expr, call: str, holes: Holes) -> Edits:
    """The call where the product stands, or, with methods behind it that make a long line of both,
    in a statement before them.
    """
    statement = statement_of(product)
    match statement:
        case ast.Return(value=ast.Tuple()):  # and None for the weights
            name = source_of(product).fresh("attended")
            return Before(statement, f"{name} = {call}", holes), Rewrite(product, name)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_chain(value, product):
            filled = call.format(**{hole: ast.unparse(e) for hole, e in holes.items()})
            longer = len(filled) - len(ast.unparse(product))
            read = any(is_name(n, name) for n in ast.walk(value))
            if statement.col_offset + len(ast.unparse(statement)) + longer > LONG and not read:
                return Before(statement, f"{name} = {call}", holes), Rewrite(product, name)
    return (Rewrite(product, call, holes),)


def _is_chain(value: ast.expr, product: ast.expr) -> bool:
    """Whether ``value`` is methods of the product: ``(weights @ v).transpose(1, 2).reshape(b, t,
    c)``.
    """
    match value:
        case ast.Call(func=ast.Attribute(value=inner)):
            return inner is product or _is_chain(inner, product)
    return False


# ---------------------------------------------------------------------------------------- arguments
def _dropout(script: Script, call: ast.Call, holes: Holes, may_be_none: bool) -> str:
    """``dropout_p``: a number that holds in training alone; empty where nothing is dropped."""
    keywords = {k.arg: k.value for k in call.keywords}
    if script.library_function(call):  # the function
        given = [*call.args[1:], None, None]
        p, training = given[0] or keywords.get("p"), given[1] or keywords.get("training")
        inplace = len(call.args) > 3 or "inplace" in keywords
        if p is None or inplace:
            raise Refusal("does not say how much it drops, or drops in place", call)
        if script.constant(p) == 0:
            return ""
        holes["p"] = p
        if training is None or script.constant(training) is True:
            return "{p}"
        holes["training"] = training
        return "{p} if {training} else 0.0"
    if call.keywords or len(call.args) != 1:
        raise Refusal("gives its dropout more than the weights", call)
    layer = call.func
    holes["layer"] = layer
    match layer:
        case ast.Attribute(value=ast.Name() as module) if not _switched_apart(script):
            holes["module"] = module
            return "{layer}.p if {module}.training else 0.0"
    there = "{layer} is not None and " if may_be_none else ""
    return "{layer}.p if " + there + "{layer}.training else 0.0"


def _switched_apart(script: Script) -> bool:
    """Whether a layer of dropout may be in another mode than the module that it is part of."""
    switched = [o.this for site in script.methods("eval", "train") for o in site]
    return any(
        is_attribute(n, "training") and is_stored(n)
        for source in script.sources
        for n in (source.nodes if ".training" in source.text else ())
    ) or any(t is None or is_named(t, Ext, "torch.nn.Dropout") for t in switched)


def _scale(script: Script, found: Attention, holes: Holes) -> str:
    """``scale``; "default" where it is one by the root of the last dimension."""
    scale = found.scale
    if scale is None:
        return "1.0"
    if _is_default(script, found, scale):
        return "default"
    match scale.by:
        case ast.BinOp(left=one, op=ast.Div(), right=right) if (
            scale.divides and script.constant(one) == 1
        ):
            holes["scale"] = right
            return "{scale}"
    holes["scale"] = scale.by
    return "1 / {scale}" if scale.divides else "{scale}"


def _is_default(script: Script, found: Attention, scale: Scale) -> bool:
    by, divides = scale.by, scale.divides
    match by:
        case ast.BinOp(left=one, op=ast.Div(), right=right) if script.constant(one) == 1:
            by, divides = right, not divides
    match by:
        case ast.BinOp(left=base, op=ast.Pow(), right=power):
            wanted = 0.5 if divides else -0.5
            return script.constant(power) == wanted and _is_width(script, found, base)
        case ast.Call(func=func, args=[base], keywords=[]) if script.library_name(func) in ROOTS:
            return divides and _is_width(script, found, base)
    return False


def _is_width(script: Script, found: Attention, expr: ast.expr) -> bool:
    """Whether it is the size of the last dimension of the query or the key."""
    match expr:
        case ast.Name():
            values = script.analysis(Flow).values(expr)
            return surely(_is_width(script, found, v) for v in values)
        case ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[axis], keywords=[]):
            pass
        case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=axis):
            pass
        case _:
            return False
    flow = script.analysis(Flow)
    return script.constant(axis) == -1 and any(
        flow.is_same(tensor, side) for side in (found.query, found.key)
    )


def _is_positive(script: Script, expr: ast.expr) -> bool:
    match expr:
        case ast.Name():
            values = script.analysis(Flow).values(expr)
            return surely(v is not None and _is_positive(script, v) for v in values)
        case ast.Attribute():
            made = lasting_value(script, expr)
            return made is not None and _is_positive(script, made)
        case ast.BinOp(left=left, op=ast.Pow()):
            return _is_positive(script, left)
        case ast.BinOp(left=left, op=ast.Div() | ast.Mult(), right=right):
            return _is_positive(script, left) and _is_positive(script, right)
        case ast.Call(func=func):
            return script.library_name(func) in ROOTS
    number = script.constant(expr)
    return is_numeric(number) and number > 0


def _only_for_default(script: Script, found: Attention, holes: Holes) -> Iterable[ast.stmt]:
    """``d_k = query.size(-1)``, where nothing but the scale that is the default reads it."""
    if found.scale is None or "scale" in holes:
        return
    flow = script.analysis(Flow)
    for name in (n for n in nodes_in(found.scale.by, ast.Name)):
        for made in flow.reaching(name):
            alone = [u is name for u in flow.definitions(name).uses(made)] == [True]
            if alone and made.value is not None and isinstance(made.statement, ast.Assign):
                if made.statement.targets == [made.node] and _is_width(script, found, made.value):
                    yield made.statement


# --------------------------------------------------------------------------- what speaks against it
def _one_dtype(script: Script) -> None:
    """A mask of floats must have the dtype of the query, and a new one has the default."""
    for site in script.log.of("move_model", *OTHER_FLOATS):
        if site.kind != "move_model" or any(o.data.get("dtype") for o in site):
            raise Refusal("changes dtypes, and a mask must have the query's", site)


def _not_hidden(place: ast.AST, name: str) -> None:
    """The name of a module must mean it at the place, too."""
    for outer in ancestors(place):
        if isinstance(outer, FUNCTIONS) and binds(outer, name):
            raise Refusal(f"`{name}` is a variable here ({at(outer)})")


def no_hooks(script: Script) -> None:
    """Hooks see what layers are given and give, and these are no longer called, or give less.
    Raises :class:`Refusal`.
    """
    for site in script.methods(*FORWARD_HOOKS):
        raise Refusal("sets a hook, which may be on this layer", site)


def _but_filled(
    statement: ast.stmt, found: Attention, gone: list[ast.stmt], moved: ast.expr
) -> list[ast.AST]:
    """A statement without what fills the scores in it."""
    fill = found.mask.fill if found.mask is not None else None
    match statement:
        case ast.If(test=test, body=[*_, last]) if last in gone and (
            last in statements_around(moved) or moved in ast.walk(test)
        ):
            return []  # all else in it runs before what is moved, or leaves a mask that is none
        case ast.If(test=test, body=body) if fill in body:
            return [test, *(s for s in body if s is not fill)]
    return [statement]


def _nothing_between(
    script: Script, found: Attention, gone: list[ast.stmt], moved: Iterable[ast.expr]
) -> None:
    """What is quoted moves down to the product: nothing on the way may change it."""
    last = statement_of(found.product)
    here = statements_beside(last)
    if any(s not in here and parent_of(s) not in here for s in gone):
        raise Refusal(f"not all of it stands in the block of {at(last)}")
    for expr in moved:
        inner = list(statements_around(expr))
        first = next((n for n, s in enumerate(here) if s in inner), 0)
        left = [s for s in here[first : here.index(last)] if s not in gone]
        between = [part for s in left for part in _but_filled(s, found, gone, expr)]
        if (node := may_change(script, between, expr)) is not None:
            raise Refusal(f"may change `{ast.unparse(expr)}` on the way to the product", node)
