"""How a file spells ``torch``, which device holds what, which torch the project pins."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Set

from autofast.edit.edits import Import
from autofast.facts.set_up import chooses_devices
from autofast.flow.program import Flow, definitions_of, graph_of
from autofast.flow.scopes import is_parameter, loaded_in, own_nodes, stored_in
from autofast.model.calls import is_name
from autofast.model.events import (
    CallFrame,
    LoopFrame,
    Stack,
    TryFrame,
    inside,
    is_undecided,
)
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import (
    Source,
    at,
    function_of,
    is_at_top,
    is_same_function,
    parent_of,
    source_of,
    statement_of,
    within_statement,
)
from autofast.model.syntax import COMPREHENSIONS, FUNCTIONS, is_attribute, is_read
from autofast.model.tensors import NOT_CUDA, device_kinds, target_of
from autofast.model.values import (
    Ext,
    Given,
    Method,
    Num,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    const,
    is_const,
    is_named,
    surely_named,
)
from autofast.read.torch_age import catches
from autofast.write.imports import Spelled

DEVICES = wordset("cpu cuda mps xpu")


# ---------------------------------------------------------------------------------- names in a file
def torch_name(source: Source) -> str:
    """What the module ``torch`` is called in a file; empty where it is not imported."""
    return _module_name(source, "torch")


def _module_name(source: Source, module: str) -> str:
    for node in source.each(ast.Import):
        if is_at_top(node):
            for alias in node.names:
                if alias.name == module or (
                    alias.name.startswith(f"{module}.") and alias.asname is None
                ):
                    return alias.asname or module
    return ""


def module_name(source: Source, module: str, short: str) -> Spelled:
    """What a module is called in a file, and the import that is needed for it, under its short
    name.
    """
    if known := _module_name(source, module):
        return known, ()
    name = source.fresh(short)
    return name, (Import(source, f"import {module} as {name}"),)


def torch_in(source: Source) -> Spelled:
    """The name of the module ``torch`` in a file, and the import that is needed for it."""
    if known := torch_name(source):
        return known, ()
    if _is_starred(source):
        used = any(is_name(n, "torch") for n in source.nodes)
        return "torch", () if used else (Import(source, "import torch"),)
    name = source.fresh("torch")
    return name, (Import(source, "import torch" if name == "torch" else f"import torch as {name}"),)


def inference_mode(script: Script, called: ast.Name | ast.Attribute) -> Spelled:
    """``torch.inference_mode()``, spelled like ``torch.no_grad`` was."""
    if is_attribute(called) and script.values(called.value) == {Ref("torch")}:
        return f"{source_of(called).segment(called.value)}.inference_mode()", ()
    torch, imports = torch_in(source_of(called))
    return f"{torch}.inference_mode()", imports


def _is_starred(source: Source) -> bool:
    """Nothing in the file binds ``torch`` if it is used: it comes through ``from ... import *``."""
    stars = any(
        any(a.name == "*" for a in n.names) for n in of_kind(source.tree.body, ast.ImportFrom)
    )
    uses = [n for n in source.nodes if is_name(n, "torch")]
    others = (getattr(n, field, "") for n in source.nodes for field in ("asname", "arg", "name"))
    return stars and all(is_read(n) for n in uses) and "torch" not in others


# ------------------------------------------------------------------------------------------ devices
def is_device_object(found: Values) -> bool:
    """Certainly a ``torch.device``, which has a ``.type`` (a string like "cuda:0" has not)."""
    return surely_named(found, Ext, "torch.device")


def requires_cuda(script: Script) -> bool:
    """The script cannot run without CUDA: under no condition it sets the CUDA device, asks for nccl
    or moves a model or a tensor there. Of a notebook, the other cells can.
    """
    if script.entry.is_notebook:
        return False
    steps = {step.loop for step in script.steps}
    around = steps | {f.node for step in script.steps for f in step.stack}
    for site in script.log.of(
        "torch.cuda.set_device", "torch.distributed.init_process_group", "move_model", "move"
    ):
        for occurrence in site:
            if not _certain(script, site.node, occurrence.stack):
                continue
            if any(f.node not in around for f in of_kind(occurrence.stack, LoopFrame)):
                continue  # a loop that may not turn
            if site.kind == "move" and not any(inside(occurrence.stack, x) for x in steps):
                continue  # perhaps when all is trained
            if site.kind == "torch.cuda.set_device" or occurrence.data.get("kinds") == {"cuda"}:
                return True
            if (
                site.kind == "torch.distributed.init_process_group"
                and const(occurrence.args.get(0, "backend")) == "nccl"
            ):
                return True
    return False


def _certain(script: Script, node: ast.AST, stack: Stack) -> bool:
    """Every run comes to this place: no condition around it, no early end before it, nor may it
    raise and the rest goes on.
    """
    if any((isinstance(f, TryFrame) and catches(f)) or (is_undecided(f)) for f in stack):
        return False
    calls = [node, *(f.node for f in stack if isinstance(f, CallFrame))]
    flow = script.analysis(Flow)
    return not any(
        flow.graph(call).leaving_before(call) for call in calls if isinstance(call, ast.Call)
    )


def named_devices(script: Script) -> frozenset[str]:
    """The kinds of device that the script names: cpu, cuda, mps, xpu, accel, option, ?."""
    return frozenset(kind for kind, _ in script.analysis(_named))


def only_cuda(script: Script) -> bool:
    """Every device that the script names is a CUDA device or the CPU: no other accelerator takes
    part.

    ``x.to(y.device)`` names none of its own; what a framework brings somewhere is not known.
    """
    if requires_cuda(script):
        return True
    return not script.frameworks and not _own(script) & NOT_CUDA


def may_be_mps(script: Script, kinds: Set[str]) -> bool:
    """Whether a device of these kinds may be Apple's GPU: the script knows of MPS, asks for
    whatever accelerator there is, or leaves it to others.

    An option that names a device is none where nothing else in the script speaks of MPS.
    """
    if requires_cuda(script) or not kinds & NOT_CUDA:
        return False
    knows = bool({"mps", "accel"} & _own(script)) or bool(script.frameworks)
    asks = script.calls("torch.backends.mps.is_available", "torch.backends.mps.is_built")
    return bool(kinds & {"mps", "accel"}) or knows or bool(asks) or _is_left_open(script, kinds)


def has_float64(script: Script) -> bool:
    """Whether the device has float64, which MPS has not."""
    return not may_be_mps(script, _own(script))


def _own(script: Script) -> set[str]:
    """The kinds of device that are not those of something else (``x.to(y.device)``)."""
    return {kind for kind, derived in script.analysis(_named) if not derived}


def _is_left_open(script: Script, kinds: Set[str]) -> bool:
    """Nothing says which device it is, and the script names none itself."""
    return "?" in kinds and not only_cuda(script)


def _named(script: Script) -> frozenset[tuple[str, bool]]:
    """``script.analysis(_named)``: what :func:`_names` gives, once each."""
    return frozenset(_names(script))


def _names(script: Script) -> Iterator[tuple[str, bool]]:
    """Each kind of device that the script names, and whether something else is on it."""
    for site in script.log.of("move", "move_model"):
        moves: list[tuple[Values | None, set[str]]] = []
        for occurrence in site:
            how = occurrence.data.get(
                "how", getattr(getattr(site.node, "func", None), "attr", "to")
            )
            if how == "type":
                yield from ((kind, False) for kind in {"cuda"} & occurrence.data["kinds"])
            elif how in ("to", "cuda", "xpu"):
                given, kinds, _ = target_of(how, occurrence.args)
                devices = given.values if given is not None else None
                moves.append((devices, kinds - {"tensor"}))
        # Where it is a tensor's on some ways, it is on those on which the tensor is not known, too.
        of_tensor = any(_is_of_another(t) for devices, _ in moves for t in devices or ())
        for devices, kinds in moves:
            derived = devices is not None and all(
                _is_of_another(t) or (of_tensor and _is_of_unknown(t)) for t in devices
            )
            yield from ((kind, derived) for kind in kinds)
    for site in script.calls("torch.device", "torch.set_default_device"):
        for occurrence in site:
            named = occurrence.args.get(0, "device") | occurrence.args.get(0, "type")
            yield from ((kind, False) for kind in device_kinds(named))
    if script.calls("torch.accelerator.current_accelerator"):
        yield "accel", False
    if script.calls("torch.cuda.set_device", "torch.set_default_tensor_type"):
        yield "cuda", False


def _is_of_unknown(device: Thing) -> bool:
    return (
        isinstance(device, Method) and device.name == "device" and isinstance(device.this, Unknown)
    )


def _is_of_another(device: Thing) -> bool:
    """``y.device`` of a tensor, which it has from where that was moved to."""
    if isinstance(device, Method):
        return device.name == "device" and isinstance(device.this, (Tensor, Num))
    made = is_named(device, Ext, "torch.device")
    return made and device.node is None and "kind" in device.attrs  # type: ignore[attr-defined]


def is_taken(source: Source, *names: str) -> bool:
    """Whether the file may use a name of Python's, such as ``sum``, for something of its own."""
    return any(
        getattr(n, "name", None) in names
        or getattr(n, "asname", None) in names
        or getattr(n, "arg", None) in names
        or (isinstance(n, ast.Name) and n.id in names and not is_read(n))
        for n in source.nodes
    )


