"""The data that training saw, the files it saved, the random numbers it drew."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from autofast.verify.evidence import Evidence
from autofast.verify.invariants import shown
from autofast.verify.record import Checkpoint, Run
from autofast.verify.result import Check, Sameness

CLOSE = 1e-9  # checksums are float64 sums: equal data differ by less, whatever the order of summing
ENOUGH = 3  # batches in a pass, so that its order says something

Pass = tuple[float, ...]


def _passes(run: Run, complete: bool = False) -> list[Pass]:
    """Checksums of the training passes that have them, over all ranks in the order of ranks."""
    return [p.checksums for r in run.records for p in r.passes if p.training and p.checksums and (p.complete or not complete)]


def _totals(run: Run) -> list[tuple[int, float, float]]:
    """(loader, sum of checksums, sum of their sizes) of each complete training pass, summed over ranks."""
    by_rank = [[p for p in r.passes if p.training and p.checksums and p.complete] for r in run.records]
    found = []
    for group in zip(*by_rank, strict=False):
        values = [c for p in group for c in p.checksums]
        found.append((group[0].loader, sum(values), sum(map(abs, values))))
    return found


def _equal(x: Sequence[float], y: Sequence[float]) -> bool:
    """Over their common length."""
    size = max((abs(v) for v in (*x, *y)), default=1.0)
    return all(abs(p - q) <= CLOSE * size for p, q in zip(x, y, strict=False))


def _alike(passes: Sequence[Pass]) -> bool | None:
    """All passes have the same batches in the same order; None where fewer than two are long enough to say."""
    long = [p for p in passes if len(p) >= ENOUGH]
    return all(_equal(long[0], p) for p in long[1:]) if len(long) > 1 else None


def order(ev: Evidence) -> Check | None:
    """At equal seed, the same batches in the same order: neither exact rewrites nor those that only round draw other samples."""
    if ev.effect not in ("exact", "rounding"):
        return None
    name = "the same batches in the same order"
    a, b = _passes(ev.a), _passes(ev.b)
    if not a or not b:
        return None
    if any([len(p) for p in _passes(o)] != [len(p) for p in a] or not all(map(_equal, a, _passes(o))) for o in ev.originals[1:]):
        return Check(name, None, "the original itself does not draw the same batches twice")
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if len(x) != len(y) or not _equal(x, y):
            place = next((k for k, (p, q) in enumerate(zip(x, y, strict=False)) if not _equal((p,), (q,))), min(len(x), len(y)))
            return Check(name, False, f"pass {i + 1} differs from batch {place + 1} on")
    if len(a) != len(b):
        return Check(name, False, f"{len(b)} passes over the training data, {len(a)} in the original")
    return Check(name, True, f"{sum(map(len, a))} batches in {len(a)} passes, equal")


def content(ev: Evidence) -> Check | None:
    """A complete pass holds the same samples, in whatever order: its checksums have the same sum.

    Only where the data themselves are deterministic: the original's sum is the same in every pass and under every seed.
    """
    name = "the same samples in a pass"
    known: dict[int, list[tuple[float, float]]] = {}
    for run in (*ev.originals, *ev.others):
        for loader, total, size in _totals(run):
            known.setdefault(loader, []).append((total, size))
    seeds_or_passes = len(ev.others) > 1 or len(_totals(ev.a)) > 1
    checked = 0
    for run in [pair[1] for pair in ev.pairs] or [ev.b]:
        for loader, total, _ in _totals(run):
            sums = known.get(loader, [])
            if not sums or not seeds_or_passes or any(abs(s - sums[0][0]) > CLOSE * n for s, n in sums):
                continue  # augmented at random, or only a part of the data
            checked += 1
            if abs(total - sums[0][0]) > CLOSE * sums[0][1]:
                text = f"the values of a complete pass sum to {total:.10g}, to {sums[0][0]:.10g} in every pass of the original"
                return Check(name, None if ev.effect == "recipe" else False, text)
    return Check(name, True, f"{checked} complete passes hold the same values in sum") if checked else None


def shuffled(ev: Evidence) -> Check | None:
    """Where the original's order of samples differs from pass to pass, or from seed to seed, so does the other's."""
    name = "shuffling"
    a_runs, b_runs = ([p[k] for p in ev.pairs] or [(ev.a, ev.b)[k]] for k in (0, 1))
    found = []
    tests: list[tuple[str, str, list[list[Pass]], list[list[Pass]]]] = [
        ("in every pass", "from pass to pass", list(map(_ranked, a_runs)), list(map(_ranked, b_runs))),
        ("under every seed", "from seed to seed", [_firsts(a_runs)], [_firsts(b_runs)]),
    ]
    for same, vary, one, two in tests:
        for words, change in (("the same batches in the same order", list), ("the same batches, though in another order", sorted)):
            before = [_alike([tuple(change(p)) for p in passes]) for passes in one]
            after = [_alike([tuple(change(p)) for p in passes]) for passes in two]
            if False in before and True in after and not (True in before and False in after):
                return Check(name, False, f"{words} {same}; in the original they differ {vary}: shuffling or augmentation was lost")
            if change is list and True in before and False not in before and False in after and ev.effect != "recipe":
                return Check(name, False, f"the batches differ {vary}; in the original they are the same {same}")
            if change is list and (False in before or True in before) and (False in after or True in after):
                found.append(f"{'differ' if False in before else 'are the same'} {vary if False in before else same}")
    return Check(name, True, f"batches {' and '.join(found)}, as in the original") if found else None


def _ranked(run: Run) -> list[Pass]:
    return [p.checksums for p in run.record.passes if p.training and p.checksums] if run.records else []


def _firsts(runs: Sequence[Run]) -> list[Pass]:
    return [passes[0] for passes in map(_ranked, runs) if passes]


def repeated(ev: Evidence) -> Check | None:
    """No batch comes twice in a pass where the original's are all different: copies of a random generator, a stream read by every worker."""
    name = "no batch twice in a pass"

    def share(run: Run) -> float:
        passes = _passes(run)
        total = sum(map(len, passes))
        return sum(len(p) - len(set(p)) for p in passes) / total if total else 0.0

    a, b = max(map(share, (*ev.originals, *ev.others)), default=0.0), share(ev.b)
    if not _passes(ev.a) or not _passes(ev.b):
        return None
    if b > a + 0.01:
        return Check(name, False, f"{100 * b:.0f} % of the batches repeat another of the same pass, {100 * a:.0f} % in the original")
    return Check(name, True, f"{100 * b:.0f} % of the batches repeat another, {100 * a:.0f} % in the original")


