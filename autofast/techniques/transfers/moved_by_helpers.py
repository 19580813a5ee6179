"""Tensors that callers make for a function of the project which only moves what it is given:
``to_variable(torch.ones(n))``. They are made on the device; the function has nothing to do then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.edit.edits import Edits
from autofast.flow import scopes
from autofast.flow.callgraph import Callee, CallGraph
from autofast.flow.usage import given_back
from autofast.model.calls import (
    has_unpacking,
    is_name,
    is_path,
    literal_of,
    names_in,
    root_of,
    variable_name,
)
from autofast.model.contents import each_once
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import (
    ancestors,
    function_of,
    nodes_in,
    source_of,
    statement_of,
    within_any,
    within_statement,
)
from autofast.model.syntax import FUNCTIONS, is_attribute
from autofast.model.values import is_on_device
from autofast.techniques.transfers.composed import VARIABLE, hides
from autofast.techniques.transfers.creations import (
    creation_of,
    device_of,
    idle,
    is_switch,
    without_gpu,
)
from autofast.techniques.transfers.factories import (
    Creation,
    ends_here,
    factory,
    is_bound_to,
    made_earlier,
    runs_often,
)
from autofast.write.spelling import argument_expression, torch_in

# A device as code, and, where it asks for CUDA, the import for that.
Where = tuple[str, Edits | None]


def moved_by_helpers(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """What is made in the calls of such functions, or above them for them alone."""
    graph = script.analysis(CallGraph)
    for transfer in script.transfers:
        if not _only_moves(script, transfer):
            continue
        for call in graph.sites(function_of(transfer.node)):  # type: ignore[arg-type]
            callees = graph.callees(call)
            if len(callees) != 1 or graph.may_run_others(call) or has_unpacking(call):
                continue
            where = _device_at(script, transfer, call, callees[0])
            given = graph.argument(call, callees[0], ast.unparse(transfer.operand or call))
            made = _made_for(script, call, given, where)
            if where is None or made is None:
                continue
            beside = _beside(script, made) if where[1] is not None else ""
            creation = creation_of(script, made, beside or where[0])
            if creation is not None and runs_often(creation.site, hot):
                imports = () if beside else where[1] or ()
                yield replace(creation, edits=(*creation.edits, *imports, *idle(script, made)))


def _only_moves(script: Script, transfer: Transfer) -> bool:
    """Whether all that a function does is to move a parameter, perhaps only below a condition, and
    to give it back, as a ``Variable`` of old."""
    function, name = function_of(transfer.node), variable_name(transfer.operand)
    if not transfer.only_moves or not name or getattr(function, "decorator_list", True):
        return False
    ends: list[ast.expr] = []
    todo = given_back(function.body, name)  # type: ignore[arg-type]
    for expr in each_once(todo):
        match expr:
            case ast.IfExp(body=body, orelse=orelse):
                todo += (body, orelse)
            case ast.Call(args=[inner]) if script.library_function(expr) == VARIABLE:
                todo.append(inner)
            case _:
                ends.append(expr)
    return transfer.node in ends and all(e is transfer.node or is_name(e, name) for e in ends)


def _device_at(script: Script, transfer: Transfer, call: ast.Call, callee: Callee) -> Where | None:
    """The device that a function moves to, as code for the place of a call; None where what it
    depends on has no name there."""
    if transfer.how == "type_as" or (where := device_of(script, transfer)) is None:
        return None
    device = argument_expression(transfer.node, transfer.target)
    if device is not None:
        if (there := _at_call(script, device, call, callee)) is None:
            return None
        where = there
    choices: list[ast.If | ast.IfExp] = [
        *nodes_in(callee.function, ast.If),
        *nodes_in(callee.function, ast.IfExp),
    ]
    if not choices:
        return where, None
    first, *others = choices
    body = first.body if isinstance(first.body, list) else [first.body]
    if others or not within_any(transfer.node, body) or not is_switch(script, first.test):
        return None
    if script.is_call(first.test, "torch.cuda.is_available"):
        torch, imports = torch_in(source_of(call))
        return f"{where} if {torch}.cuda.is_available() else {without_gpu(script)}", imports
    asked = _at_call(script, first.test, call, callee)
    return (f"{where} if {asked} else {without_gpu(script)}", None) if asked else None


def _beside(script: Script, made: ast.Call) -> str:
    """The device of a tensor of which the size is taken: where that is not the right one, the
    function moves what is made there, as it did."""
    for node in nodes_in(made, ast.Attribute):
        tensor = node.value
        name = variable_name(tensor) if node.attr in ("size", "shape") else ""
        if name and surely(is_on_device(t) for t in script.values(tensor)):
            return f"{name}.device"
    return ""


def _at_call(script: Script, expr: ast.expr, call: ast.Call, callee: Callee) -> str | None:
    """What a function reads, for the place of a call of it: what is given for a parameter, a
    variable of the module of both, an attribute of the object whose method it is."""
    root, text = root_of(expr, ast.Attribute), source_of(expr).segment(expr)
    name = variable_name(root)
    if not name:
        return text if expr is root and literal_of(expr) is not None else None
    if scopes.is_parameter(callee.function, name):
        if callee.is_bound and name == "self":
            return text if is_attribute(call.func) and is_name(call.func.value, "self") else None
        given = script.analysis(CallGraph).argument(call, callee, name)
        return ast.unparse(given) if given is not None and expr is root and is_path(given) else None
    inner = [n for n in ancestors(call) if isinstance(n, FUNCTIONS)]
    here = source_of(expr) is source_of(call) and not any(scopes.binds(n, name) for n in inner)
    return text if here and scopes.owner(root) is source_of(call).tree else None


def _made_for(
    script: Script, call: ast.Call, given: ast.expr | None, where: Where | None
) -> ast.Call | None:
    """The factory whose result is given to the call, and to nothing else."""
    if given is None or where is None:
        return None
    needed = names_in(ast.parse(where[0]))
    made = factory(script, given)
    if made is None and (name := variable_name(given)):
        stmt = statement_of(call)
        if is_bound_to(stmt, call, name) or ends_here(stmt, given):  # type: ignore[arg-type]
            made = made_earlier(script, stmt, name, needed)
    if made is None or hides(made, needed):
        return None
    # What is there may be a view that a copy would have spread out, or like a tensor.
    spread = any(is_attribute(n, "expand") for n in within_statement(made))
    like = any(n.endswith("_like") for n in script.library_functions(made))
    return None if spread or like else made