def argument_expression(call: ast.Call, given: Given | None) -> ast.expr | None:
    """The expression of an argument where the call itself holds it: what comes through ``**`` or a
    partial means nothing there.
    """
    expr = given.expr if given is not None and not given.via else None
    return expr if expr is not None and expr in ast.walk(call) else None


def uses_gpu(script: Script) -> bool:
    """Something in the script can bring tensors or models to a GPU, or a framework does it.

    Tensors that go where a model is stay with one that nothing moves.
    """
    found = named_devices(script) - {"cpu"}
    moved = any(m.moves for m in script.models)
    return bool(script.frameworks or found - {"?"} or (found and moved))


def cuda_test(script: Script, place: ast.AST) -> Spelled:
    """An expression that is true where training runs on CUDA, valid before the statement."""
    if (name := device_before(script, place) or _device_attribute(script, place)) is not None:
        return f'{name}.type == "cuda"', ()
    torch, edits = torch_in(source_of(place))
    return f"{torch}.cuda.is_available()", edits


def chooses_devices_late(script: Script, place: ast.stmt) -> str:
    """The line that sets CUDA_VISIBLE_DEVICES, where that is not certainly before ``place``: CUDA
    reads it when it is first asked.
    """
    return _late(script, chooses_devices(script), place)


def chooses_gpu_late(script: Script, place: ast.stmt) -> str:
    """The line of ``torch.cuda.set_device()``, where that is not certainly before ``place``: until
    then, ``"cuda"`` is another GPU.
    """
    return _late(script, (s.node for s in script.calls("torch.cuda.set_device")), place)


