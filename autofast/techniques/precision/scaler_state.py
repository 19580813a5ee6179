"""The state of a GradScaler, saved and loaded beside that of the optimizer."""

from __future__ import annotations

import ast

from autofast.edit.edits import After, DictItem, Edit
from autofast.flow.positions import block
from autofast.model.events import Site
from autofast.model.script import Script, Update
from autofast.model.source import function_of, parent_of, statement_of
from autofast.write.plumbing import Way

KEY = "scaler"


def state_edits(script: Script, updates: list[Update], way: Way) -> list[Edit]:
    """The scaler's state, saved and loaded beside that of the optimizer."""
    things = {id(t) for u in updates for t in u.things}
    edits: list[Edit] = []
    loads: list[Edit] = []
    done: set[int] = set()
    for site in script.methods("load_state_dict"):
        checkpoint = _loaded_from(site, things)
        if (
            checkpoint is None
            or not isinstance(parent_of(site.node), ast.Expr)
            or id(block(statement_of(site.node))) in done
        ):
            continue
        done.add(id(block(statement_of(site.node))))
        if _is_spread(checkpoint) or (name := way.to(function_of(site.node))) is None:
            return []
        text = ast.unparse(checkpoint)
        loads.append(
            After(
                statement_of(site.node),
                f'if {text}.get("{KEY}"):\n    {name}.load_state_dict({text}["{KEY}"])',
            )
        )
    for site in script.methods("state_dict"):
        display = _display_of(site, things)
        if display is None or id(display) in done:
            continue
        done.add(id(display))
        if _has_key(display) or (name := way.to(function_of(site.node))) is None:
            return []
        edits.append(DictItem(display, KEY, f"{name}.state_dict()"))
    return edits + loads if edits else []


def _is_spread(checkpoint: ast.expr) -> bool:
    """``Snapshot(**checkpoint)``: a new key would be one argument too many."""
    wanted = ast.dump(checkpoint)
    for node in ast.walk(function_of(checkpoint)):
        if isinstance(node, ast.keyword) and node.arg is None and ast.dump(node.value) == wanted:
            return True
        if isinstance(node, ast.For) and ast.dump(node.iter).startswith(wanted[:-1]):
            return True
    return False


def _loaded_from(site: Site, things: set[int]) -> ast.expr | None:
    """``checkpoint`` in ``optimizer.load_state_dict(checkpoint["optimizer"])``."""
    call = site.node
    if (
        not any(id(o.this) in things for o in site)
        or not isinstance(call, ast.Call)
        or not call.args
    ):
        return None
    given = call.args[0]
    if isinstance(given, ast.Subscript) and isinstance(given.value, (ast.Name, ast.Attribute)):
        return given.value
    return None


def _display_of(site: Site, things: set[int]) -> ast.Dict | ast.Call | None:
    """The dict in ``{"model": ..., "optimizer": optimizer.state_dict()}``."""
    if not any(id(o.this) in things for o in site):
        return None
    parent = parent_of(site.node)
    if isinstance(parent, ast.Dict):
        return parent if _is_saved(parent) else None
    if isinstance(parent, ast.keyword):
        call = parent_of(parent)
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "dict"
        ):
            return call
    return None


def _is_saved(display: ast.Dict) -> bool:
    return any(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in display.keys)


def _has_key(display: ast.Dict | ast.Call) -> bool:
    keys = (
        display.keys
        if isinstance(display, ast.Dict)
        else [ast.Constant(k.arg) for k in display.keywords]
    )
    return any(isinstance(k, ast.Constant) and k.value == KEY for k in keys)
