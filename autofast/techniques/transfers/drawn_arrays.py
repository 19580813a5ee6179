"""Tensors made of arrays that NumPy draws or fills, which the device could make itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from autofast.edit.edits import Holes, Rewrite
from autofast.model.calls import unstarred
from autofast.model.names import LEGACY_TENSORS
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.syntax import SEQUENCES, is_attribute
from autofast.model.values import Ref, Seq, const
from autofast.rule import Effect
from autofast.techniques.transfers.factories import Creation, runs_often

# NumPy's draws and constants: the method that makes the same of a new tensor, and where the shape
# is given
DRAWS = {
    "numpy.random.normal": ("normal_", 2),
    "numpy.random.randn": ("normal_", -1),
    "numpy.random.standard_normal": ("normal_", 0),
    "numpy.random.uniform": ("uniform_", 2),
    "numpy.random.random": ("uniform_", 0),
    "numpy.random.random_sample": ("uniform_", 0),
    "numpy.random.rand": ("uniform_", -1),
    "numpy.ones": ("fill_(1)", 0),
    "numpy.zeros": ("zero_()", 0),
}


def from_numpy(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """``Tensor(np.ones(shape))`` where ``Tensor`` may be ``torch.cuda.FloatTensor``: made there by
    its own methods."""
    for site in script.log.of(*(f"torch.cuda.{name}" for name in LEGACY_TENSORS)):
        match call := site.node:
            case ast.Call(args=[ast.Call() as inner], keywords=[]):
                pass
            case _:
                continue
        names = [t.name for t in script.called(inner) if isinstance(t, Ref)]
        if len(names) != 1 or names[0] not in DRAWS or not runs_often(site, hot):
            continue
        if (
            "FloatTensor" not in site.kind
            or (template := _in_place(script, names[0], inner)) is None
        ):
            continue
        text, holes = template
        effect = Effect.SAMPLING if "random" in names[0] else Effect.EXACT
        yield Creation(
            call, site, (Rewrite(call, "{tensor}" + text, {"tensor": call.func, **holes}),), effect
        )


def _in_place(
    script: Script, name: str, call: ast.Call
) -> tuple[str, Mapping[str, ast.expr]] | None:
    """``(n, m).normal_(0, 1)`` for ``np.random.normal(0, 1, (n, m))``."""
    method, at = DRAWS[name]
    given = {k.arg: k.value for k in call.keywords}
    shape = given.pop("size", None) or given.pop("shape", None)
    bounds, sizes = (call.args[:at], call.args[at:]) if at >= 0 else ([], call.args)
    if (
        given
        or (shape is not None and (at < 0 or sizes))
        or (at >= 0 and len([*sizes, shape]) - (shape is None) != 1)
    ):
        return None
    if shape is not None:
        sizes = [shape]
    holes: Holes = {}
    dims = _each(sizes, holes) if at < 0 else _dims(script, sizes[0], holes)
    if not dims:
        return None
    holes.update((f"b{i}", bound) for i, bound in enumerate(bounds))
    arguments = ", ".join(f"{{b{i}}}" for i in range(len(bounds)))
    return f"({dims}).{method}" + ("" if method.endswith(")") else f"({arguments})"), holes


def _dims(script: Script, shape: ast.expr, holes: Holes) -> str | None:
    """A shape as arguments of the legacy constructor, which takes sizes one by one (it takes a
    tuple for data)."""
    if isinstance(shape, SEQUENCES):
        return _each(shape.elts, holes)
    found = script.values(shape)
    if isinstance(const(found), int):
        return _each([shape], holes)
    if is_attribute(shape, "shape") or surely(
        isinstance(t, Seq) or isinstance(const(found), tuple) for t in found
    ):
        holes["d0"] = shape
        return "*{d0}"
    return None


def _each(sizes: list[ast.expr], holes: Holes) -> str:
    texts = []
    for i, size in enumerate(sizes):
        holes[f"d{i}"] = unstarred(size)
        texts.append(f"{'*' if isinstance(size, ast.Starred) else ''}{{d{i}}}")
    return ", ".join(texts)