def _late(script: Script, nodes: Iterable[ast.AST], place: ast.stmt) -> str:
    return next((at(node) for node in nodes if _perhaps_after(script, node, place)), "")


def _perhaps_after(script: Script, node: ast.AST, place: ast.stmt) -> bool:
    if is_same_function(node, place):
        return graph_of(script, place).may_follow(node, place)
    return not is_at_top(node)


def device_before(script: Script, place: ast.AST) -> str | None:
    """A variable that certainly holds a ``torch.device`` when the statement of ``place`` runs."""
    return _before(script, place, is_device_object)


def device_named_before(script: Script, place: ast.AST) -> str | None:
    """The same, also one that holds the name of a device (``"cuda" if ... else "cpu"``)."""
    return _before(script, place, _is_device)


def _is_device(found: Values) -> bool:
    """Certainly a ``torch.device``, or the name of one."""
    names = [t.value for t in found if is_const(t, str)]
    named = len(names) == len(found) > 0 and all(n.split(":")[0] in DEVICES for n in names)
    return named or is_device_object(found)


def _before(script: Script, place: ast.AST, fits: Callable[[Values], bool]) -> str | None:
    scope = function_of(place)
    definitions = definitions_of(script, place)
    graph, own = graph_of(script, place), [*own_nodes(scope)]
    for name in _device_names(script, scope, fits):
        stores = [n for n in of_kind(own, ast.Name) if n.id == name and not is_read(n)]
        if stores and is_parameter(scope, name):  # device = torch.device(device)
            here = graph.place(place)
            if any(graph.place(n) is not here and graph.dominates(n, place) for n in stores):
                return name
        elif is_parameter(scope, name) or definitions.is_bound_at(place, name):
            return name
    if isinstance(scope, ast.Module):
        return None
    module = source_of(place).tree
    local, loaded = stored_in(scope), loaded_in(scope)
    for name in _device_names(script, module, fits):
        if name in local or is_parameter(scope, name):
            continue
        if name in loaded or _is_bound_above(script, scope, name):
            return name  # a global that the function uses already, or may use
    return None


