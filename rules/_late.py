"""Numbers that are read early and used late, or in few steps: the tensor waits in the variable, and is read where it is used.

``d_x = output.mean().item()`` in the middle of a step makes the host wait there, and the device wait for the host afterwards. As
``d_x = output.mean().detach()``, read by ``d_x.item()`` where it is printed, it costs nothing until then.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from autofast.edits import Before, Edit, Rewrite, Wrap
from autofast.read.source import function_of, parent_of, source_of, statement_of
from autofast.read.values import Const, Ref
from autofast.script import Script

from ._later import Unfit, needs_of, put_off, sink_of
from ._reads import Read, kept
from ._turns import Loop, binds, declared, first_in, follows, gate_of, is_step, loop_of, mentions, position, within, works_between


# ------------------------------------------------------------------------------------------------ variables
@dataclass(eq=False)
class Variable:
    """A variable that holds a number which has just been read, and the places where it is used.

    Attributes:
        each: uses in every turn; ``seldom``: in few; ``outside``: after the loop.
    """

    name: str
    statement: ast.stmt
    loop: Loop | None
    how: str
    each: list[ast.Name] = field(default_factory=list)
    seldom: list[ast.Name] = field(default_factory=list)
    outside: list[ast.Name] = field(default_factory=list)


def variable_of(script: Script, target: ast.Name, statement: ast.stmt, loop: Loop | None, how: str) -> Variable:
    """Where the number in ``target`` goes; raises :class:`Unfit` where that is not certain."""
    scope = function_of(target)
    found = Variable(target.id, statement, loop, how)
    if target.id in declared(scope) or (not isinstance(scope, ast.Module) and not binds(scope, target.id)):
        raise Unfit(f"`{target.id}` is a global")
    elsewhere: list[ast.Name] = []
    for node in sorted(mentions(scope, target.id), key=position):
        inside = within(node, loop) if loop is not None else True
        if node is target:
            continue
        if function_of(node) is not scope:
            raise Unfit(f"`{target.id}` is used in a function of its own (line {node.lineno})")
        if not isinstance(node.ctx, ast.Load):
            if inside:
                raise Unfit(f"`{target.id}` gets other values too (line {node.lineno})")
            elsewhere.append(node)
        elif not inside:
            found.outside.append(node)
        elif not follows(node, statement):
            raise Unfit(f"`{target.id}` is used in the next step (line {node.lineno})")
        else:
            gate = gate_of(node, loop)
            (found.each if gate is None or within(statement, gate) else found.seldom).append(node)
        if isinstance(node.ctx, ast.Load) and _spells_its_name(node):
            raise Unfit(f"line {node.lineno} prints the expression itself")
    if found.outside and elsewhere:
        raise Unfit(f"`{target.id}` gets other values too (line {elsewhere[0].lineno})")
    return found


def _spells_its_name(node: ast.Name) -> bool:
    """``f"{loss=}"``, where another expression would print another text."""
    part = parent_of(node)
    string = parent_of(part) if isinstance(part, ast.FormattedValue) else None
    if not isinstance(string, ast.JoinedStr):
        return False
    n = next(i for i, v in enumerate(string.values) if v is part)
    before = string.values[n - 1] if n else None
    return isinstance(before, ast.Constant) and str(before.value).rstrip().endswith(f"{node.id}=")


def read_at_use(script: Script, variable: Variable) -> tuple[list[Edit], bool]:
    """The edits that read a variable, which holds a tensor now, wherever it is used; and whether that spares the host a wait."""
    edits: list[Edit] = []
    gains = bool(variable.seldom or variable.outside)
    rest: list[ast.Name] = []
    for statement, uses in _by_statement(variable.each):
        try:
            edits += _put_off(script, statement, uses, variable.how)
            gains = True
        except Unfit:
            rest += uses
    if rest:
        gains = works_between(script, variable.statement, statement_of(rest[0]))
    for node in sorted([*rest, *variable.seldom, *variable.outside], key=position):
        edits.append(Wrap(node, reading(variable.how)))
    return edits, gains


def reading(how: str) -> str:
    """The template that reads a tensor."""
    return "{}.item()" if how == "item" else f"{how}({{}})"


def _by_statement(uses: list[ast.Name]) -> list[tuple[ast.stmt, list[ast.Name]]]:
    groups: dict[int, tuple[ast.stmt, list[ast.Name]]] = {}
    for use in uses:
        statement = statement_of(use)
        groups.setdefault(id(statement), (statement, []))[1].append(use)
    return list(groups.values())


def _put_off(script: Script, statement: ast.stmt, uses: list[ast.Name], how: str) -> list[Edit]:
    loop = loop_of(statement)
    if loop is None or not is_step(script, loop):
        raise Unfit("")
    sink = sink_of(script, statement, [Read(u, u, how, True) for u in uses], loop)
    return put_off(script, [sink], loop, needs_of(script, sink, loop))


def delayed(script: Script, statement: ast.stmt, read: Read, loop: Loop | None) -> Variable:
    """``v = loss.item()`` as a variable whose read may be delayed; raises :class:`Unfit`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or statement.value is not read.node:
        raise Unfit("")
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        raise Unfit("")
    return variable_of(script, target, statement, loop, read.how)


