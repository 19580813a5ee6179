"""Probabilities that networks give: the logarithms that are taken of them, and the sigmoids that
compute in fp32 for that where the network runs in 16 bits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.edit.edits import Edits, Wrap
from autofast.facts.cost.gains.arithmetic import half
from autofast.facts.precision.banned import Probabilities, banned_loss, error_of
from autofast.facts.precision.code import Code
from autofast.facts.precision.full_outputs import FullOutputs
from autofast.facts.precision.whole_script import is_in_fp32
from autofast.facts.sigmoids import is_call_of_sigmoid, sigmoids, taken_by
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import bound_to, taken_by as taken_from
from autofast.flow.positions import position
from autofast.flow.program import Flow
from autofast.model.contents import each_once, without_wrappers
from autofast.model.events import Occurrence
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import all_known, any_of, of_kind, surely
from autofast.model.source import ancestors, at
from autofast.model.syntax import SEQUENCES, has_star
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, Num, Values, certainly
from autofast.ops.families import REGROUPING
from autofast.rule import Finding, Gain, Options
from autofast.techniques.precision.with_logits import WithLogits, with_logits

CLAMPS = ("clamp", "clip")
LOGARITHMS = tuple("torch.log .log torch.log1p .log1p torch.log2 torch.log10".split())


UNSURE = (
    "what 16 bits save is not known, or little, and the sigmoid of {} would have to compute in fp32 for "
    "them, `torch.sigmoid(x.float())`, as its logarithm is taken: --select autocast writes both"
)


# A sigmoid in 16 bits is 1 from 6 (bf16) or 8 (fp16) on, the logarithm of the rest that of 0.
# Autocast computes `log_softmax` in fp32 and losses with logits too; what it cannot see is a
# logarithm that is taken, far away, of what a sigmoid in the model has rounded.
def log_of_rounded(script: Script, code: Code, outputs: list[ast.Call]) -> str:
    """Where ``code`` takes the logarithm of a probability that a model has computed in 16 bits, in
    words; empty where it does not.
    """
    rounded = _made_by(script, outputs) - code.probabilities.logits - code.probabilities.full
    only = rounded <= script.analysis(full_sigmoids).keys()
    unsure = UNSURE.format(at(min(rounded, key=position))) if rounded and only else ""
    for site, occurrence in code.events("loss"):
        if site.node not in code.probabilities.logits and (name := banned_loss(occurrence.this)):
            taken = tensors_in(occurrence.args.get(0, "input"))
            if not surely(t.prob for t in taken):
                return error_of(name, site)
            if rounded:
                return unsure or error_of(name, site)
    if rounded:
        for site, occurrence in code.events(*LOGARITHMS):
            if any(t.models for t in tensors_in(_operands(occurrence))):
                return (
                    unsure
                    or f"{at(site)} takes the logarithm of a sigmoid, which in 16 bits is 1 for what is nearly 1: compute it from the logits"
                )
    return ""


def probabilities_of(script: Script, options: Options) -> Probabilities:
    """What becomes of the probabilities in this plan."""
    logits = with_logits(script).nodes if options.decides(WithLogits) else frozenset()
    full = frozenset(script.analysis(full_sigmoids)) - logits
    return Probabilities(logits, full if full and _may_change(script, options) else frozenset())


def _may_change(script: Script, options: Options) -> bool:
    """Whether the code of a network may change for 16 bits: where they are known to pay, where they
    may and all is written, or where the user names what is to be written.
    """
    if options.named:
        return True
    passes = [site.node for step in script.steps for site in step.forwards]
    gain = half(script, options, Finding(passes[0], ""), ()) if passes else None
    if not isinstance(gain, Gain) or not gain.known:
        return not options.min_gain
    return gain.share > 0 and not gain.is_below(options.min_gain)


def full_sigmoids(script: Script) -> dict[ast.AST, Edits]:
    """``script.analysis(full_sigmoids)``: the sigmoids in networks of which a binary cross entropy
    or a logarithm is taken, with the edit by which they compute in fp32 where the network runs in
    16 bits, as a loss of logits does: ``torch.sigmoid(x.float())``. Without one where they do
    already.
    """
    groups = [g.sigmoids for g in script.analysis(sigmoids)]
    found: dict[ast.AST, Edits] = {}
    outputs = script.analysis(FullOutputs)
    for group in (*groups, *_of_logarithms(script)):
        if not all(is_call_of_sigmoid(script, n) for n in group):
            continue
        for call in of_kind(group, ast.Call):
            given = taken_by(call)
            if given is not None and any_of(ancestors(call), ast.ClassDef):
                cast = Wrap(given, "{}.float()", alike=is_in_fp32)
                found[call] = () if outputs.is_full(given) else (cast,)
    return found


def _of_logarithms(script: Script) -> Iterator[list[ast.AST]]:
    """The sigmoids that a network gives the results of, where a logarithm is taken of what one
    gives.
    """
    taken = (_operands(o) for site in script.log.of(*LOGARITHMS) for o in site)
    if any(t.models for found in taken for t in tensors_in(found)):
        for step in script.steps:
            for site in step.forwards:
                if site.call is not None:
                    yield sorted(_made_by(script, [site.call]), key=position)


def _operands(occurrence: Occurrence) -> Values:
    """What a logarithm is taken of."""
    this = frozenset({occurrence.this}) if occurrence.this is not None else frozenset()
    return occurrence.args.get(0, "input") | this


def _made_by(script: Script, outputs: Iterable[ast.Call]) -> frozenset[ast.AST]:
    """The sigmoids that calls of networks give the results of, also between bounds."""
    given = (
        t.prob
        for call in outputs
        for expr in (call, *_between_bounds(script, list(returned(script, call))))
        for t in tensors_in(script.values(expr))
    )
    return frozenset(p for p in given if p is not None)


def _between_bounds(script: Script, todo: list[ast.expr]) -> Iterator[ast.expr]:
    """Expressions, and those that they are but for a clamp, a shape, or a number that is added or
    multiplied: ``1 - 1e-4`` is 1 in 16 bits.
    """
    for expr in each_once(todo):
        yield expr
        match expr:
            case ast.Name():
                todo += all_known(d.value for d in script.analysis(Flow).reaching(expr))
            case ast.Call():
                name, given = script.operation(expr)
                short = last_part(name)
                todo += given[:1] if short.startswith(CLAMPS) or short in REGROUPING else []
            case ast.BinOp(left=left, right=right):
                parts = [e for e in (left, right) if not certainly(script.values(e), Const, Num)]
                todo += parts if len(parts) == 1 else []
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                todo += parts


def returned(
    script: Script, call: ast.Call, part: int | None = None, deeper: int = 4
) -> Iterator[ast.expr]:
    """What a call gives, also where other calls give it first: ``x, sizes = conv(x, sizes)``."""
    flow, found = script.analysis(Flow), script.called(call)
    for code in (c for t in found for inner in without_wrappers(t) for c in code_of(inner)):
        for result in script.analysis(CallGraph).results(code.function):
            parts = result.elts if isinstance(result, SEQUENCES) else []
            parts = [] if has_star(parts) else parts[part : part + 1] if part is not None else parts
            for expr in parts or [result]:
                yield expr
                for d in flow.reaching(expr) if deeper and isinstance(expr, ast.Name) else ():
                    made, way = bound_to(d.node)[0], taken_from(d.node)[1]
                    if isinstance(made, ast.Call) and len(way) == 1:
                        yield from returned(script, made, way[0], deeper - 1)
