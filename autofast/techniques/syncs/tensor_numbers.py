"""Numbers that are read from the device only to compute with tensors there: the temperature of a
soft actor-critic, ``alpha = log_alpha.exp().item()``.

The variable holds the tensor itself, detached; what shows it in few steps reads it there. Products,
sums and differences come out the same: the device computes them with the number in the type of the
other tensor in either case. It divides by a number by multiplying with its inverse, which is not
the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress

from autofast.edit.edits import Edit, Rewrite, Wrap
from autofast.facts.copies import several_gpus
from autofast.facts.cost import gains
from autofast.flow.defuse import Definition
from autofast.flow.loops import loop_of, loops_around
from autofast.flow.reflection import is_spelled
from autofast.flow.scopes import mentions
from autofast.model.calls import parts_of, variable_name
from autofast.model.script import Script
from autofast.model.several import grouped, of_kind, surely, wordset
from autofast.model.source import function_of, parent_of
from autofast.model.syntax import is_read
from autofast.model.values import Arg, Tensor, are_numbers, certainly, is_const, is_on_device
from autofast.rule import Effect, Finding, Refusal
from autofast.techniques.syncs.kept import kept_template
from autofast.techniques.syncs.liveness import check_hidden
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.scalar_tensors import is_scalar, kind_of
from autofast.techniques.syncs.steps import is_step, rare_branch, runs_in_steps

SIGNS = (ast.Add, ast.Sub, ast.Mult)
HALF = wordset("half float16 bfloat16")  # with which a tensor would be rounded first, a number not


def in_arithmetic(script: Script, every: list[Read]) -> Iterator[tuple[Finding, set[ast.expr]]]:
    """Each variable of which the device alone needs the number, with the reads into it."""
    here = () if several_gpus(script) else every  # of another one, a tensor cannot be used there
    into = {t: r for r in here for t, v in parts_of(r.statement) if v is r.node}
    named = grouped(((function_of(t), variable_name(t)), r) for t, r in into.items())
    for (scope, name), mine in named.items():
        with suppress(Refusal):
            if not name:
                raise Refusal("it is no variable")
            check_hidden(script, scope, name)
            edits, effect = _kept(script, [*mentions(scope, name)], mine)
            often = [r for r in mine if _is_in_step(script, r)]
            what = f"reads `{name}` from the device in every step, to compute with tensors there"
            for read in often[:1]:
                done = Finding(read.node, what, edits=edits, effect=effect, asks=gains.read_once)
                yield done, {r.node for r in mine}


def _kept(
    script: Script, places: list[ast.Name], mine: list[Read]
) -> tuple[tuple[Edit, ...], Effect]:
    """The edits, and what they change; raises :class:`Refusal` where the number is needed."""
    reads = {r.node for r in mine}
    given = [Definition(p.id, p).value for p in places if not is_read(p)]
    edits: list[Edit] = []
    rounds = any(step.autocast for step in script.steps) or any(
        n.attr in HALF for n in script.each(ast.Attribute)
    )
    if None in given:
        raise Refusal("it is set in another way")
    others = [script.values(v) for v in given if v is not None and v not in reads]
    if not all(are_numbers(found) or certainly(found, Arg) for found in others):
        raise Refusal("it may be something else")
    things = [t for found in others for t in found]
    things += [d for t in of_kind(things, Arg) for d in t.default]
    whole = any(is_const(t, int) for t in things)  # is shown in another way than a float
    for read in mine:
        if kind_of(script, read.core) != "float" or read.how not in ("item", "float"):
            raise Refusal("it is no number of floats")
        if not surely(t.dtype == "f32" for t in of_kind(script.values(read.core), Tensor)):
            raise Refusal("beside it, tensors of one number would have another type")
        shaped = "" if is_scalar(script, read.core) else ".squeeze()"
        edits.append(
            Rewrite(read.node, kept_template(script, read.core) + shaped, {"core": read.core})
        )
    computed = False
    for use in filter(is_read, places):
        other = _other(use)
        tensors = of_kind(script.values(other), Tensor) if other is not None else []
        if other is not None and script.must_be(other, Tensor) and all(map(is_on_device, tensors)):
            rounds |= any(t.dtype not in ("f32", "f64", "?") for t in tensors)
            computed = True
            continue
        if is_spelled(use) or not _is_seldom(script, use, mine) or (whole and others):
            raise Refusal("it is needed on the host")
        edits.append(Wrap(use, "float({})" if others else "{}.item()"))
    if not computed:
        raise Refusal("it is only shown")
    return tuple(edits), Effect.ROUNDING if rounds else Effect.EXACT


def _other(use: ast.expr) -> ast.expr | None:
    """``x`` of ``alpha * x``, ``x - alpha`` and ``-alpha * x``."""
    match parent_of(use):
        case ast.UnaryOp(op=ast.USub()) as negative:
            return _other(negative)
        case ast.BinOp(left=left, right=right, op=op) if isinstance(op, SIGNS):
            return right if left is use else left
    return None


def _is_seldom(script: Script, use: ast.Name, mine: list[Read]) -> bool:
    """Whether the loop that reads the number comes to a place in few of its steps, or has ended."""
    if function_of(use) is not function_of(mine[0].node):
        return False
    steps = [loop for loop in loops_around(use) if is_step(script, loop)]
    if steps:
        return rare_branch(script, use, steps[0]) is not None
    return all(loop_of(r.statement) is not None for r in mine if _is_in_step(script, r))


def _is_in_step(script: Script, read: Read) -> bool:
    loop = loop_of(read.statement)
    return is_step(script, loop) or runs_in_steps(script, script.log.ways("sync", read.node))
