"""Tensors made of arrays that NumPy draws or fills, which the device could make itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.program import Flow
from autofast.model.calls import keyword_of
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import source_of, statement_of
from autofast.model.tensors import device_kinds
from autofast.rule import Effect
from autofast.techniques.transfers.factories import Creation, runs_often
from autofast.techniques.transfers.numpy_made import is_drawn_by_numpy, numpy_made

HOST = {  # what stands on the host in the place of a constructor of the GPU
    "torch.cuda.FloatTensor": wordset("torch.FloatTensor torch.Tensor"),
    "torch.cuda.LongTensor": wordset("torch.LongTensor"),
}
TOLD = wordset("torch.tensor torch.as_tensor")


def from_numpy(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """``Tensor(np.ones(shape))`` where ``Tensor`` may be ``torch.cuda.FloatTensor``, or
    ``torch.tensor(np.ones(shape), device=device)``: made there by a factory."""
    for site in script.log.of(*HOST, *TOLD):
        call = site.call
        if call is None or not runs_often(site, hot):
            continue
        said = keyword_of(call, "device")
        if site.kind in HOST:
            device = _device(script, call.func, site.kind)
        else:
            told = said is not None and device_kinds(script.values(said)) - {"cpu"}
            device = source_of(call).segment(said) if said is not None and told else None
        if device is not None and (edits := numpy_made(script, call, device, site.kind)):
            drawn = is_drawn_by_numpy(script, call, site.kind)
            yield Creation(call, site, edits, Effect.SAMPLING if drawn else Effect.EXACT)


def _device(script: Script, tensor: ast.expr, gpu: str) -> str | None:
    """Where ``Tensor(...)`` makes a tensor, ``"cuda" if cuda else "cpu"`` for
    ``torch.cuda.FloatTensor if cuda else torch.FloatTensor``."""
    flow = script.analysis(Flow)
    chosen = flow.value(tensor) if isinstance(tensor, ast.Name) else tensor
    match chosen:
        case ast.IfExp(test=ast.Name(id=name) as flag, body=there, orelse=here):
            known = script.library_name(there) == gpu and script.library_name(here) in HOST[gpu]
            if known and flow.means_the_same(flag, statement_of(tensor)):
                return f'"cuda" if {name} else "cpu"'
        case ast.expr() if script.library_name(chosen) == gpu:
            return '"cuda"'
    return None
