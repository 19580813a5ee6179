"""Tensors that the host makes in every step, and a later place copies to the device: advice where
no fix is certain. What never changes is told apart, and data that no loader makes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autofast.facts.attribute_values import lasting
from autofast.facts.switches import in_every_iteration, often
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of, items_of, unstarred
from autofast.model.events import inside
from autofast.model.kinds import is_module
from autofast.model.names import FACTORIES, LEGACY_TENSORS
from autofast.model.script import Script, Transfer
from autofast.model.several import surely
from autofast.model.source import function_of, nodes_in, parent_of, within
from autofast.model.syntax import VARIABLES, is_attribute, is_read
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
    are_numbers,
    certainly,
    const,
    is_named,
    only,
)
from autofast.techniques.transfers.factories import DRAWN, KEEPS, again_and_again
from autofast.techniques.transfers.listed import listed

ONCE = "its numbers are the same every time: make it once, with the model (`register_buffer`), and use it here"
THERE = "make it on the device: `device=` in the call that makes it, also where it is drawn"
BUFFER = "it is the same in every step: make it a buffer (`self.register_buffer(...)`), which moves with the module, and is not copied here"
WHOLE = "copy all of it once, before the loop, if it fits there, and take the parts on the device"
INDEX = "this index is copied in every step: make it a tensor on the device once (a buffer, `persistent=False`), or a slice where its order allows"
ARRAYS = frozenset(
    f"numpy.{n}" for n in "array asarray arange argsort concatenate random.permutation".split()
)
SAMPLES = frozenset({"sample", "rsample"})
MAKE = frozenset(f"torch.{name}" for name in (*FACTORIES, *LEGACY_TENSORS))
FILLED = DRAWN | {"fill_", "zero_"}
FUNCTIONS = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.tensor"})
TENSORS = FUNCTIONS | {"torch.Tensor"} | {f"torch.{name}" for name in LEGACY_TENSORS}
KEPT = KEEPS | {"type", "astype", "flatten", "ravel", "copy", "tolist", "T"}
KNOWN = ("numpy.", "math.", "torch.", "builtins.range", "builtins.list", "builtins.tuple", "builtins.float", "builtins.int")  # fmt: skip
FILES = ("numpy.load", "numpy.fromfile", "numpy.genfromtxt", "numpy.loadtxt")
MOST = 8  # names that are followed
FIXED, MADE, DATA = range(3)  # the same every time; of sizes, factories and draws; anything else
STRIPPED = KEEPS | {"type_as", "detach", "type", "to"}


def made_each_step(
    script: Script, hot: frozenset[int], known: Collection[int]
) -> Iterator[tuple[ast.expr, str]]:
    """Each place, with what to write there; those whose nodes are ``known`` have an answer."""
    known = set(known)
    once = [node for node in _fixed(script, hot) if id(node) not in known]
    yield from ((node, ONCE) for node in once)
    known |= {id(n) for node in once for n in ast.walk(node)}
    said: set[int] = set()
    yield from ((node, INDEX) for node in _indices(script) if id(node) not in known)
    for transfer in script.transfers:
        found = in_every_iteration(script, transfer.site, or_none=True)
        core = getattr(transfer.node.func, "value", None)
        if found is None or core is None or not _leaves_the_host(transfer):
            continue
        if any(id(n) in known for n in nodes_in(transfer.node, ast.expr)):
            continue
        for node, advice in _made(script, core, found[0]):
            if not any(id(n) in said | known for n in nodes_in(node, ast.expr)):
                said.add(id(node))
                yield node, advice


def _leaves_the_host(transfer: Transfer) -> bool:
    return transfer.how in ("to", "cuda", "type_as") and not transfer.kinds <= {"cpu"}


def _made(script: Script, expr: ast.expr, loop: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What makes the tensor, where it is certainly one of the host and of no loader."""
    found = script.values(expr)
    every = only(found, Tensor)
    root = _below(script, expr, STRIPPED)
    if found and len(every) == len(found) and all(map(_of_the_host, every)):
        match root:
            case ast.Attribute() if _is_of_module(script, root):
                yield root, BUFFER
            case ast.Subscript(value=ast.Name() as whole) if _is_kept(script, whole, loop):
                yield root, WHOLE
            case _ if _origin(script, root) <= MADE:
                yield root, THERE
    for tensor in every:  # one of several things that come here: the items of a dict
        match tensor.made:
            case ast.Call() as made if made is not root and _is_new(script, tensor):
                names = script.library_functions(made)
                sites = [s for name in names if (s := script.log.at(name, made)) is not None]
                if names <= MAKE and any(inside(o.stack, loop) for s in sites for o in s):
                    yield made, THERE