def _device_attribute(script: Script, place: ast.AST) -> str | None:
    """``args.device`` or ``self.device``, which is read or stored before the statement of ``place``
    whatever happens, and is a ``torch.device`` wherever the project stores one of its name.
    """
    scope = function_of(place)
    graph, here = graph_of(script, place), statement_of(place)
    stores = [n for n in of_kind(own_nodes(scope), ast.Name) if not is_read(n)]
    for node in of_kind(own_nodes(scope), ast.Attribute):
        owner = node.value
        known = not is_read(node) or is_device_object(script.values(node))
        if not isinstance(owner, ast.Name) or not known or not is_evaluated(node):
            continue
        before = statement_of(node) is not here and graph.dominates(node, place)
        anew = (n for n in stores if n.id == owner.id and not graph.dominates(n, node))
        if before and not any(anew) and _holds_devices(script, node.attr):
            return ast.unparse(node)
    return None


def is_evaluated(node: ast.AST) -> bool:
    """Whether an expression is computed wherever its statement runs."""
    return not any(
        isinstance(outer, (*FUNCTIONS, *COMPREHENSIONS, ast.IfExp, ast.BoolOp))
        for outer in within_statement(node)
    )


def _holds_devices(script: Script, name: str) -> bool:
    """Whether every attribute of this name that the project stores is a device."""
    every = (n for s in script.sources for n in s.each(ast.Attribute) if n.attr == name)
    stored = [parent_of(n) for n in every if not is_read(n)]
    given = [s.value for s in stored if isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value]
    return len(given) == len(stored) > 0 and all(
        is_device_object(script.values(expr)) for expr in given
    )


def _is_bound_above(script: Script, function: ast.AST, name: str) -> bool:
    """Whether a variable of the module has its value where a function of the module is defined."""
    module = function_of(function)
    return isinstance(module, ast.Module) and definitions_of(script, module).is_bound_at(
        function, name
    )


def _device_names(script: Script, scope: ast.AST, fits: Callable[[Values], bool]) -> Iterator[str]:
    """Variables of a scope that hold nothing but what fits: devices, or names of them."""
    bound: dict[str, bool] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and not is_read(node):
            parent = node._af_parent  # type: ignore[attr-defined]
            single = isinstance(parent, ast.Assign) and node in parent.targets
            fine = single and fits(script.values(parent.value))
            if fine or not single or script.reached(parent.value):
                bound[node.id] = bound.get(node.id, True) and fine
        elif isinstance(node, ast.Name) and is_parameter(scope, node.id):
            here = statement_of(node)
            if isinstance(here, ast.Assign) and any(is_name(t, node.id) for t in here.targets):
                continue  # read for the last time before it gets another value
            bound[node.id] = bound.get(node.id, True) and fits(script.values(node))
    yield from (name for name, fine in bound.items() if fine)
