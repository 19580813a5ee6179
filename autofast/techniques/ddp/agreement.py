"""What must be alike in all processes, or they train different models without a word.

What is made before the training: data, splits, vocabularies. The parameters: nothing but the
averaged gradients may change them. What a model keeps from one batch to the next. (That all take
the same path through a step is asked on the way through it: :mod:`.uniformity.notes`.)
"""

from __future__ import annotations

import ast

from autofast.facts.kept_by_forward import changed_by_forward
from autofast.flow.program import Flow
from autofast.model.calls import call_of, is_method
from autofast.model.events import Occurrence
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import at, enclosing, nodes_in, parent_of, statement_of, within_statement
from autofast.model.syntax import COMPREHENSIONS, TAKERS, is_attribute
from autofast.model.values import (
    Const,
    Ext,
    Inst,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    any_named,
    begins,
    is_const,
    of_kind,
)
from autofast.ops import draws, is_in_place
from autofast.rule import Refusal
from autofast.techniques.ddp.setup import Extent

DRAWS = tuple(
    """random. numpy.random. torch.rand torch.normal torch.bernoulli torch.multinomial secrets.
    uuid.""".split()
)
SEEDS = ("random.seed", "numpy.random.seed", "torch.manual_seed")
NO_DRAW = tuple(
    """random.seed numpy.random.seed random.getstate random.setstate numpy.random.get_state
    numpy.random.set_state""".split()
)
OWN_GENERATORS = tuple(
    """numpy.random.default_rng numpy.random.RandomState random.Random random.SystemRandom
    torch.Generator""".split()
)
ORDERED = tuple(
    """builtins.list builtins.enumerate builtins.tuple builtins.iter builtins.zip random.sample
    numpy.array""".split()
)


def check(script: Script, extent: Extent) -> None:
    """Raises :class:`Refusal` where something may differ between processes."""
    _orders(script)
    _draws_before(script, extent)
    for site in script.log.of("inplace"):
        _written(script, site.node, list(site))
    for inst in {id(t): t for s in script.steps for t in s.models if isinstance(t, Inst)}.values():
        _kept(script, inst)


# ------------------------------------------------------------------------------ what is made before
def _orders(script: Script) -> None:
    """The order of a set of strings is another one in every process."""
    for site in script.log.of("iterate", *ORDERED):
        for expr in _gone_over(site.node):
            sets = [t for t in of_kind(script.values(expr), Seq) if _is_set(script, t)]
            if any(not _are_numbers(t) for t in sets) and not _is_sorted(script, site.node):
                raise Refusal(
                    f"the order of the set on {at(expr)} is another one in every process: sort it"
                )


def _is_set(script: Script, made: Seq) -> bool:
    if called := script.called(made.node):
        return any_named(called, Ref, ("builtins.set", "builtins.frozenset"))
    return made.kind == "set" or isinstance(made.node, (ast.Set, ast.SetComp))


def _gone_over(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, TAKERS):
        return [node.iter]
    if isinstance(node, COMPREHENSIONS):
        return [g.iter for g in node.generators]
    return list(node.args) if isinstance(node, ast.Call) else []


def _are_numbers(made: Seq) -> bool:
    return surely(is_const(t, int, float) for t in made.any())


def _is_sorted(script: Script, node: ast.AST) -> bool:
    """What is made of it is sorted, counted or made a set again at once."""
    for outer in (node, *within_statement(node)):
        if names := script.library_functions(outer):
            if names & {
                f"builtins.{n}"
                for n in ("sorted", "len", "sum", "max", "min", "set", "any", "all", "frozenset")
            }:
                return True
        if isinstance(outer, ast.SetComp):
            return True
    match statement_of(node):
        case ast.Assign(targets=targets):
            kept = of_kind(targets, ast.Name)
            return any(_is_sorted_later(script.analysis(Flow), t) for t in kept)
    return False


def _is_sorted_later(flow: Flow, target: ast.Name) -> bool:
    """``words = list(set(text)); words.sort()``"""
    for use in flow.definitions(target).uses_of(target):
        method = parent_of(use)
        called = is_attribute(method, "sort") and call_of(method) is not None
        if called and flow.graph(target).postdominates(use, target):
            return True
    return False


def _draws_before(script: Script, extent: Extent) -> None:
    """Before the group is made, nothing is drawn that is not seeded; and no generator of its own
    goes without a seed.
    """
    seeded: set[str] = set()
    for (kind, _), site in sorted(
        script.log.each(), key=lambda item: min((o.order for o in item[1]), default=0)
    ):
        for occurrence in site:
            if kind in SEEDS:
                seeded.add(first_part(kind))
            if (
                kind in OWN_GENERATORS
                and not bool(occurrence.args.positional or occurrence.args.named)
                and not _seeded_later(script, site.node)
            ):
                raise Refusal(
                    f"{kind} on {at(site)} has no seed: every process would draw other numbers for what must be the same"
                )
            if (
                kind.startswith(DRAWS)
                and not kind.startswith((*NO_DRAW, *OWN_GENERATORS))
                and first_part(kind) not in seeded
            ):
                if extent.statement(occurrence.stack, site.node) is None:
                    raise Refusal(
                        f"{kind} on {at(site)} draws before the training starts, without a seed: seed it first"
                    )


def _seeded_later(script: Script, node: ast.AST) -> bool:
    """``torch.Generator().manual_seed(0)``, or in a later statement."""
    return any(
        isinstance(o.this, Ext) and o.this.node is node
        for site in script.methods("manual_seed")
        for o in site
    )


# ----------------------------------------------------------------------------- parameters and state
def _written(script: Script, node: ast.AST, occurrences: list[Occurrence]) -> None:
    """A parameter that gets random numbers while it trains gets others in each process."""
    if not is_method(node):
        return
    loops = {s.loop for s in script.steps}
    for occurrence in occurrences:
        this = occurrence.this
        if not (isinstance(this, Tensor) and this.param) or not any(
            f.node in loops for f in occurrence.stack
        ):
            continue
        drawn = (draws(node.func.attr) and is_in_place(node.func.attr)) or any(
            begins(t, Ref, DRAWS)
            for a in node.args
            for n in nodes_in(a, ast.Call)
            for t in script.called(n)
        )
        if drawn:
            raise Refusal(
                f"parameters get random numbers on {at(node)}: in every process others, so that the models drift apart"
            )


def _kept(script: Script, thing: Thing) -> None:
    """What forward keeps for the next batch would be that of one process."""
    for node in changed_by_forward(thing):
        if not _is_plain(script, node):
            raise Refusal(
                f"forward keeps `{ast.unparse(node)}` from batch to batch ({at(node)}): each process would keep that of its part"
            )


def _is_plain(script: Script, node: ast.Attribute) -> bool:
    """A number that all processes count alike."""
    statement = enclosing(node, ast.stmt)
    value = getattr(statement, "value", None)
    found = script.values(value) if isinstance(value, ast.expr) else frozenset()
    return surely(isinstance(t, Const) or isinstance(t, Num) and t.synced is None for t in found)