def random_state(ev: Evidence) -> Check | None:
    """Under exact rewrites, all random generators end in the state in which they end in the original."""
    if ev.effect != "exact":
        return None
    name = "random generators"
    a, b = ev.a.record.random_state, ev.b.record.random_state
    steady = [k for k in a if len(ev.originals) > 1 and all(o.records and o.record.random_state.get(k) == a[k] for o in ev.originals)]
    steady = [k for k in steady if k in b]
    if not steady:
        return None
    off = [k for k in steady if a[k] != b[k]]
    if off:
        return Check(name, False, f"{shown(off)} ended in another state: random numbers were drawn more or less often")
    return Check(name, True, f"{shown(steady, 9)} end in the same state")


def _named(saved: Sequence[Checkpoint], masked: bool) -> dict[str, Checkpoint]:
    """By path, with its digits masked where they are not reproducible; of several, the last."""
    return {re.sub(r"\d+", "#", c.path) if masked else c.path: c for c in saved}


def _option(kind: str) -> bool:
    """A plain value: ``fused`` of an optimizer's settings is None before and True after."""
    return kind in ("NoneType", "bool", "int", "float", "str")


def _misfit(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    """Why what has keys ``b`` cannot be loaded in place of what has keys ``a``, or the other way round."""
    gone = [k for k in a if k not in b]
    if gone:
        return f"lacks {shown(gone)}"
    parts = {k.split("/")[0] for k in a}
    new = [k for k in b if k not in a and ("/" not in k or k.split("/")[0] in parts)]
    if new:
        return f"has {shown(new)} besides"
    other = [f"{k}: {b[k]}, was {a[k]}" for k in a if a[k] != b[k] and not (_option(a[k]) and _option(b[k]))]
    return f"has {shown(other)}" if other else ""


def checkpoints(ev: Evidence) -> Check | None:
    """The same files with the same keys, types and shapes, so that either script loads what the other saved.

    A further part beside those that were there (the state of a GradScaler) does no harm: nobody asks for it.
    """
    name = "checkpoints"
    lists = [o.record.checkpoints for o in ev.originals if o.records]
    masked = len({frozenset(_named(c, False)) for c in lists}) > 1
    known = [_named(c, masked) for c in lists]
    a, b = known[0], _named(ev.b.record.checkpoints, masked)
    if not a and not b:
        return None
    steady = [path for path in a if all(path in k for k in known)]
    missing = [p for p in steady if p not in b]
    if missing:
        kept = ev.effect == "exact" or not any(len(_named(o.record.checkpoints, masked)) != len(a) for o in ev.others)
        return Check(name, False if kept else None, f"not saved: {shown(missing)}", verdict=Sameness.BROKEN)
    for path in steady:
        if a[path].loads and not b[path].loads:
            return Check(name, False, f"{path} does not load: {b[path].error}", verdict=Sameness.BROKEN)
        misfit = _misfit(a[path].keys, b[path].keys)
        if misfit and not any(_misfit(a[path].keys, k[path].keys) for k in known[1:]):
            return Check(name, False, f"{path} {misfit}", verdict=Sameness.BROKEN)
    return Check(name, True, f"{len(steady)} files with the same keys, types and shapes: either script loads the other's")
