"""Tensors that the host makes in every step, and a later place copies to the device: advice where
no fix is certain.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autofast.facts.switches import in_every_iteration
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of
from autofast.model.events import inside
from autofast.model.kinds import is_module
from autofast.model.names import FACTORIES, LEGACY_TENSORS
from autofast.model.script import Script, Transfer
from autofast.model.values import (
    Bound,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Ref,
    Seq,
    Tensor,
    library_names,
)
from autofast.techniques.transfers.factories import KEEPS
from autofast.techniques.transfers.fixed import DATA

THERE = "make it on the device: `device=` in the call that makes it, also where it is drawn"
KEPT = "it is the same in every step: make it a buffer (`self.register_buffer(...)`), which moves with the module, and is not copied here"
STRIPPED = KEEPS | {"type_as", "detach", "type", "to"}
SAMPLES = frozenset({"sample", "rsample"})
READ = ("numpy.load", "numpy.fromfile", "numpy.genfromtxt", "numpy.loadtxt", "numpy.asarray", "numpy.array", "numpy.stack", "numpy.concatenate")  # fmt: skip
MADE = frozenset(f"torch.{name}" for name in (*FACTORIES, *LEGACY_TENSORS))
WHOLE = frozenset("normal_ uniform_ bernoulli_ random_ exponential_ fill_ zero_".split())


def made_each_step(script: Script, known: Collection[int]) -> Iterator[tuple[ast.expr, str]]:
    """Each place, with what to write there; those whose nodes are ``known`` have an answer."""
    said: set[int] = set()
    for transfer in script.transfers:
        found = in_every_iteration(script, transfer.site, or_none=True)
        core = getattr(transfer.node.func, "value", None)
        if found is None or core is None or not _leaves_the_host(transfer):
            continue
        if any(id(n) in known for n in ast.walk(transfer.node) if hasattr(n, "lineno")):
            continue
        for node, advice in _made(script, core, found[0]):
            if id(node) not in said | set(known):
                said.add(id(node))
                yield node, advice


def _leaves_the_host(transfer: Transfer) -> bool:
    return transfer.how in ("to", "cuda", "type_as") and not transfer.kinds <= {"cpu"}


def _made(script: Script, expr: ast.expr, loop: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What makes the tensor, where it is certainly one of the host and of no loader."""
    found = script.values(expr)
    every = [t for t in found if isinstance(t, Tensor)]
    root = _root(script, expr)
    if found and len(every) == len(found) and all(map(_of_the_host, every)):
        match root:
            case ast.Attribute() if _is_of_module(script, root):
                yield root, KEPT
            case ast.Call() if _makes(script, root):
                yield root, THERE
    for tensor in every:  # one of several things that come here: the items of a dict
        match tensor.made:
            case ast.Call() as made if made is not root and _is_new(script, tensor):
                names = script.library_functions(made)
                sites = [s for name in names if (s := script.log.at(name, made)) is not None]
                if names <= MADE and any(inside(o.stack, loop) for s in sites for o in s):
                    yield made, THERE


def _is_new(script: Script, tensor: Tensor) -> bool:
    """Made by a factory of the host, and filled by nothing else."""
    return _of_the_host(tensor) and bool(tensor.fresh) and not _is_filled(script, tensor)


def _is_filled(script: Script, tensor: Tensor) -> bool:
    """Whether the script writes its numbers itself, part by part; one that is filled as a whole can
    be filled there.
    """
    return any(
        o.this == tensor and o.data.get("name") not in WHOLE
        for s in script.log.of("tensor_write", "inplace")
        for o in s
    )


def _of_the_host(tensor: Tensor) -> bool:
    return tensor.device == "cpu" and not tensor.batch and not tensor.models


def _root(script: Script, expr: ast.expr, depth: int = 0) -> ast.expr:
    """Below names, and methods that keep the numbers."""
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in STRIPPED:
            return _root(script, inner, depth + 1)
        case ast.Name() if depth < 8:
            if (made := script.analysis(Flow).value(expr)) is not None:
                return _root(script, made, depth + 1)
    return expr


def _is_of_module(script: Script, attribute: ast.Attribute) -> bool:
    """An attribute of a module that its constructor has set."""
    found = script.values(attribute.value)
    return bool(found) and all(isinstance(t, Inst) and is_module(t) for t in found)


def _is_put_together(script: Script, call: ast.Call) -> bool:
    """``torch.FloatTensor(np.random.uniform(...))``, ``torch.tensor([level])``: numbers of the host
    that are made here.
    """
    match call.args:
        case [ast.List() | ast.Tuple(), *_]:
            return True
        case [ast.Call(func=func), *_]:
            names = library_names(script.values(func))
            known = all(n.startswith("numpy.") and not n.startswith(READ) for n in names)
            return bool(names) and known
    return False


def _makes(script: Script, call: ast.Call) -> bool:
    """A function of the project, a distribution that is drawn from, or a factory."""
    found = script.values(call.func)
    given = [t for a in arguments_of(call) for t in script.values(a)]
    of_sizes = not any(isinstance(t, (Tensor, Seq, Dict, Inst, Ext)) for t in given)
    return bool(found) and all(
        isinstance(t, (Func, Bound))
        and of_sizes
        or isinstance(t, Ref)
        and (t.name in MADE or t.name in DATA and _is_put_together(script, call))
        or isinstance(t, Method)
        and t.name in SAMPLES
        and isinstance(t.this, Ext)
        for t in found
    )