def _is_kept(script: Script, whole: ast.Name, loop: ast.AST) -> bool:
    """Whether parts are taken of what was made before the loop, and nobody fills."""
    made, here = script.analysis(Flow).reaching(whole), function_of(loop)
    filled = any(_is_filled(script, t) for t in only(script.values(whole), Tensor))
    return not filled and surely(
        function_of(d.node) is here and not within(d.node, loop) for d in made
    )


def _is_new(script: Script, tensor: Tensor) -> bool:
    """Made by a factory of the host, and filled by nothing else."""
    return _of_the_host(tensor) and bool(tensor.fresh) and not _is_filled(script, tensor)


def _is_filled(script: Script, tensor: Tensor) -> bool:
    """Whether the script writes its numbers itself, part by part; one that is filled as a whole can
    be filled there."""
    return any(
        o.this == tensor and o.data.get("name") not in FILLED
        for s in script.log.of("tensor_write", "inplace")
        for o in s
    )


def _of_the_host(tensor: Tensor) -> bool:
    return tensor.device == "cpu" and not tensor.batch and not tensor.models


def _is_of_module(script: Script, attribute: ast.Attribute) -> bool:
    """An attribute of a module that its constructor has set, and that is no buffer already."""
    found = script.values(attribute.value)
    given = [o.args for s in script.methods("register_buffer") for o in s if o.args is not None]
    names = [const(args.get(0, "name")) for args in given]
    is_buffer = ... in names or attribute.attr in names
    return not is_buffer and surely(isinstance(t, Inst) and is_module(t) for t in found)


def _is_own(script: Script, call: ast.Call) -> bool:
    """A function of the project that is given sizes, or a distribution that is drawn from."""
    given = [t for a in arguments_of(call) for t in script.values(a)]
    of_sizes = not any_of(given, Tensor, Seq, Dict, Inst, Ext)
    return surely(
        isinstance(t, (Func, Bound))
        and of_sizes
        or is_named(t, Method, SAMPLES)
        and isinstance(t.this, Ext)
        for t in script.values(call.func)
    )


# ---------------------------------------------------------------------------- what never changes
def _fixed(script: Script, hot: frozenset[int]) -> Iterator[ast.expr]:
    """Where such a tensor is copied to the device, through names and methods that keep its numbers,
    or an index of such numbers."""
    for site in script.methods("new_tensor"):
        call = site.call
        if call is None or not isinstance(call.args[0], VARIABLES):
            continue
        if (
            any(again_and_again(o.stack, hot) for o in site)
            and _origin(script, call.args[0]) == FIXED
        ):
            yield call
    for transfer in script.transfers:
        data = transfer.operand
        if (
            data is not None
            and _leaves_the_host(transfer)
            and any(again_and_again(o.stack, hot) for o in transfer.site)
            and _is_of_numbers(script, data)
        ):
            yield transfer.node


def _is_of_numbers(script: Script, expr: ast.expr) -> bool:
    """A tensor of numbers that never change."""
    made = _made_of(script, expr)
    if made is None or listed(script, made, "") is not None:
        return False
    return not _is_size(script, made) and _origin(script, made.args[0]) == FIXED


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
            return made if name in TENSORS else None
    return None


