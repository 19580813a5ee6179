"""The edits of one block under autocast, and of the outputs that leave it.

How the fp32 form of what a model returns is written: of a tensor, of what holds some, of a part.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofast.edit.edits import After, Around, Before, Edit, Edits, Helper, Rewrite, Wrap
from autofast.edit.order import Rank
from autofast.facts.forwards import Region, outputs_of
from autofast.facts.model_mode import outputs_in_mode
from autofast.facts.precision.between import both_modes
from autofast.facts.precision.code import Code
from autofast.facts.precision.floats import is_float
from autofast.facts.precision.half_values import Half
from autofast.facts.precision.own_containers import change_elsewhere, gives_its_own
from autofast.facts.precision.products import Products, products
from autofast.model.calls import put_into
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ByNode, Nodes, at, source_of, statement_of
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, Dict, Num, Seq, Tensor, Thing, Values, of_kind
from autofast.model.values.thing import Row
from autofast.rule import Options
from autofast.techniques.precision.forms import Precision
from autofast.techniques.precision.probabilities import full_sigmoids, probabilities_of, returned
from autofast.write.neighbours import follows
from autofast.write.spelling import torch_in


def may_be_integers(script: Script, call: ast.Call, part: int | None = None) -> bool:
    """Whether the output of a model, or its element ``part``, may be a tensor of a batch, or one
    made for it, that no layer has changed, of any type.

    Such a tensor must not be cast to fp32: a loss that takes class indices does not take floats.
    """
    return any(
        _is_unchanged(t)
        for expr in returned(script, call, part)
        if not is_float(script, expr)
        for t in tensors_in(script.values(expr))
    )


def _is_unchanged(t: Tensor) -> bool:
    """Whether a tensor may be one of a batch, or made for it, that no layer has changed."""
    return t.dtype == "?" and bool(t.batch or t.made is not None) and not t.models and not t.grad


PART = "part"  # of what a model returns
HELD = "others may hold the list or dict that the model gives: .float() makes another one"
OTHER = (
    "{} changes it in place while something else holds it: .float() makes another tensor, "
    "let the model give .float() itself"
)
NONE = Const(None)
NO_CAST = wordset("int f64 complex")  # to fp32: it would lose what they have


def cast_of(script: Script, call: ast.Call, maybe: bool = False) -> str:
    """A template for the output: a tensor, or a tuple, list or dict of them; empty where it is not
    known to be one. With ``maybe``, parts may be None.
    """
    found = outputs_in_mode(script, call)
    if may_be_integers(script, call):
        return ""
    if not maybe and any(NONE in p for t in found for p in _parts(t) or ()):
        return ""
    return _form(found, "{}")


def is_cast_whole(script: Script, half: Half, call: ast.Call) -> bool:
    """Whether all that a call gives can be fp32 at once, in the call or below it."""
    below = isinstance(put_into(call), ast.Name) and casts_below(script, half, call)
    return gives_its_own(script, call) and bool(cast_of(script, call) or below)


def casts_below(script: Script, half: Half, call: ast.Call) -> list[Edit]:
    """``a = a.float()`` below ``a, b = model(x)`` for each part that must not be 16-bit; empty
    where one is not known to hold tensors. Or below ``a = model(x)``, where the model gives a
    tensor or something else.
    """
    stmt, target, found = statement_of(call), put_into(call), outputs_in_mode(script, call)
    if isinstance(target, ast.Name):
        if may_be_integers(script, call):
            return []
        cast = "" if _form(found, "{}") else _statement(target.id, found)
        return [After(stmt, cast, rank=Rank.AUTOCAST)] if cast else []
    tuples = [t.exact for t in of_kind(found, Seq) if t.exact is not None]
    if not isinstance(target, ast.Tuple) or not found or len(tuples) != len(found):
        return []
    names = of_kind(target.elts, ast.Name)
    if any(len(t) != len(target.elts) for t in tuples) or len(names) != len(target.elts):
        return []
    edits: list[Edit] = []
    for n, name in enumerate(names):
        if half.misuse_of_part(call, n, name):
            cast = _statement(name.id, frozenset().union(*(t[n] for t in tuples)))
            if not cast or may_be_integers(script, call, n):
                return []
            edits.append(After(stmt, cast, rank=Rank.AUTOCAST))
    return edits


def _statement(name: str, found: Values) -> str:
    """The statement that makes what a variable holds fp32; empty where that is not known."""
    held = found - {NONE}
    kinds = {_kind(t) for t in held} - {""}
    tensors = frozenset(t for t in held if not _kind(t))
    if kinds and tensors:  # a tuple in training, a tensor in evaluation
        form, other = _form(held - tensors, name), _form(tensors, name)
        cast = f"{form} if isinstance({name}, {next(iter(kinds))}) else {other}"
        cast = cast if form and other else ""
    else:
        cast = _form(held, name)
    if not cast or NONE not in found:
        return f"{name} = {cast}" if cast else ""
    return f"if {name} is not None:\n    {name} = {cast}"


def _form(found: Values, what: str) -> str:
    """The fp32 form of ``what``; empty where it is not known to be a tensor, or one kind of
    container of them.
    """
    if _all_floats(found):
        return f"{what}.float()"
    kinds = {_kind(t) for t in found}
    parts = [_parts(t) for t in found]
    if len(kinds) != 1 or not all(p and all(map(_floats_or_none, p)) for p in parts):
        return ""
    is_none = any(NONE in p for ps in parts for p in ps or ())
    part = f"{PART} if {PART} is None else {PART}.float()" if is_none else f"{PART}.float()"
    if any(isinstance(t, Seq) and t.names for t in found):  # of its own class, with fields
        return f"{what}._make({part} for {PART} in {what})" if what.isidentifier() else ""
    match kinds.pop():
        case "dict":
            return f"dict((name, {part}) for name, {PART} in {what}.items())"
        case "list":
            return f"[{part} for {PART} in {what}]"
    return f"tuple({part} for {PART} in {what})"


def _kind(thing: Thing) -> str:
    """What kind of container a thing certainly is; empty for any other thing."""
    match thing:
        case Seq(kind="tuple" | "list"):
            return thing.kind
        case Dict(open="", node=ast.Dict()):
            return "dict"
    return ""


def _parts(thing: Thing) -> Row | None:
    """What the elements of a container are, one by one or all together; None where that is not
    known.
    """
    if isinstance(thing, Seq) and _kind(thing):
        return thing.exact or (thing.any(),)
    if isinstance(thing, Dict) and _kind(thing) and not thing.rest:
        return tuple(
            frozenset(t for e in entries for t in e.values) for entries in thing.entries.values()
        )
    return None


# Of what holds tensors beside other things, or lists and dicts of such.
AS_FP32 = """\
def {name}(found):
    if isinstance(found, dict):
        return {{key: {name}(part) for key, part in found.items()}}
    if isinstance(found, (list, tuple)):
        return type(found)({name}(part) for part in found)
    is_half = {torch}.is_tensor(found) and found.dtype in ({torch}.float16, {torch}.bfloat16)
    return found.float() if is_half else found
