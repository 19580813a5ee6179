"""Tensors made of arrays that NumPy draws or fills, which the device could make itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from autofast.edit.edits import Holes, Rewrite
from autofast.flow.program import Flow
from autofast.model.calls import unstarred
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import source_of, statement_of
from autofast.model.syntax import SEQUENCES, is_attribute
from autofast.model.values import Ref, Seq, const
from autofast.rule import Effect
from autofast.techniques.transfers.factories import Creation, runs_often
from autofast.write.spelling import torch_in

# NumPy's draws and constants: the factory that makes the same, the method for draws between other
# bounds, and where the shape is given
DRAWS = {
    "numpy.random.normal": ("randn", "normal_", 2),
    "numpy.random.randn": ("randn", "", -1),
    "numpy.random.standard_normal": ("randn", "", 0),
    "numpy.random.uniform": ("rand", "uniform_", 2),
    "numpy.random.random": ("rand", "", 0),
    "numpy.random.random_sample": ("rand", "", 0),
    "numpy.random.rand": ("rand", "", -1),
    "numpy.ones": ("ones", "", 0),
    "numpy.zeros": ("zeros", "", 0),
}
GPU, HOST = "torch.cuda.FloatTensor", wordset("torch.FloatTensor torch.Tensor")
OTHER_DTYPES = "torch.set_default_dtype", "torch.set_default_tensor_type"


def from_numpy(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """``Tensor(np.ones(shape))`` where ``Tensor`` may be ``torch.cuda.FloatTensor``: made there by
    a factory."""
    if script.calls(*OTHER_DTYPES):
        return
    for site in script.log.of(GPU):
        match call := site.node:
            case ast.Call(args=[ast.Call() as inner], keywords=[]):
                pass
            case _:
                continue
        names = [t.name for t in script.called(inner) if isinstance(t, Ref)]
        if len(names) != 1 or names[0] not in DRAWS or not runs_often(site, hot):
            continue
        device = _device(script, call.func)
        made = _factory(script, names[0], inner)
        if device is not None and made is not None:
            text, holes = made
            effect = Effect.SAMPLING if "random" in names[0] else Effect.EXACT
            torch, imports = torch_in(source_of(call))
            text = text.format(torch=torch, device=device)
            yield Creation(call, site, (Rewrite(call, text, holes), *imports), effect)


def _device(script: Script, tensor: ast.expr) -> str | None:
    """Where ``Tensor(...)`` makes a tensor, ``"cuda" if cuda else "cpu"`` for
    ``torch.cuda.FloatTensor if cuda else torch.FloatTensor``."""
    flow = script.analysis(Flow)
    chosen = flow.value(tensor) if isinstance(tensor, ast.Name) else tensor
    match chosen:
        case ast.IfExp(test=ast.Name(id=name) as flag, body=gpu, orelse=host):
            known = script.library_name(gpu) == GPU and script.library_name(host) in HOST
            if known and flow.means_the_same(flag, statement_of(tensor)):
                return f'"cuda" if {name} else "cpu"'
        case ast.expr() if script.library_name(chosen) == GPU:
            return '"cuda"'
    return None


def _factory(
    script: Script, name: str, call: ast.Call
) -> tuple[str, Mapping[str, ast.expr]] | None:
    """``torch.randn(n, m, device={device})`` for ``np.random.normal(0, 1, (n, m))``."""
    factory, method, at = DRAWS[name]
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
    drawn = ""
    if bounds and [script.constant(b) for b in bounds] != [0, 1]:
        factory, holes = "empty", {**holes, **{f"b{i}": bound for i, bound in enumerate(bounds)}}
        drawn = f".{method}({', '.join(f'{{{{b{i}}}}}' for i in range(len(bounds)))})"
    return f"{{torch}}.{factory}({dims}, device={{device}}){drawn}", holes


def _dims(script: Script, shape: ast.expr, holes: Holes) -> str | None:
    """A shape as arguments of a factory."""
    if isinstance(shape, SEQUENCES):
        return _each(shape.elts, holes)
    found = script.values(shape)
    if isinstance(const(found), int):
        return _each([shape], holes)
    if is_attribute(shape, "shape") or surely(
        isinstance(t, Seq) or isinstance(const(found), tuple) for t in found
    ):
        return _each([shape], holes)
    return None


def _each(sizes: list[ast.expr], holes: Holes) -> str:
    texts = []
    for i, size in enumerate(sizes):
        holes[f"d{i}"] = unstarred(size)
        texts.append(f"{'*' if isinstance(size, ast.Starred) else ''}{{{{d{i}}}}}")
    return ", ".join(texts)
