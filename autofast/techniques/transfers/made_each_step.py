"""Tensors that the host makes in every step, and a later place copies to the device: advice where
no fix is certain. What never changes is told apart, and data that no loader makes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autofast.facts.switches import in_every_iteration
from autofast.flow.program import Flow, definitions_at
from autofast.model.calls import arguments_of, first_argument, taker_of
from autofast.model.events import Stack, inside, loops
from autofast.model.names import FACTORIES, LEGACY_TENSORS
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import function_of, is_same_function, within
from autofast.model.syntax import SEQUENCES, is_attribute, is_stored
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Module,
    Ref,
    Seq,
    Setting,
    Tensor,
    any_of,
    certainly,
    is_named,
    of_kind,
)
from autofast.techniques.transfers.factories import KEEPS, runs_often
from autofast.techniques.transfers.literal_tensors import listed
from autofast.techniques.transfers.numpy_made import numpy_made

ONCE = "its numbers are the same every time: make it once, with the model (`register_buffer`), and use it here"
THERE = "make it on the device: `device=` in the call that makes it, also where it is drawn"
FILLED = "its numbers are put there one by one: where they are the same every time, make it once, with the model (`register_buffer`)"
PARTS = "copy all of it once, before the loop, if it fits there, and take the parts on the device"
SAMPLES = wordset("sample rsample")
READ = tuple("""numpy.load numpy.fromfile numpy.genfromtxt numpy.loadtxt numpy.asarray numpy.array
    numpy.stack numpy.concatenate""".split())  # fmt: skip
MADE = frozenset(f"torch.{name}" for name in (*FACTORIES, *LEGACY_TENSORS))
WHOLE = wordset("normal_ uniform_ bernoulli_ random_ exponential_ fill_ zero_")
FUNCTIONS = wordset("torch.from_numpy torch.as_tensor torch.tensor")
TOGETHER = wordset("torch.stack torch.cat")
DATA = FUNCTIONS | {"torch.Tensor"} | {f"torch.{name}" for name in LEGACY_TENSORS}
KEPT = KEEPS | wordset("type astype flatten ravel copy tolist T")
PLAIN = wordset("builtins.range builtins.list builtins.tuple builtins.float builtins.int")
DRAWN = ("numpy.random", "numpy.load", "numpy.fromfile", "numpy.genfromtxt", "numpy.loadtxt")
STRIPPED = KEEPS | {"type_as", "detach", "type", "to"}


def made_each_step(
    script: Script, hot: frozenset[ast.AST], known: Collection[ast.AST]
) -> Iterator[tuple[ast.expr, str]]:
    """Each place, with what to write there; those whose nodes are ``known`` have an answer."""
    known = set(known)
    once = [node for node in _fixed(script, hot) if node not in known]
    yield from ((node, ONCE) for node in once)
    known |= {n for node in once for n in ast.walk(node)}
    for transfer in script.transfers:
        found = in_every_iteration(script, transfer.site, or_none=True)
        core = getattr(transfer.node.func, "value", None)
        if found is None or core is None or not _leaves_the_host(transfer):
            continue
        if any(n in known for n in ast.walk(transfer.node) if hasattr(n, "lineno")):
            continue
        for node, advice in _made(script, core, found[0]):
            if node not in known:
                known.add(node)
                yield node, advice


def _leaves_the_host(transfer: Transfer) -> bool:
    return transfer.how in ("to", "cuda", "type_as") and not transfer.kinds <= {"cpu"}


def _made(script: Script, expr: ast.expr, loop: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What makes the tensor, where it is certainly one of the host and of no loader."""
    found = script.values(expr)
    every = of_kind(found, Tensor)
    root = _below(script, expr, STRIPPED)
    if found and len(every) == len(found) and all(map(_of_the_host, every)):
        match root:
            case ast.Subscript(value=ast.Name() as whole) if _is_kept(script, whole, loop):
                yield root, PARTS
            case ast.Call() if _makes(script, root):
                yield root, FILLED if any(_is_filled(script, t) for t in every) else THERE
    for tensor in every:  # one of several things that come here: the items of a dict
        match tensor.made:
            case ast.Call() as made if (
                made is not root
                and _of_the_host(tensor)
                and tensor.fresh
                and not _is_filled(script, tensor)
            ):
                names = script.library_functions(made)
                sites = [s for name in names if (s := script.log.at(name, made)) is not None]
                if names <= MADE and any(inside(o.stack, loop) for s in sites for o in s):
                    yield made, THERE


def _is_kept(script: Script, whole: ast.Name, loop: ast.AST) -> bool:
    """Whether it was made before the loop, and nobody fills it."""
    filled = any(_is_filled(script, t) for t in of_kind(script.values(whole), Tensor))
    return not filled and surely(
        is_same_function(d.node, loop) and not within(d.node, loop)
        for d in definitions_at(script, whole)
    )


def _is_filled(script: Script, tensor: Tensor) -> bool:
    """Whether the script writes its numbers itself, part by part; one that is filled as a whole can
    be filled there."""
    return any(
        o.this == tensor and o.data.get("name") not in WHOLE
        for s in script.log.of("tensor_write", "inplace")
        for o in s
    )


def _of_the_host(tensor: Tensor) -> bool:
    return tensor.device == "cpu" and not tensor.batch and not tensor.models


def _is_put_together(script: Script, call: ast.Call) -> bool:
    """``torch.FloatTensor(np.random.uniform(...))``, ``torch.tensor([level])``: numbers of the host
    that are made here."""
    data = first_argument(call)
    name = script.library_function(data)
    by_numpy = name.startswith("numpy.") and not name.startswith(READ)
    return by_numpy or isinstance(data, SEQUENCES)


