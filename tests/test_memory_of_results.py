"""What an operation gives is in memory of its own only where torch and NumPy say so: each
expression is run, and what shares memory with its operands is neither fresh nor apart from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofast.facts.freshness import is_fresh
from autofast.flow.memory import Memory
from tests.reading import read

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
HEAD = """\
import copy
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import probe

net = nn.Linear(4, 4)
p, x, x4, s, v, v1 = net.weight, torch.rand(4, 4), torch.rand(1, 2, 4, 4), torch.rand(()), torch.rand(4), torch.rand(1)
d, i, b = torch.rand(4, 4, dtype=torch.float64), torch.arange(16).reshape(4, 4), torch.rand(4, 4) > 0.5
c, a = torch.rand(4, 4, dtype=torch.complex64), np.random.rand(4, 4)
af = a.astype(np.float32)
drop, ident, flat, seq0 = nn.Dropout(0.5).eval(), nn.Identity(), nn.Flatten(), nn.Sequential()
relu_in, pool1 = nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(4)
l, dd, tt = [x, v], {"x": x, "v": v}, (x, v)
"""
OPERANDS = "p x x4 s v v1 d i b c a af".split()
EXPRESSIONS = """
+x; -x; abs(x); ~i; x + 0; x * 1; x / 1; x ** 1; x @ x; x.t(); x.T; x.mT; x.H; x.real; c.real; c.imag; x.data; x.detach(); x.clone()
x.contiguous(); x.t().contiguous(); x.contiguous().clone(); x.to("cpu"); x.to(x.device); x.to(torch.float32); x.to(torch.float64); x.to(d)
x.to(x); x.to(x.device, copy=True); x.to("cpu", torch.float32, non_blocking=True); x.cpu(); x.float(); x.double(); d.double(); d.to(d.dtype)
i.long(); i.int(); b.bool(); x.type(torch.FloatTensor); x.type(x.dtype); x.type_as(x); x.type_as(d); x.half(); x.bfloat16(); x.view(-1)
x.view(16); x.reshape(-1); x.t().reshape(-1); x.flatten(); x.ravel(); x.unflatten(0, (2, 2)); x.squeeze(); v1.squeeze(); x.unsqueeze(0)
x.expand(2, 4, 4); x.expand_as(x); x.repeat(1, 1); x.tile((1, 1)); x.permute(1, 0); x.transpose(0, 1); x.swapaxes(0, 1); x.movedim(0, 1)
x.narrow(0, 0, 4); x.select(0, 1); x.index_select(0, i[0] % 4); x.gather(0, i % 4); x.take(i); x.masked_select(b); x.masked_fill(b, 0)
x.where(b, x); x.diagonal(); x.diag(); v.diag(); x.tril(); x.triu(); x.unfold(0, 2, 1); x.view_as(x); x.reshape_as(x)
x.as_strided((2, 2), (1, 1)); x.unbind(0)[0]; x.chunk(2)[0]; x.split(2)[0]; x.tensor_split(2)[0]; x.hsplit(2)[0]; x.roll(0); x.flip(0)
x.rot90(0); x.sum(); s.sum(); s.mean(); s.max(); v1.sum(); v1.mean(0); x.mean(); x.max(0)[0]; x.max(0).values; x.min(1).values; x.sort()[0]
x.topk(4)[0]; x.cumsum(0); x.clamp(0); x.clamp(min=-9); x.clip(-9, 9); x.round(); x.floor(); i.floor(); i.round(); i.trunc(); i.ceil()
x.nan_to_num(); x.positive(); x.conj(); c.conj(); x.conj_physical(); x.resolve_conj(); x.resolve_neg(); x.abs(); x.sgn(); x.neg(); x.exp()
x.requires_grad_(); x.detach_(); x.add_(0); x.mul_(1); x.zero_(); x.__array__(); x.new_tensor(v); x.new_zeros(2); x.norm(); x.std(); x.mm(x)
x.lerp(x, 0.0); x.addcmul(x, x); x.sigmoid(); x.softmax(0); x.log_softmax(0); x.fill_(1); x.copy_(x); x.squeeze_()
x.unsqueeze_(0).squeeze_(0); x.t_().t_(); x.resize_(4, 4); x.share_memory_(); x.to_dense(); x.view(torch.int32); x.broadcast_to((2, 4, 4))
x.sum_to_size(4, 4); x.expand(4, 4); x.swapdims(0, 1); x.adjoint(); x.moveaxis(0, 1); x.squeeze(0); x4.squeeze(0); x.bool(); x.logical_not()
x.reshape(4, 4); x.to(memory_format=torch.contiguous_format); x4.contiguous(memory_format=torch.channels_last)
x4.to(memory_format=torch.channels_last); x[0]; x[:]; x[None]; x[...]; x[:, 0]; x[[0, 1]]; x[b]; x[i[0] % 4]; x[0, 0]; x[1:3]; x[:, [0]]
x[torch.tensor(0)]; l[0]; dd["x"]; tt[1]; torch.positive(x); torch.real(x); torch.conj(x); torch.flatten(x); torch.ravel(x)
torch.squeeze(x); torch.unsqueeze(x, 0); torch.t(x); torch.transpose(x, 0, 1); torch.permute(x, (1, 0)); torch.reshape(x, (16,))
torch.narrow(x, 0, 0, 2); torch.select(x, 0, 0); torch.chunk(x, 2)[0]; torch.split(x, 2)[0]; torch.unbind(x)[0]; torch.diagonal(x)
torch.diag(x); torch.diag_embed(x); torch.tril(x); torch.broadcast_to(x, (2, 4, 4)); torch.broadcast_tensors(x, x)[0]
torch.meshgrid(v, v, indexing="ij")[0]; torch.atleast_1d(x); torch.atleast_2d(x); torch.atleast_3d(x); torch.cat([x]); torch.cat([x, x])
torch.stack([x]); torch.hstack([x]); torch.vstack([x]); torch.dstack([x]); torch.block_diag(x); torch.clone(x); torch.detach(x)
torch.tensor(x); torch.as_tensor(x); torch.asarray(x); torch.as_tensor(a); torch.from_numpy(a); torch.tensor(a); torch.asarray(a)
torch.Tensor(x); torch.Tensor(af); torch.FloatTensor(x); torch.where(b, x, x); torch.clamp(x, 0); torch.max(x); torch.max(x, x)
torch.sum(x); torch.mean(s); torch.add(x, 0); torch.mul(x, 1); torch.abs(x); torch.nan_to_num(x); torch.roll(x, 0); torch.flip(x, [0])
torch.movedim(x, 0, 1); torch.swapaxes(x, 0, 1); torch.adjoint(x); torch.view_as_real(c); torch.view_as_complex(x.reshape(4, 2, 2))
torch.einsum("ij->ij", x); torch.einsum("ij->ji", x); torch.einsum("i->i", v); torch.kron(x, x); torch.repeat_interleave(x, 1)
torch.tile(x, (1, 1)); torch.gather(x, 0, i % 4); torch.index_select(x, 0, i[0] % 4); torch.masked_select(x, b); torch.take(x, i)
torch.zeros_like(x); torch.empty_like(x); torch.unfold_copy(x, 0, 2, 1); torch.as_strided(x, (2, 2), (1, 1)); torch.unflatten(x, 0, (2, 2))
torch.swapdims(x, 0, 1); torch.resolve_conj(x); torch.resolve_neg(x); torch.imag(c); torch.squeeze(s); torch.dropout(x, 0.0, False)
torch.dropout(x, 0.5, False); torch.cartesian_prod(v); torch.combinations(v, 1); torch.hsplit(x, 2)[0]; torch.tensor_split(x, 2)[0]
torch.linalg.multi_dot([x, x]); torch.linalg.diagonal(x); torch.moveaxis(x, 0, 1); torch.broadcast_tensors(x, v)[1]
torch.split_with_sizes(x, [2, 2])[0]; torch.unsafe_chunk(x, 2)[0]; torch.expand_copy(x, (4, 4)); torch.trapz(v); torch.cummax(x, 0)[0]
torch.column_stack((x,)); torch.row_stack((x,)); torch.concat([x]); torch.concatenate([x]); F.dropout(x, 0.5, False); F.dropout(x, 0.0)
F.dropout(x, training=False); F.relu(x); F.relu(x, inplace=True); F.relu(x, True); F.pad(x, (0, 0)); F.interpolate(x4, scale_factor=1)
F.interpolate(x4, size=(4, 4)); F.normalize(x); F.softmax(x, 0); F.threshold(x, 0, 0); F.leaky_relu(x, 1.0); F.hardtanh(x); F.gelu(x)
F.layer_norm(x, (4,)); F.one_hot(i % 4); F.embedding(i % 4, p); F.linear(x, p); F.avg_pool2d(x4, 1); F.max_pool2d(x4, 1)
F.adaptive_avg_pool2d(x4, 4); F.unfold(x4, 1); F.pixel_shuffle(x4, 1); F.glu(x); F.alpha_dropout(x, 0.5, False); F.dropout2d(x4, 0.5, False)
F.elu(x, inplace=True); F.silu(x, inplace=True); F.batch_norm(x, None, None, training=True); F.cosine_similarity(x, x); F.mse_loss(x, x)
F.mse_loss(x, d, reduction="none"); F.channel_shuffle(x4, 1); F.local_response_norm(x4, 1); F.rrelu(x, 1.0, 1.0); F.celu(x, inplace=True)
F.hardswish(x); F.logsigmoid(x); F.softplus(x); F.prelu(x, v1); F.lp_pool2d(x4, 1.0, 1); F.instance_norm(x4); drop(x); ident(x); flat(x)
flat(v[None]); seq0(x); relu_in(x); pool1(x4); net(x); nn.Identity()(x); nn.Dropout(0.0)(x); nn.Dropout(0.3).eval()(x); nn.Flatten(0)(x)
nn.Unflatten(0, (2, 2))(x); nn.ReLU()(x); nn.Softmax(0)(x); nn.LayerNorm(4)(x); nn.Upsample(scale_factor=1)(x4); nn.PixelShuffle(1)(x4)
nn.ZeroPad2d(0)(x4); nn.ConstantPad2d(0, 0.0)(x4); nn.MaxPool2d(1)(x4); nn.AvgPool2d(1)(x4); nn.AdaptiveAvgPool2d(4)(x4)
nn.Sequential(nn.Identity())(x); nn.Sequential(nn.Flatten(0))(x); nn.Dropout2d().eval()(x4); nn.AlphaDropout().eval()(x); nn.Hardtanh()(x)
nn.ELU(inplace=True)(x); nn.ChannelShuffle(1)(x4); nn.Unfold(1)(x4); nn.ModuleList([ident])[0](x); nn.Threshold(0, 0)(x)
nn.RReLU(1.0, 1.0)(x); nn.FeatureAlphaDropout().eval()(x4); nn.ReflectionPad2d(0)(x4); nn.LocalResponseNorm(1)(x4); copy.copy(x)
copy.deepcopy(x); np.array(x); np.asarray(x); np.array(a); np.asarray(a); np.ascontiguousarray(a); np.asanyarray(a); np.require(a)
a.astype(np.float64); a.astype(a.dtype, copy=False); np.array(a, copy=None); a.copy(); a.ravel(); a.flatten(); a.reshape(-1); a.T; a[0]
a[[0]]; a.squeeze(); np.squeeze(a); np.transpose(a); np.atleast_1d(a); np.atleast_2d(a); np.expand_dims(a, 0); np.broadcast_to(a, (2, 4, 4))
np.split(a, 2)[0]; np.array_split(a, 2)[0]; np.nan_to_num(a); np.nan_to_num(a, copy=False); np.reshape(a, -1); np.ravel(a)
np.concatenate([a]); np.stack([a]); np.flip(a); np.flipud(a); np.rot90(a); np.swapaxes(a, 0, 1); np.moveaxis(a, 0, 1); np.diagonal(a)
np.diag(a); np.real(a); np.where(a > 0, a, a); np.clip(a, 0, 1); np.abs(a); +a; -a; np.sort(a); np.vsplit(a, 2)[0]; np.tile(a, 1)
np.repeat(a, 1); np.take(a, [0]); np.triu(a); a.view(); a.real; a.clip(0, 1); np.vstack([a]); np.rollaxis(a, 1); np.positive(a); np.rint(a)
np.round(a); a.round(); np.frombuffer(a); np.lib.stride_tricks.sliding_window_view(a, 2, 0); np.lib.stride_tricks.as_strided(a)
np.partition(a, 1); np.unique(a); np.append(a, a); np.delete(a, 0, 0); np.pad(a, 0); np.roll(a, 0); np.resize(a, (4, 4))
np.squeeze(a[None]); np.broadcast_arrays(a, a)[0]; np.meshgrid(a[0], a[0])[0]; np.meshgrid(a[0], a[0], copy=False)[0]; np.fft.fft(a)
np.real_if_close(a); np.asarray_chkfinite(a); np.trim_zeros(a[0]); np.hsplit(a, 2)[0]; np.array(x.numpy()); x.numpy().copy()
x.detach().cpu().numpy(); x.cpu().data.numpy(); torch.from_numpy(a.copy()); torch.from_numpy(np.asarray(a)); torch.from_numpy(a).float()
torch.from_numpy(af).float(); torch.tensor(x.tolist()); torch.as_tensor(x, dtype=torch.float64); torch.as_tensor(x, dtype=torch.float32)
torch.utils.data.default_convert(a); torch.utils.data.default_collate([x]); nn.utils.rnn.pad_sequence([x])
nn.utils.parameters_to_vector([p]); nn.Parameter(x); nn.Parameter(x).data; torch.autograd.Variable(x)
nn.utils.rnn.pack_padded_sequence(x[None], [4], batch_first=True).data
"""
LINES = [e.strip() for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()]


def memory_of(thing: Any) -> Any:
    """What it lies in; None for what has no memory."""
    if isinstance(thing, torch.Tensor):
        return thing.untyped_storage().data_ptr() if thing.numel() else None
    if not isinstance(thing, np.ndarray):
        return None
    while isinstance(thing.base, np.ndarray):
        thing = thing.base
    return thing.__array_interface__["data"][0]


def shared(expression: str) -> list[str]:
    """The operands whose memory the result of an expression has."""
    space: dict[str, Any] = {}
    exec(HEAD.replace("import probe\n", ""), space)  # our own lines
    operands = {n: memory_of(space[n]) for n in OPERANDS}
    try:
        result = memory_of(eval(expression, space))
    except (AttributeError, TypeError):  # what this version does not have
        return []
    return [n for n, memory in operands.items() if result is not None and memory == result]


@pytest.mark.filterwarnings("ignore")
def test_what_shares_memory(tmp_path: Path) -> None:
    every = "".join(f"    probe.show({e})\n" for e in LINES)
    shown = "".join(f"probe.show({n})\n" for n in OPERANDS)
    script = read(tmp_path, HEAD + shown + "for k in range(3):\n" + every)
    at = {o.node.lineno: o.node.args[0] for o in script.calls("probe.show")}
    first = len(HEAD.splitlines()) + 1
    operands = {n: at[first + k] for k, n in enumerate(OPERANDS)}
    memory, wrong, found = script.analysis(Memory), [], 0
    for k, expression in enumerate(LINES):
        node, with_these = at[first + len(OPERANDS) + 1 + k], shared(expression)
        found += bool(with_these)
        if with_these and (is_fresh(script, node) or memory.is_fresh(node)):
            wrong.append(f"{expression} is no memory of its own")
        wrong += [
            f"{expression} shares memory with {name}"
            for name in with_these
            if not memory.may_share(node, operands[name])
        ]
    assert not wrong and found > 200
