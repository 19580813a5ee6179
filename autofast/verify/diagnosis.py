"""Where the time of a step goes, in one sentence, and which rules address that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autofast.registry import all_rules
from autofast.report.record import Record
from autofast.verify.estimates import fmean, median
from autofast.verify.evidence.record import PHASES, Run, Words
from autofast.verify.result import Answer, Diagnosis
from autofast.verify.speed import window

LARGE = 0.25  # a phase besides computing that takes this share of a step is what to look at first
IDLE, FULL_LOAD = 60.0, 85.0  # GPU utilisation in per cent

_SAID = {
    "data": "waits for data {share} of a step",
    "transfer": "spends {share} of a step on moving batches to the device",
    "evaluation": "spends {share} of its time on evaluation",
    "optimizer": "spends {share} of a step in the optimizer",
    "communication": "spends {share} of a step on communication between processes",
}


BY_HAND = {
    "data": "profile one item: decode once and keep arrays, store images at the size that is used, move random changes of images to the device, "
    "in batches; a faster disk or decoder where reading itself is slow",
    "transfer": "send fewer bytes: integers and uint8 images as they are, casts and normalisation on the device; keep data that fit on the device",
    "evaluation": "evaluate less often or on a part of the data, in larger batches",
    "optimizer": "fused=True or foreach=True where the optimizer has it; parameters in few large tensors; fewer steps by gradient accumulation",
    "communication": "fewer and larger all-reduces: gradient accumulation under no_sync(), a larger bucket_cap_mb, gradient_as_bucket_view=True, "
    "bf16 gradients by a communication hook",
    "host": "the GPU waits for launches: larger batches, torch.compile(mode='reduce-overhead') or CUDA graphs where shapes are fixed, no reads of "
    "tensors in the step",
    "device": "less arithmetic: bf16, channels_last, fused attention, torch.compile; more GPUs where these are done",
    "cpu": "a GPU; fewer or more threads (OMP_NUM_THREADS); bf16 where the processor has it",
}
"""What a person can do about each bound, where no rule does."""


def shares(runs: Sequence[Run]) -> dict[str, float]:
    """Median over runs of each phase's share of the time after the warm-up, scaled to sum 1; empty
    where nothing was timed.
    """
    warm_up = window(runs).warm_up
    found: list[dict[str, float]] = []
    for run in runs:
        if not run.records:
            continue
        steps = run.record.steps[warm_up:]
        sums = {phase: sum(max(0.0, s.phases.get(phase, 0.0)) for s in steps) for phase in PHASES}
        whole = sum(sums.values())
        if whole > 0:
            found.append({phase: value / whole for phase, value in sums.items()})
    if not found:
        return {}
    middle = {phase: median(f[phase] for f in found) for phase in PHASES}
    whole = sum(middle.values()) or 1.0
    return {phase: value / whole for phase, value in middle.items()}


def _utilisation(runs: Sequence[Run]) -> float | None:
    values = [
        fmean(d.utilisation) for r in runs if r.records for d in r.record.devices if d.utilisation
    ]
    return median(values) if values else None


def bound_of(share: Mapping[str, float], utilisation: float | None, gpu: bool) -> str:
    """What to change first. A busy GPU is the bound whatever the host waits for: on the host, its
    work shows up as somebody's waiting.
    """
    if not share:
        return "unknown"
    if gpu and utilisation is not None and utilisation >= FULL_LOAD:
        return "device"
    apart = {phase: share.get(phase, 0.0) for phase in _SAID}
    first = max(apart, key=lambda phase: apart[phase])
    if apart[first] >= LARGE:
        return first
    if not gpu:
        return "cpu"
    if utilisation is None:
        return "unknown"
    return "host" if utilisation < IDLE else "device"


def rules_for(bound: str) -> Words:
    """The rules that can change what bounds a script, the most promising first."""
    ranked = [
        (rule.relieves[bound], name) for name, rule in all_rules().items() if bound in rule.relieves
    ]
    return tuple(name for _, name in sorted(ranked))


def answers(
    rules: Sequence[str], records: Sequence[Record] | None, applied: Collection[str]
) -> tuple[Answer, ...]:
    """What became of ``rules`` on the original script; ``records``: autofast's findings on it, None
    where it was not looked at.
    """
    return tuple(_answer(rule, records, rule in applied) for rule in rules)


def _answer(rule: str, records: Sequence[Record] | None, applied: bool) -> Answer:
    mine = [record for record in records or () if record.rule == rule]
    for status, state in (("fix", "possible"), ("advice", "advised"), ("refused", "refused")):
        found = [record for record in mine if record.status == status]
        if found:
            first = found[0]
            place = f"{first.path}:{first.line}"
            state = "applied" if applied and status == "fix" else state
            return Answer(rule, state, place, len(found), first.reason)
    known = all_rules()[rule]
    if applied or known.default:
        return Answer(rule, "applied" if applied else "unknown" if records is None else "nothing")
    return Answer(rule, "on request", reason=known.request)


def _per_cent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _sentence(bound: str, share: Mapping[str, float], utilisation: float | None) -> str:
    if bound in _SAID:
        return _SAID[bound].format(share=_per_cent(share[bound]))
    used = "" if utilisation is None else f" (GPU used {utilisation:.0f} % of the time)"
    if bound == "host":
        return f"is host-bound: the GPU waits for Python to launch its work{used}"
    if bound == "device":
        return f"is device-bound: the GPU is at work nearly all the time{used}"
    if bound == "cpu":
        parts = ", ".join(
            f"{phase} {_per_cent(share[phase])}" for phase in ("forward", "backward", "optimizer")
        )
        return f"computes on the CPU most of a step ({parts})"
    return "was not timed closely enough to say what bounds it"


def diagnose(
    runs_a: Sequence[Run],
    runs_b: Sequence[Run] = (),
    records: Sequence[Record] | None = None,
    applied: Collection[str] = (),
) -> Diagnosis:
    """Of timed runs of the original and of the rewritten script; the bound is the original's, and
    what remains is said where it differs.

    ``records`` and ``applied``: autofast's findings on the original script, and the rules that the
    rewritten one has.
    """
    before, after = shares(runs_a), shares(runs_b)
    gpu = any(r.records and r.record.devices for r in runs_a)
    used, used_after = _utilisation(runs_a), _utilisation(runs_b)
    bound = bound_of(before, used, gpu)
    sentence = f"The original {_sentence(bound, before, used)}"
    if after:
        left = bound_of(after, used_after, gpu)
        sentence += (
            f"; the rewritten script {_sentence(left, after, used_after)}"
            if (left, left) != (bound, "unknown")
            else ""
        )
    rules = rules_for(bound)
    return Diagnosis(
        before,
        after,
        bound,
        sentence + ".",
        rules,
        answers(rules, records, applied),
        BY_HAND.get(bound, ""),
    )