def _is_size(script: Script, made: ast.Call) -> bool:
    """``torch.Tensor(n)`` has no numbers."""
    return script.library_function(made) not in FUNCTIONS and not isinstance(
        made.args[0], (ast.List, ast.Tuple, ast.Call)
    )


def _origin(script: Script, expr: ast.expr, depth: int = 0) -> int:
    """What numbers are of: the worst of all that they are computed of. ``FIXED`` are those of
    constants, options, settings and what a constructor sets for good, by functions that draw and
    read nothing."""
    found, name = script.values(expr), script.library_function(expr)
    parts: list[ast.expr | None] = [*only(ast.iter_child_nodes(expr), ast.expr)]
    least = FIXED
    match expr:
        case ast.Name() | ast.Attribute():
            fixed = certainly(found, Const, Arg, Setting, Ref, Module, Cls)
            if fixed or (not any_of(found, Tensor) and _by_constructor(script, expr)):
                return FIXED
            if are_numbers(found) or isinstance(expr, ast.Attribute) or depth > MOST:
                return MADE if are_numbers(found) else DATA
            made = [d.statement for d in script.analysis(Flow).reaching(expr)]
            parts = [m.value if isinstance(m, ast.Assign) else None for m in made] or [None]
            least = MADE
        case ast.ListComp(elt=elt, generators=generators):
            parts = [elt, *(g.iter for g in generators)]
        case ast.Call(func=func):
            parts = [unstarred(a) for a in arguments_of(expr)]
            drawn = name.startswith("numpy.random") or is_attribute(func, *DRAWN)
            if drawn or name in MAKE or _is_own(script, expr):
                return MADE
            if name and (name.startswith(FILES) or not name.startswith(KNOWN)):
                return DATA
            if name in TENSORS:
                least = DATA if isinstance(parts[0], VARIABLES) else MADE
            elif not name:
                parts.append(getattr(func, "value", None))
    return max([least, *(DATA if p is None else _origin(script, p, depth + 1) for p in parts)])


def _by_constructor(script: Script, expr: ast.expr) -> ast.expr | None:
    """What an attribute is from the constructor on."""
    made = lasting(script, expr) if isinstance(expr, ast.Attribute) else None
    is_first = made is not None and getattr(function_of(made), "name", "") == "__init__"
    return made if is_first else None


def _indices(script: Script) -> Iterator[ast.expr]:
    """Lists, arrays and tensors of the host by which tensors of the device are indexed."""
    for _, node in often(script, ast.Subscript):
        assert isinstance(node, ast.Subscript)
        of = script.values(node.value)
        if is_read(node) and surely(isinstance(t, Tensor) and t.device != "cpu" for t in of):
            yield from (p for p in items_of(node.slice) if _is_index(script, p))


def _is_index(script: Script, part: ast.expr) -> bool:
    match part:
        case ast.List() | ast.Tuple() | ast.Call():
            of_array = not isinstance(part, ast.Call) or script.library_function(part) in ARRAYS
            return of_array and _origin(script, part) == FIXED
        case ast.Attribute() if (made := _by_constructor(script, part)) is not None:
            return _is_index(script, made)
    return isinstance(const(script.values(part)), (tuple, list))


# ------------------------------------------------------------------- data that no loader makes
def arrays(script: Script) -> Iterator[ast.Call]:
    """The copies, in the loops that train; what changes never, and sizes, are other rules'
    business."""
    for transfer in script.transfers:
        made = _made_of(script, transfer.operand) if transfer.operand is not None else None
        if (
            made is not None
            and transfer.how in ("to", "cuda")
            and transfer.to_device
            and not transfer.loaders
            and not transfer.unknown
            and surely(t.device == "cpu" for t in transfer.tensors)
            and in_every_iteration(script, transfer.site) is not None
            and _origin(script, made.args[0]) != FIXED
            and not is_attribute(parent_of(made), *FILLED)
        ):
            yield transfer.node