"""


def _nested(call: ast.Call) -> tuple[str, Edits]:
    """A template for what holds tensors at any depth, and the function that it calls."""
    source = source_of(call)
    torch, needed = torch_in(source)
    name = source.fresh("as_fp32")
    return f"{name}({{}})", (*needed, Helper(source, name, AS_FP32.format(name=name, torch=torch)))


def _is_nested(found: Values, deeper: int = 4) -> bool:
    """Whether it is known to be of lists, tuples and dicts, with tensors and numbers in them."""
    return bool(deeper) and surely(_is_part(t, deeper) for t in found)


def _is_part(thing: Thing, deeper: int) -> bool:
    if isinstance(thing, Tensor):
        return thing.rank != "?"
    parts = None if getattr(thing, "names", ()) else _parts(thing)
    inside = frozenset[Thing]().union(*parts or ())
    return isinstance(thing, (Const, Num)) or (
        parts is not None and (not inside or _is_nested(inside, deeper - 1))
    )


def _floats_or_none(found: Values) -> bool:
    return found == {NONE} or _all_floats(found - {NONE})


def _all_floats(found: Values) -> bool:
    return surely(isinstance(t, Tensor) and t.rank != "?" and t.dtype not in NO_CAST for t in found)


KEY = "amp"  # of the scaler


@dataclass(eq=False)
class Block:
    """A region that autocast goes around, with the edits for it.

    ``keys`` name its forwards in findings: where one part of the training stays in fp32, all of it
    does, and no evaluation is other than it.
    """

    region: Region
    edits: Edits

    @property
    def keys(self) -> list[object]:
        return [(KEY, call) for call in self.region.forwards]


def block_edits(
    script: Script, options: Options, region: Region, precision: Precision, inside: Nodes
) -> Edits | str:
    """The edits that put a region under autocast; why there can be none. ``inside`` are the nodes
    of all such regions.
    """
    header, needed = precision.header(script, region.first)
    probabilities = probabilities_of(script, options)
    half = Half(script, inside, options.target, probabilities)
    casts: ByNode[tuple[ast.Call, str]] = {}
    named: list[Edit] = []
    for call in outputs_of(script, region):
        if why := half.misuse(call):
            cast = cast_of(script, call)
            parts = casts_below(script, half, call) if not cast or PART in cast else []
            if (parts or PART in cast) and not gives_its_own(script, call):
                return f"{why}, and {HELD}"
            if (changed := change_elsewhere(script, call)) is not None:
                return f"{why}, and {OTHER.format(at(changed))}"
            if parts:
                named += parts
            elif cast or (cast := cast_of(script, call, maybe=True)):
                casts[call] = call, cast
            elif any(map(_kind, found := outputs_in_mode(script, call))) and _is_nested(found):
                if not gives_its_own(script, call):
                    return f"{why}, and {HELD}"
                cast, helper = _nested(call)
                casts[call] = call, cast
                named += helper
            else:
                return f"{why}, and the model's output is no plain tensor that .float() could be called on"
    code = Code(script, region.parts, region.things)
    for sigmoid, edits in script.analysis(full_sigmoids).items():
        named += edits if sigmoid in probabilities.full & code.all else ()
    leaving = Products(script, code.all, options.target)
    for made in products(code):
        given = script.values(made)
        is_whole = surely(isinstance(t, Tensor) and t.dtype in NO_CAST for t in given)
        if not is_whole and made not in casts and (why := leaving.misuse(made)):
            if not _all_floats(given) or any(map(_is_unchanged, tensors_in(given))):
                return f"{why}, and the product is no plain tensor that .float() could be called on"
            named.append(Wrap(made, "{}.float()"))
    taken = set(region.hoisted)
    wraps = [Wrap(call, cast) for call, cast in casts.values() if call not in taken]
    return (
        *_around(region, header, {n: c for n, (_, c) in casts.items()}),
        *needed,
        *wraps,
        *named,
    )


def joined(script: Script, blocks: Sequence[Block]) -> list[Block]:
    """The blocks, those of one kind that stand beside each other as one."""
    found: list[Block] = []
    for block in blocks:
        one = next((b for b in found if _are_neighbours(script, b, block)), None)
        if one is None:
            found.append(block)
            continue
        (first, *above), (second, *below) = one.edits, block.edits
        assert isinstance(first, Around) and isinstance(second, Around)
        one.edits = (replace(first, last=second.last), *dict.fromkeys((*above, *below)))
        one.region = replace(
            one.region,
            last=block.region.last,
            forwards=[*one.region.forwards, *block.region.forwards],
        )
    return found


def _are_neighbours(script: Script, one: Block, other: Block) -> bool:
    """Whether nothing stands between two blocks that begin with the same line, and one block may
    hold both.
    """
    first, second = one.edits[0], other.edits[0]
    if not isinstance(first, Around) or not isinstance(second, Around):
        return False
    if one.region.trains != other.region.trains or not follows(first, second):
        return False
    parts = [*one.region.parts, *other.region.parts]
    return not both_modes(Code(script, parts, [*one.region.things, *other.region.things]))


def _around(region: Region, header: str, casts: ByNode[str]) -> Edits:
    if not region.hoisted:
        return (Around(region.first, region.last, header, rank=Rank.AUTOCAST),)
    fresh = source_of(region.first).fresh
    name = fresh("output", "model_output") if region.is_forward_only else fresh("loss", "step_loss")
    several = len(region.hoisted) > 1
    holes = {fresh(f"{name}_{n}") if several else name: e for n, e in enumerate(region.hoisted, 1)}
    lines = [
        f"    {name} = " + casts.get(e, "{}").format(f"{{{name}}}") for name, e in holes.items()
    ]
    return (
        Before(region.first, "\n".join([header, *lines]), holes, rank=Rank.AUTOCAST),
        *(Rewrite(expr, name) for name, expr in holes.items()),
    )
