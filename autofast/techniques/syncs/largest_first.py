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
from autofast.facts.switches import is_often
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import put_into
from autofast.model.events import loops
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import source_of, statement_of
from autofast.model.values import Tensor, of_kind

# torch finds no largest of truths and of complex numbers; what a model gives may be of any kind
FLOATS = wordset("f32 f64 half ?")


def largest_first(script: Script) -> Iterator[tuple[ast.Call, ast.expr, Edits]]:
    """The calls of ``numpy.argmax`` on copies of scores, in loops over batches, with the scores and
    the edits."""
    for site in script.calls("numpy.argmax"):
        call = site.call
        if call is None or not any(f.loaders for o in site for f in loops(o.stack)):
            continue
        if not is_often(script, call, next(loops_around(call), None)):
            continue  # what few steps show moves into these
        axis = _axis(script, call)
        scores = _scores(script, call.args[0]) if axis is not None else None
        if scores is None:
            continue
        text = source_of(scores).segment(scores)
        found = of_kind(script.values(scores), Tensor)
        if text and surely(t.device == "dev" and t.dtype in FLOATS for t in found):
            on_device = Rewrite(scores, f"{{scores}}.argmax({axis})", {"scores": scores})
            yield call, scores, (on_device, *_without(call))


def _axis(script: Script, call: ast.Call) -> int | None:
    """The axis, where nothing else is asked for."""
    given = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "axis")]
    if len(call.args) + len(call.keywords) != 2 or len(given) != 1:
        return None
    axis = script.constant(given[0])
    return axis if isinstance(axis, int) else None


def _scores(script: Script, given: ast.expr) -> ast.expr | None:
    """What is copied to the host and goes to this call alone."""
    match given:
        case ast.Name():
            made = script.analysis(Flow).definition(given)
            value = made.value if made is not None else None
            if made is None or value is None or put_into(value) is not made.node:
                return None
            alone = definitions_of(script, made.node).uses(made) == [given]
            return _copied(value) if alone else None
    return _copied(given)


def _copied(expr: ast.expr) -> ast.expr | None:
    """``output`` of ``output.cpu().detach().numpy()``."""
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr="cpu"), args=[], keywords=[]):
            return inner
        case (
            ast.Call(func=ast.Attribute(value=inner, attr="detach" | "numpy"), args=[], keywords=[])
            | ast.Attribute(value=inner, attr="data")
        ):
            return _copied(inner)
    return None


def _without(call: ast.Call) -> Edits:
    """The edits that leave what is given to the call in its place."""
    match call.args[0], put_into(call):
        case ast.Name(id=given), ast.Name(id=target) if given == target:
            return (Remove(statement_of(call)),)
    return (Rewrite(call, "{given}", {"given": call.args[0]}),)
