"""What the questions of this package share: how often a place runs, and what stands beside it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import wraps
from typing import TypeVar, cast

from autofast.facts.cost.bounds import range_turns
from autofast.facts.cost.host import kept_on_host
from autofast.facts.cost.run_counts import SHORT
from autofast.facts.cost.step import Cost
from autofast.flow.frequency import arms_around, is_rare
from autofast.flow.loops import unit_of
from autofast.model.events import BranchFrame, CallFrame, Stack, loops
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import Nodes, walk
from autofast.model.syntax import IMPORTS
from autofast.rule import Finding, Gain, Options, Question

T = TypeVar("T")
Findings = tuple[Finding, ...]
Answer = Gain | None
EVALUATION = 1 / 18  # of an epoch: a sixth of the samples, and a forward is a third of a step
EPOCHS = 10  # where their number is not known
MANY = 50  # steps of training beside which one forward pass counts little
DEFAULTS = "options at their defaults lead past it, by `{}`"
ELSEWHERE = Gain(0.0, "no run that trains comes there")
NOISE = 0.005  # of an evaluation that is made faster by a class of its own


def nothing(reason: str) -> Question:
    """A question whose answer is that nothing is gained."""

    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        return Gain(0.0, reason)

    return ask


def of_default(ask: Question) -> Question:
    """The question of what pays while options have their defaults: nothing where these, or all
    training, lead past what a fix changes, and past what its rule changes in other arms of the
    same conditions.
    """

    def asked(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        past = _past(script, finding)
        others = [f for f in of_its_rule(finding, beside) if f.edits] if past else []
        if past and all(_past(script, f) for f in others if _are_apart(f.node, finding.node)):
            return past
        found = ask(script, options, finding, beside)
        return replace(found, joins=True) if past and found is not None else found

    return asked


def _past(script: Script, finding: Finding) -> Gain | None:
    cost = script.analysis(Cost)
    places = [n for n in touched_nodes(finding) if not isinstance(n, IMPORTS)]
    return _led_past(cost, [way for n in places for way in cost.ways(n)])


def _are_apart(one: ast.AST, other: ast.AST) -> bool:
    """Whether two places stand in different arms of a condition."""
    arms = dict(arms_around(one, None))
    return any(arms.get(branch, arm) is not arm for branch, arm in arms_around(other, None))


def of_device(ask: Question) -> Question:
    """The same of what pays on a GPU alone: nothing where the training does not come there while
    options have their defaults.
    """

    @of_default
    def asked(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        kept = script.analysis(kept_on_host) if options.target != "cpu" else ""
        why = f"the default trains on the CPU: {kept} leaves it there"
        return Gain(0.0, why) if kept else ask(script, options, finding, beside)

    return asked


def usual(share: float, reason: str, code: bool = False) -> Question:
    """A question whose answer is what is usual for a technique, but for loaders (with ``code``:
    places) that are used once.
    """

    @of_default
    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        once = code_once if code else loader_once
        return once(script, finding) or Gain(share, reason, known=False)

    return ask


def renaming(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
    """Of today's name for the same thing, which costs some microseconds at most: nothing but beside
    what changes its functions anyway.
    """
    others = [f for f in beside if f.edits and (f.renews or f.asks is not renaming)]
    theirs = {unit_of(place) for f in others for place in touched_nodes(f)}
    mine = [n for n in touched_nodes(finding) if not isinstance(n, IMPORTS)]
    if any(unit_of(n) in theirs for n in mine):
        return None
    words = "another name for the same, in loops and functions that nothing else changes"
    return Gain(0.0, words, joins=True)


def loader_once(script: Script, finding: Finding, rarely: bool = True) -> Gain | None:
    """Next to nothing, for a loader that is gone through once, or (with ``rarely``) now and then,
    beside the passes over the training data; None for others.
    """
    cost, mine = script.analysis(Cost), loaders_of(script, finding.node)
    uses = [use for x in mine for use in x.uses]
    purposes = {purpose for x in mine for purpose in cost.purposes(x)}
    if cost.is_cut or surely(cost.ends_early(use.node) for use in uses):
        return Gain(0.0, "each pass over it is broken off after a few batches")
    if purposes and purposes <= {"test", "predict"}:
        return _small(cost)
    if not uses or "training" in purposes:
        return None
    ways = [way for use in uses for way in cost.ways_of(use)]
    if past := _led_past(cost, ways):
        return past
    if not any(use.repeated for use in uses):
        return _small(cost)
    if rarely and all(
        cost.ends_early(use.node)
        or any(isinstance(f, BranchFrame) and is_rare(f) for f in use.stack)
        for use in uses
    ):
        return Gain(EVALUATION / EPOCHS, "runs now and then, beside many steps of training")
    return None


def feeds_training(script: Script, finding: Finding) -> bool:
    """Whether a loader of the finding is trained with."""
    cost = script.analysis(Cost)
    return any("training" in cost.purposes(x) for x in loaders_of(script, finding.node))


def code_once(script: Script, finding: Finding) -> Gain | None:
    """The same for a place in the code."""
    return script.of_node(_code_once, finding.node)


def _code_once(script: Script, node: ast.AST) -> Gain | None:
    cost = script.analysis(Cost)
    ways = cost.ways(node)
    if not ways:
        return None
    if past := _led_past(cost, ways):
        return past
    if all(map(cost.is_alone, ways)):
        return Gain(0.0, "runs once, beside all steps of the training")
    if all(cost.is_seldom(way) or cost.is_alone(way) for way in ways):
        return Gain(EVALUATION / EPOCHS, "runs now and then, beside many steps of training")
    return _small(cost) if all(map(cost.is_outside, ways)) else None


def _led_past(cost: Cost, ways: Sequence[Stack]) -> Gain | None:
    if surely(map(cost.leads_past, ways)):
        return ELSEWHERE
    test = cost.past_by_default(ways)
    return Gain(0.0, DEFAULTS.format(test)) if test else None


def one_pass(share: float, reason: str) -> Question:
    """A question about one forward pass: little, where it stands beside many steps of training that
    are counted by a loop around them, or in a step beside a loop of many passes.
    """

    @of_default
    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Answer:
        cost, here = script.analysis(Cost), finding.node
        counted = [range_turns(script, step.loop) for step in cost.training]
        steps = min((n or 0 for n in counted), default=0)
        mine = {f.node for way in cost.ways(here) for f in loops(way)}
        passes = max(
            (
                cost.times(s.node, loop, mine)
                for loop in mine.intersection(step.loop for step in cost.training)
                for s in script.log.of("forward")
            ),
            default=1,
        )
        if passes >= SHORT:
            return Gain(1 / (9 * passes), f"one forward pass of a step beside {passes} others")
        if steps < MANY or cost.runs_by_batch(here) or cost.is_in_training(here):
            return Gain(share, reason, known=False)
        return Gain(1 / (3 * steps), f"one forward pass beside {steps} steps of training")

    return ask


def _small(cost: Cost) -> Gain | None:
    if cost.epochs == 1:
        return None
    passes = "several passes" if cost.epochs is None else f"{cost.epochs} passes"
    share = EVALUATION / (cost.epochs or EPOCHS) / 2
    return Gain(share, f"runs once, beside {passes} over the training data")


def loaders_of(script: Script, node: ast.AST) -> list[Loader]:
    """The loaders made at ``node``, fed by a dict there, or fed with a dataset made there."""
    return [
        x
        for x in script.loaders
        if x.node is node or is_written_at(x, node) or any(d.node is node for d in x.datasets)
    ]


def is_written_at(loader: Loader, home: ast.AST) -> bool:
    """Whether an argument of the loader is written at ``home``: a dict, or a place in one."""
    inside = set(walk(home))
    given = loader.args.every
    entries = [entry.expr for g in given for _, entry in g.via]
    return any(expr in inside for expr in entries if expr is not None)


def of_its_rule(finding: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """What the rule of the finding has found besides."""
    return [f for f in findings if f.rule == finding.rule]


def changed_nodes(findings: Sequence[Finding]) -> Nodes:
    """All that fixes change: not what stands in a block, or in statements, that they put code
    around.
    """
    changing: list[Finding] = []
    places: list[ast.AST] = []
    for finding in (f for f in findings if f.edits):
        inner = tuple(e for e in finding.edits if not hasattr(e, "header"))
        if len(inner) == len(finding.edits):
            changing.append(finding)
        elif inner:  # what else it changes, as the reads of what is shown below a condition
            places += touched_nodes(replace(finding, edits=inner))[1:]
    places += [place for f in changing for place in touched_nodes(f)]
    places = [place for place in places if not hasattr(place, "body")]
    whole = [(f, e) for f in changing for e in f.edits if getattr(e, "takes_all", False)]
    places += [getattr(e, "stmt", f.node) for f, e in whole]
    return {n for place in places for n in walk(place)}


def touched_nodes(finding: Finding) -> list[ast.AST]:
    """The place of a finding, and all that its edits change."""
    places = [getattr(edit, place.name) for edit in finding.edits for place in fields(edit)]
    return [finding.node, *of_kind(places, ast.AST)]


class _Round:
    """``script.analysis(_Round)``: what is known of the findings of one round."""

    def __init__(self, script: Script):
        self._findings: Findings = ()
        self._known = dict[object, object]()

    def of(
        self, question: Callable[[Script, Findings], T], script: Script, findings: Findings
    ) -> T:
        if findings is not self._findings:
            self._findings, self._known = findings, {}
        if question not in self._known:
            self._known[question] = question(script, findings)
        return cast(T, self._known[question])


def of_round(question: Callable[[Script, Findings], T]) -> Callable[[Script, Findings], T]:
    """A question about all findings of a round, answered once for them."""

    @wraps(question)
    def ask(script: Script, findings: Findings) -> T:
        return script.analysis(_Round).of(question, script, findings)

    return ask


def begun_in(script: Script) -> Nodes:
    """``script.analysis(begun_in)``: the places of forwards, backwards and updates, and the calls
    that lead to them.
    """
    sites = script.log.of("forward")
    sites += [b.site for step in script.steps for b in step.backwards]
    sites += [u.site for step in script.steps for u in step.updates]
    calls = (f.node for s in sites for o in s for f in o.stack if isinstance(f, CallFrame))
    return {*(s.node for s in sites), *calls}
