"""Networks on the way to a loss that nothing trains: a teacher, the target of a distillation. A
backward computes their gradients, and nobody looks at them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from autofast.facts.freezing import may_freeze
from autofast.facts.gradient_accesses import DIFFERENTIATES, HOOKS
from autofast.facts.parts import parts_of
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, Verdict, expressions_holding, first_bad
from autofast.model.calls import is_name, stands_alone, taker_of
from autofast.model.contents import without_wrappers
from autofast.model.events import Site
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import nodes_in, statement_of
from autofast.model.syntax import VARIABLES, is_attribute, is_stored
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Bound,
    Cls,
    Ext,
    Func,
    Inst,
    Method,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    certainly,
    is_named,
    of_kind,
)
from autofast.read.recover.models import has_fast_path

Parts = Mapping[int, Thing]
PARAMETERS = ("parameters", "named_parameters")
# By which parameters are got at, or what happens to their gradients.
SHOWING = HOOKS | wordset("""parameters named_parameters modules named_modules children named_children apply
    get_parameter get_submodule requires_grad_ grad _parameters _modules __dict__""")
MODES = wordset("to cuda cpu float half eval train training forward state_dict load_state_dict")
# What needs a gradient of inputs, or of what networks give; what asks whether there will be one, or
# gives parameters under another name.
NEEDING = HOOKS | wordset("requires_grad_ retain_grad requires_grad is_grad_enabled keep_vars")
TAKING = wordset(
    "copy.deepcopy builtins.isinstance builtins.len builtins.hasattr builtins.print builtins.type "
    "builtins.id torch.nn.DataParallel torch.nn.parallel.DistributedDataParallel torch.compile "
    "torch.nn.Sequential torch.nn.ModuleList builtins.enumerate builtins.zip"
)


def untrained(script: Script) -> Iterator[ast.stmt]:
    """The statements that run such a network, and nothing else that a backward goes through.

    The gradients of its parameters are all that the backward computes there: its inputs need none.
    """
    if script.unread or may_freeze(script) or not script.optimizers or _asks_for_gradients(script):
        return
    if not all(o.params and all(map(is_module, o.params)) for o in script.optimizers):
        return
    trained = parts_of(
        *(m for o in script.optimizers for p in o.params for m in without_wrappers(p))
    )
    passes = {s.node: s for s in script.log.of("forward")}
    found: dict[ast.stmt, None] = {}
    for step in script.steps:
        for site in step.forwards:
            stmt = statement_of(site.node)
            goes = [b for b in step.backwards if any(site.node in t.passes for t in b.tensors)]
            bare = isinstance(stmt, ast.Assign) and stmt.value is site.node
            fast = any(has_fast_path(o.this) for o in site)
            if fast or not bare or not goes or not _is_apart(site, trained):
                continue
            through = {p for t in tensors_in(script.values(site.node)) for p in t.passes}
            others = [passes[p] for p in through if p in passes]
            ways = [t.passes for b in goes for t in b.tensors]
            trains = all(
                any(p in passes and not _is_apart(passes[p], trained) for p in way) for way in ways
            )
            if trains and all(_is_apart(s, trained) for s in others) and _is_hidden(script, site):
                found[stmt] = None
    yield from found


def _asks_for_gradients(script: Script) -> bool:
    """Whether inputs or results may need gradients, one is looked at that is none of those of a
    loop over parameters, or a parameter is named by itself: an optimizer may have it, or a network.
    """
    if any(kind.startswith(DIFFERENTIATES) for (kind, _), _ in script.log.each()):
        return True
    loops: list[ast.For | ast.comprehension] = [*script.each(ast.For)]
    loops += script.each(ast.comprehension)
    over = {
        n.id
        for loop in loops
        if any(is_attribute(n, *PARAMETERS) for n in nodes_in(loop.iter, ast.Attribute))
        for n in nodes_in(loop.target, ast.Name)
    }
    if any(k.arg in NEEDING for k in script.each(ast.keyword)) or any(
        n.attr in NEEDING
        or (n.attr == "grad" and not is_name(n.value, *over) and not script.may_be(n, Ref))
        for n in script.each(ast.Attribute)
    ):
        return True
    return any(
        not is_name(n, *over) and not is_name(getattr(n, "value", None), *over)
        for n in expressions_holding(
            script, lambda found: any(t.param for t in of_kind(found, Tensor))
        )
        if isinstance(n, VARIABLES) and not _is_set(script, n)
    )


def _is_set(script: Script, parameter: ast.expr) -> bool:
    """Whether a parameter is only given its numbers: ``nn.init.zeros_(layer.bias)``."""
    if (call := taker_of(parameter)) is None or not stands_alone(call):
        return False
    return script.library_function(call).startswith("torch.nn.init.")


def _is_apart(site: Site, trained: Parts) -> bool:
    """Whether all modules that are called there have no part that an optimizer updates, and get
    nothing that needs a gradient.
    """
    return all(
        o.grad == "on"
        and o.this is not None
        and all(
            is_module(m) and parts_of(m).keys().isdisjoint(trained)
            for m in without_wrappers(o.this)
        )
        and certainly(frozenset(o.data["inputs"]), Tensor)
        and not any(t.grad or t.param for t in o.data["inputs"])
        for o in site
    )


def _is_hidden(script: Script, site: Site) -> bool:
    """Whether nothing gets at the parameters of the modules that are called there."""
    parts = parts_of(*(m for o in site for m in without_wrappers(o.this)))

    def holds(found: Values) -> bool:
        return any(
            is_module(t) and not parts_of(t).keys().isdisjoint(parts)
            for thing in found
            if isinstance(thing, Ext | Inst)
            for t in without_wrappers(thing)
        )

    def judge(use: Usage) -> Answer:
        node = use.node
        match use.act:
            case Act.ASKED if isinstance(node, ast.Attribute):
                own = is_name(node.value, "self")
                gives = script.values(node)
                known = bool(gives) and not any_of(gives, Tensor, Unknown, Method)
                if _is_set(script, node):
                    return Verdict.GOES_ON
                if node.attr in SHOWING or (is_stored(node) and not own):
                    return "asks for parameters of"
                if not (known or node.attr in MODES or is_stored(node)):
                    return "asks for something of"
            case Act.GIVEN if isinstance(node, ast.Call):
                called = script.called(node)
                known = all(
                    isinstance(t, Func | Bound | Cls) or is_named(t, Ref, TAKING) for t in called
                )
                if not (called and known) and not is_name(node.func, "super"):
                    return "hands on"
            case Act.OTHER | Act.FILLED | Act.YIELDED if not isinstance(node, ast.Lambda):
                return "has another use for"
        return Verdict.GOES_ON

    return first_bad(script, holds, judge) is None
