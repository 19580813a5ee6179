"""The largest of all scores of a place is looked for where the scores are.

``pred = output.cpu().numpy()``, ``np.argmax(pred, axis=1)`` copies a number for each class, and
NumPy goes through them in one thread; ``output.argmax(1).cpu().numpy()`` copies one for each place.
Of several that are largest both give the first (documented for both), and both take NaN for larger
than all numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edits, Remove, Rewrite
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import is_method, is_name, put_into
from autofast.model.events import loops
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import source_of, statement_of
from autofast.model.syntax import is_attribute
from autofast.model.values import Tensor, of_kind

AXIS = wordset("axis")
SAME = wordset("detach numpy")  # the same numbers, on the host


def largest_first(script: Script) -> Iterator[tuple[ast.Call, ast.expr, Edits]]:
    """The calls of ``numpy.argmax`` on copies of scores, in loops over batches, with the scores and
    the edits."""
    for site in script.calls("numpy.argmax"):
        call = site.call
        if call is None or not any(f.loaders for o in site for f in loops(o.stack)):
            continue
        axis = _axis(script, call)
        scores = _scores(script, call.args[0]) if axis is not None else None
        if scores is None:
            continue
        text = source_of(scores).segment(scores)
        found = of_kind(script.values(scores), Tensor)
        if text and found and all(t.device == "dev" for t in found):
            on_device = Rewrite(scores, f"{{scores}}.argmax({axis})", {"scores": scores})
            yield call, scores, (on_device, *_without(call))


def _axis(script: Script, call: ast.Call) -> int | None:
    """The axis, where nothing else is asked for."""
    given = [*call.args[1:], *(k.value for k in call.keywords if k.arg in AXIS)]
    if len(call.args) + len(call.keywords) != 2 or len(given) != 1:
        return None
    axis = script.constant(given[0])
    return axis if isinstance(axis, int) else None


def _scores(script: Script, given: ast.expr) -> ast.expr | None:
    """What is copied to the host and goes to this call alone."""
    expr = given
    if isinstance(expr, ast.Name):
        made = script.analysis(Flow).definition(expr)
        if made is None or made.value is None or made.statement is None:
            return None
        target = put_into(made.value)
        if target is not made.node or definitions_of(script, made.node).uses(made) != [expr]:
            return None
        expr = made.value
    while is_method(expr) and not (expr.args or expr.keywords) or is_attribute(expr, "data"):
        if is_method(expr, "cpu"):
            return expr.func.value
        if isinstance(expr, ast.Attribute):
            expr = expr.value
        elif is_method(expr, *SAME):
            expr = expr.func.value
        else:
            return None
    return None


def _without(call: ast.Call) -> Edits:
    """The edits that leave what is given to the call in its place."""
    given, target = call.args[0], put_into(call)
    if isinstance(given, ast.Name) and is_name(target, given.id):
        return (Remove(statement_of(call)),)
    return (Rewrite(call, "{given}", {"given": given}),)