def keep(script: Script, read: Read) -> Edit:
    """The edit by which the tensor is kept instead of the number."""
    return Rewrite(read.node, kept(script, read.core), holes={"core": read.core})


# ------------------------------------------------------------------------------------------------ dicts of logged values
def logged(script: Script, base: ast.Name, reads: list[Read], loop: Loop) -> list[Edit]:
    """The edits that fill a dict with tensors in each turn, and read them in the turns that show it.

    ``reads`` are all reads of the loop. Raises :class:`Unfit` where the dict is not made anew in each turn or is used in other ways.
    """
    scope = function_of(base)
    name = base.id
    if name in declared(scope) or (not isinstance(scope, ast.Module) and not binds(scope, name)):
        raise Unfit(f"`{name}` is a global")
    numbers = {id(r.node): r for r in reads}
    made: list[ast.Assign] = []
    values: list[ast.expr] = []
    uses: list[ast.Name] = []
    for node in sorted(mentions(scope, name), key=position):
        parent, statement = parent_of(node), statement_of(node)
        if function_of(node) is not scope or not within(node, loop):
            raise Unfit(f"`{name}` is used elsewhere too (line {node.lineno})")
        if isinstance(node.ctx, ast.Store):
            if not isinstance(statement, ast.Assign) or statement.targets != [node] or not _is_new(script, statement.value):
                raise Unfit(f"`{name}` gets other values too (line {node.lineno})")
            made.append(statement)
            values += statement.value.values if isinstance(statement.value, ast.Dict) else []
        elif isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store) and isinstance(statement, ast.Assign):
            if statement.targets != [parent]:
                raise Unfit(f"`{name}` is filled in a way that is not understood (line {node.lineno})")
            values.append(statement.value)
        else:
            uses.append(node)
    if len(made) != 1 or loop_of(made[0]) is not loop or not all(follows(n, made[0]) for n in uses):
        raise Unfit(f"`{name}` is not made anew in each step")
    last = max((position(v) for v in values), default=position(made[0]))
    gates: dict[int, tuple[ast.If, list[ast.AST]]] = {}
    for node in uses:
        gate = gate_of(node, loop)
        if gate is None or position(gate) < last or any(within(v, gate) for v in values):
            raise Unfit(f"`{name}` is used in every step (line {node.lineno})")
        gates.setdefault(id(gate), (gate, []))[1].append(node)
    tensors = [numbers[id(v)] for v in values if id(v) in numbers]
    if not tensors or not gates or not all(id(v) in numbers or _is_number(script, v) for v in values):
        raise Unfit(f"`{name}` holds more than numbers")
    source = source_of(base)
    key, value = source.fresh("key", "name", "label"), source.fresh("value", "number", "reading")
    reader = f"{value}.item()"
    if len(tensors) < len(values) or len(gates) > 1 or any(r.how != "item" for r in tensors):
        reader = f"{value}.item() if hasattr({value}, 'item') else {value}"
    edits: list[Edit] = [keep(script, r) for r in tensors]
    for gate, nodes in gates.values():
        edits.append(Before(first_in(gate, nodes), f"{name} = {{{{{key}: {reader} for {key}, {value} in {name}.items()}}}}"))
    return edits


def _is_new(script: Script, value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return all(k is not None for k in value.keys)
    if not isinstance(value, ast.Call) or value.args or value.keywords:
        return False
    things = script.values(value.func)
    return bool(things) and all(isinstance(t, Ref) and t.name in ("builtins.dict", "collections.OrderedDict") for t in things)


def _is_number(script: Script, value: ast.expr) -> bool:
    """A plain number without ``.item()``: what is computed in Python, not by NumPy."""
    if isinstance(value, ast.Constant):
        return True
    return bool(script.values(value)) and all(isinstance(t, Const) for t in script.values(value))