def _makes(script: Script, call: ast.Call) -> bool:
    """A function of the project, a distribution that is drawn from, or a factory."""
    found = script.called(call)
    given = [t for a in arguments_of(call) for t in script.values(a)]
    of_sizes = not any_of(given, Tensor, Seq, Dict, Inst, Ext)
    return surely(
        isinstance(t, (Func, Bound))
        and of_sizes
        or isinstance(t, Ref)
        and (t.name in MADE or t.name in DATA and _is_put_together(script, call))
        or is_named(t, Method, SAMPLES)
        and isinstance(t.this, Ext)
        for t in found
    )


# ---------------------------------------------------------------------------- what never changes
def _fixed(script: Script, hot: frozenset[ast.AST]) -> Iterator[ast.expr]:
    """Where such a tensor is copied to the device, through names and methods that keep its
    numbers."""
    for transfer in script.transfers:
        data = transfer.operand
        if (
            data is not None
            and _leaves_the_host(transfer)
            and runs_often(transfer.site, hot)
            and _is_of_numbers(script, data)
        ):
            yield transfer.node


def _is_of_numbers(script: Script, expr: ast.expr) -> bool:
    """A tensor of numbers that never change."""
    made = _made_of(script, expr)
    if made is None or listed(script, made, "") is not None or numpy_made(script, made, "None"):
        return False
    return not _is_size(script, made) and is_fixed(script, made.args[0])


def _below(script: Script, expr: ast.expr, methods: frozenset[str], depth: int = 0) -> ast.expr:
    """What stands behind names, and behind methods that keep the numbers."""
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if (
            attr in methods and not script.library_function(expr)
        ):
            return _below(script, inner, methods, depth + 1)
        case ast.Name() if depth < 8:
            if (made := script.analysis(Flow).value(expr)) is not None:
                return _below(script, made, methods, depth + 1)
    return expr


def _made_of(script: Script, expr: ast.expr) -> ast.Call | None:
    """The call that makes a tensor of data: ``torch.tensor(a)`` of ``torch.tensor(a).float()``."""
    match made := _below(script, expr, KEPT):
        case ast.Call(args=[data]):
            name = script.library_function(made)
            if name == "torch.autograd.Variable":
                return _made_of(script, data)
            return made if name in DATA else None
    return None


def _is_size(script: Script, made: ast.Call) -> bool:
    """``torch.Tensor(n)`` has no numbers."""
    return script.library_function(made) not in FUNCTIONS and not isinstance(
        made.args[0], (ast.List, ast.Tuple, ast.Call)
    )


def is_fixed(script: Script, expr: ast.expr) -> bool:
    """Numbers that are the same whenever the script comes here: of constants, options and settings,
    by functions that draw and read nothing."""
    parts = of_kind(ast.iter_child_nodes(expr), ast.expr)
    match expr:
        case ast.Name() | ast.Attribute():
            known = certainly(script.values(expr), Const, Arg, Setting, Ref, Module, Cls)
            return known or isinstance(expr, ast.Attribute) and _is_only_given(script, expr.attr)
        case ast.Call():
            name, parts = script.library_function(expr), arguments_of(expr)
            known = name in PLAIN or (name.startswith("numpy.") and not name.startswith(DRAWN))
            if not known and is_attribute(expr.func, *KEPT, "reshape"):
                known, parts = True, [*parts, expr.func.value]
            if not known:
                return False
        case ast.Constant() | ast.List() | ast.Tuple() | ast.UnaryOp() | ast.BinOp():
            pass
        case _:
            return False
    return all(is_fixed(script, part) for part in parts)


def _is_only_given(script: Script, attr: str) -> bool:
    """Whether what a constructor keeps under a name is given to functions, and nothing else done
    with it."""
    uses = [n for n in script.each(ast.Attribute) if n.attr == attr]
    made = [n for n in uses if getattr(function_of(n), "name", "") == "__init__"]
    return any(map(is_stored, made)) and all(n in made or taker_of(n) for n in uses)


# ------------------------------------------------------------------- data that no loader makes
def copied_arrays(script: Script) -> Iterator[ast.Call]:
    """The copies, in the loops that train; what changes never, and sizes, are other rules'
    business."""
    steps = {_innermost(o.stack) for s in script.steps for b in s.backwards for o in b.site} - {
        None
    }
    for transfer in script.transfers:
        data = transfer.operand
        if (
            data is not None
            and transfer.how in ("to", "cuda")
            and transfer.to_device
            and not transfer.loaders
            and not transfer.unknown
            and surely(t.device == "cpu" for t in transfer.tensors)
            and any(_innermost(o.stack) in steps for o in transfer.site)
            and _is_of_data(script, data)
        ):
            yield transfer.node


def _innermost(stack: Stack) -> ast.AST | None:
    around = [f.node for f in loops(stack) if f.is_statement]
    return around[-1] if around else None


def _is_of_data(script: Script, expr: ast.expr) -> bool:
    """Made from an array, a list or a number that is not known before, or put together of such.

    A number may be a size (``torch.FloatTensor(n)``), but nobody copies memory that nothing was
    written to.
    """
    match put := _below(script, expr, KEPT):
        case ast.Call(args=[ast.ListComp(elt=row) | ast.List(elts=[row, *_]), *_]):
            if script.library_function(put) in TOGETHER and _made_of(script, row) is not None:
                return _is_of_data(script, row)
    made = _made_of(script, expr)
    if made is None:
        return False
    data = made.args[0]
    written = any(is_attribute(n, "fill_", "zero_") for n in ast.walk(expr))
    known = is_fixed(script, data) or (written and _is_size(script, made))
    return bool(script.values(data)) and not known
