"""What is drawn, which hides in the scatter of seeds, and when models are asked without gradients.

The numbers are counted that are drawn at a time, within models and beside them, in training and
without gradients. Draws of one size that are made half as often or less, with less than a quarter
of these numbers in their place, are lost, or shared by samples, steps or passes. So are numbers
that are missing to the last one where draws have come together: as many as the samples of a batch
share, or as many draws as before of a part of the size. Normal numbers in place of as many even
ones, and whole numbers of another range in place of as many, follow another law.

Numbers that are drawn without gradients in one of the two scripts alone are noise in evaluations,
and what these print hides it; where training is the same but for rounding, that tells by itself,
and where weights that move by themselves give the same in evaluations, they have no part in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

from autofast.model.several import surely
from autofast.report.style import count
from autofast.verify.estimates import median
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Evaluation, Run
from autofast.verify.judging import driven, laws, rounding
from autofast.verify.judging.exact import equal
from autofast.verify.result import Check, differs, holds, unclear

NAME = "random numbers and evaluation"
LEAST = 3  # draws of one size of several numbers
Drawn = Mapping[str, float]
Lost = tuple[tuple[str, str], float, float, float]
OFTEN = 6  # of single ones
SIZES = 10  # of draws whose sizes chance makes
# What draws unseen: generators of a script's own, and code that no longer runs as Python.
UNSEEN = "default_rng RandomState random.Random( CUDAGraph cuda.graph jit. vmap compile(".split()
# What takes normal numbers as it takes even ones.
ORDERED = "sort( topk( sign( cdf ndtr erf( normalize( .norm(".split()
BELOW = "below "
SHAPED = "erfinv ndtri icdf ppf cos(".split()  # what makes normal numbers of even ones


def check(ev: Evidence) -> Check | None:
    """Of models that both have; nothing where ``torch.compile`` is used, which draws by itself."""
    if any(run.record.moments.compiling for run in ev.both):
        return None
    lost = None if _of_no_effect(ev) else _sizes(ev) or _put_off(ev) or _another(ev)
    if lost is not None:
        return lost
    found = len({*_models(ev.a), *(int(m) for m in ev.a.record.drawn if m.isdigit())})
    return holds(f"as in the original, of {found} models") if found else None


def _of_no_effect(ev: Evidence) -> bool:
    """Whatever is drawn, only rounding parts the two; as long as that is not known, their first
    steps: an order that is drawn and undone."""
    if equal(ev.a, ev.b) or ev.perturbed is not None:
        return equal(ev.a, ev.b) or rounding.coincides(ev)
    most = rounding.tolerance_of(ev)
    limits = {"loss": most.loss, "gradient norm": most.gradient}
    first = [rounding.first_differences(a, b, 1) for a, b in ev.pairs]
    return all(far.get(k, math.inf) <= limit for far in first for k, limit in limits.items())


def _sizes(ev: Evidence) -> Check | None:
    """Over whole runs and under every seed; a few less, where no seed changes how many."""
    ev = ev.uncut or ev
    if not surely(_comparable(a, b) for a, b in ev.pairs):
        return None
    counts = [[_in_training(*pair)[k] for pair in ev.pairs] for k in (0, 1)]
    if (said := _by_law(ev, counts)) is not None:
        return said
    one, two = ({k: n for k, n in c[0].items() if all(s.get(k) == n for s in c)} for c in counts)
    fewer = {k for k, n in one.items() if two.get(k, n) < n and len(ev.pairs) > 1}
    found = [_lost(a, b, fewer, 1) or _lost(a, b, fewer, 2) for a, b in zip(*counts, strict=True)]
    if all(found):
        (kind, size), times, lost, gained = next(one for one in found if one)
        otherwise = (*UNSEEN, *SHAPED) if kind == "normals" else UNSEEN
        text = f"{times:.0f} orders or choices of {size} less, {gained:.0f} numbers in place"
        if kind != "choices":
            text = f"{times:.0f} draws of {size} number{'s' * (size != '1')} less, {gained:.0f} in place of {lost:.0f}"
        if all(map(_decided, *counts, ev.pairs)) and laws.hold(ev) is not False:
            return unclear(f"{text}, unless one number decides what several did")
        if all(map(_drawn_again, *counts)):
            return unclear(f"{text}, unless what was drawn again until it fits fits at once")
        means = "lost, or one for several samples, steps or passes"
        return _said(ev, text, means, otherwise)
    pairs = zip(*counts, ev.pairs, strict=True)
    shared = [_at_once(one, two, a) or _in_part(one, two) for one, two, (a, _) in pairs]
    if all(shared):
        return _said(ev, shared[0], "one for several samples or axes", UNSEEN)
    rows = _idle(ev)
    text = f"{rows[0][1][0]} numbers are drawn without gradients, as in an evaluation, {rows[0][0][0]} in the original"
    if all(2 * y < x and 2 * (more - all_) <= y - x for (x, all_), (y, more) in rows):
        return _said(ev, text, "lost, or one for several samples", (*UNSEEN, *SHAPED))
    if in_evaluation(ev) and not driven.evaluate_alike(ev):
        return differs(f"{text}, and as many in training")
    return None


def _idle(ev: Evidence) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return [(_numbers(a), _numbers(b)) for a, b in ev.pairs]


def in_evaluation(ev: Evidence) -> bool:
    """The other script alone draws numbers without gradients, and none less with them. Whether
    they have a part in anything, weights that move by themselves tell."""
    pairs = (ev.uncut or ev).pairs
    rows = zip(_idle(ev.uncut or ev), pairs, strict=True)
    return surely(
        y > max(0, _entries(a) - _entries(b)) and not x and 2 * (more - all_) >= y
        for ((x, all_), (y, more)), (a, b) in rows
    )


def _entries(run: Run) -> float:
    """Of all choices: one among a few (an action) may be made by comparing an even number."""
    counted = [_by_size(_drawn(run, phase), 1) for phase in ("whole", "idle")]
    return sum(n for some in counted for (kind, _), (_, n) in some.items() if kind == "choices")


def _gone(one: Drawn, two: Drawn) -> Counter[str]:
    """How many numbers are missing, by kind; empty where there are more of some kind, which may
    stand for them."""
    gone = Counter[str]()
    for sign, some in ((1, one), (-1, two)):
        for (kind, _), (_, numbers) in _by_size(some, 1).items():
            gone[kind] += (kind != "choices") * sign * round(numbers)
    return gone if min(gone.values(), default=0) >= 0 else Counter()


def _at_once(one: Drawn, two: Drawn, run: Run) -> str:
    """A number for each sample has become one for the batch, among others that are still one for
    each, in draws of any size: as many are missing, to the last one."""
    gone, steps = _gone(one, two), run.steps_made
    for (kind, size), (times, _) in _by_size(one, 1).items() if steps >= OFTEN else ():
        now = two.get(f"{kind} {size}", 0)
        for rows, each in product(_samples(run), range(1, int(now // steps) + 1)):
            many = each * (rows - steps)
            if 0 < many <= times - now and gone[kind] == many * size:
                return f"{many} draws of {count(size, 'number')} less, none in their place, {each * steps} of those left are one for a batch"
    return ""


def _in_part(one: Drawn, two: Drawn) -> str:
    """As many draws as before, each of a part of the numbers: noise that some axes share."""
    gone = _gone(one, two)
    before, after = (_by_size(some, 1) for some in (one, two))
    lost = {k: times for k, (times, _) in before.items() if not after.get(k, (0, 0))[0]}
    for ((kind, size), times), ((other, part), (now, _)) in product(lost.items(), after.items()):
        more = now - before.get((other, part), (0, 0))[0]
        smaller = kind == other and part < size and size % part == 0
        if smaller and times == more >= OFTEN and gone[kind] == times * (size - part):
            return f"{times:.0f} draws of {count(part, 'number')} in place of as many of {size}"
    return ""


def _decided(one: Drawn, two: Drawn, pair: tuple[Run, Run]) -> bool:
    """One even number may stand for several of an entry, each of which decides something: of those
    that are drawn many at a time a third is left, some for each call, none of them within it."""
    if any(run.record.drawn.get("sizes", {}).get("within") != 0 for run in pair):
        return False
    before, after = Counter[str](), Counter[str]()
    for drawn, times in ((one, before), (two, after)):
        for (kind, size), (n, _) in _by_size(drawn, 1).items():
            times[kind] += round(n) * (size > 1)
    calls, left = len(pair[1].record.calls), after.pop("numbers", 0)
    return calls <= left and 3 * left >= before.pop("numbers", 0) and before == after


def _drawn_again(one: Drawn, two: Drawn) -> bool:
    """Nothing is missing but smaller draws of many sizes beside a larger one that is made as often
    as before: those that did not fit, drawn again. Others may be drawn from what fits alone."""
    before, after = (_by_size(some, 1) for some in (one, two))
    lost = {key: (n - after.get(key, (0, 0))[0]) for key, (n, _) in before.items()}
    kinds = {kind for (kind, _), times in lost.items() if times > 0}
    if len(kinds) != 1 or not kinds <= {"choices", "wholes"}:
        return False
    sizes = {size: times for (_, size), times in lost.items() if times > 0}
    kept = [n * size for (kind, size), (n, _) in before.items() if kind in kinds and size > max(sizes) and n >= OFTEN]  # fmt: skip
    missing = sum(size * times for size, times in sizes.items())
    return len(sizes) >= SIZES and missing < max(kept, default=0)


def _by_law(ev: Evidence, counts: Sequence[Sequence[Drawn]]) -> Check | None:
    normal = [_normal(*both) for both in zip(*counts, strict=True)]
    if all(normal):
        return _said(ev, normal[0], "another law", (*UNSEEN, *ORDERED))
    ranges = [[_ranges(run) for run in pair] for pair in ev.pairs]
    steady = all(both == ranges[0] for both in ranges)
    found = [_range(one, two, steady) for one, two in ranges]
    # Where ranges hang on the data, the same one is new under every seed.
    if not all(found) or not steady and (len(found) < laws.PAIRS or len({*found}) > 1):
        return None
    return _said(ev, f"{found[0]} in the original", "another law", UNSEEN)


def _normal(one: Drawn, two: Drawn) -> str:
    """Normal numbers in place of as many even ones."""
    more = Counter[str]()
    for sign, some in ((-1, one), (1, two)):
        for (kind, _), (_, numbers) in _by_size(some, 1).items():
            more[kind] += sign * round(numbers)
    many = more["normals"]
    rest = (n for kind, n in more.items() if kind not in ("normals", "numbers", "choices"))
    if many < OFTEN or more["numbers"] != -many or any(rest):
        return ""
    return f"{many} normal numbers in place of as many even ones"


def _ranges(run: Run) -> Drawn:
    drawn = run.record.drawn.get("whole", {})
    return {key.removeprefix(BELOW): n for key, n in drawn.items() if key.startswith(BELOW)}


def _range(one: Drawn, two: Drawn, steady: bool) -> str:
    """Whole numbers of another range in place of as many: to the last one, or of a range that the
    original does not have in place of nearly as many, where data decide how many."""
    ends = sorted({*one, *two}, key=int)
    more = {end: two.get(end, 0) - one.get(end, 0) for end in ends}
    for lost, gained in product(ends, ends):
        as_many = more[gained] == -more[lost] and not sum(more.values())
        new = not one.get(gained)
        nearly = new and abs(more[gained] + more[lost]) < 0.05 * more[gained]
        if more[gained] >= OFTEN and (as_many if steady else nearly):
            return f"whole numbers below {gained} in place of as many below {lost}"
    return ""


def _samples(run: Run) -> set[int]:
    """Of all steps together, as loaders give them or as a model is given them."""
    by_model = Counter[int]()
    for call in run.record.calls:
        by_model[call.model] += call.samples
    return {sum(step.samples for step in run.record.steps), *by_model.values()}


def _said(ev: Evidence, text: str, means: str, otherwise: Sequence[str]) -> Check:
    files = [pair for path, pair in ev.b.changed.items() if path != ev.b.script[0]]
    texts = [r.script[1] + "".join(f[k] for f in files) for k, r in enumerate(ev.both)]
    if any(texts[1].count(word) > texts[0].count(word) for word in otherwise):
        return unclear(f"{text}, unless made otherwise, in a generator of its own, or a graph")
    return differs(f"{text}: {means}")


def _comparable(a: Run, b: Run) -> bool:
    """As many workers, or more whose draws are all counted (each may draw a table of its own), and
    no more masks of dropout in the place of draws."""
    workers = [{p.workers for p in run.record.passes if p.training} for run in (a, b)]
    told = all(run.record.drawn.get("sizes", {}).get("unseen") == 0 for run in (a, b))
    masks = [sum(run.record.masks or ()) for run in (a, b)]
    known = all("whole" in run.record.drawn for run in (a, b))
    as_many = told and all(workers) and max(workers[0]) <= min(workers[1])
    return known and (as_many or workers[0] == workers[1]) and masks[1] <= masks[0]


def _in_training(a: Run, b: Run) -> tuple[Drawn, Drawn]:
    """How often that much is drawn with gradients; in the other script also without them, where the
    original does not; and in as many steps, as far as it is not drawn once for all of them."""
    longer = a.steps_made / max(1, b.steps_made)
    one, two = (_drawn(run, "whole") for run in (a, b))
    idle = [_drawn(run, "idle") for run in (a, b)]
    beside = {k: max(0.0, n * longer - idle[0].get(k, 0)) for k, n in idle[1].items()}
    ends = {k: (n, n * longer, one.get(k, 0)) for k, n in two.items()}
    return one, {k: median(ends.get(k, (0,))) + beside.get(k, 0) for k in {**two, **beside}}


def _drawn(run: Run, phase: str) -> Drawn:
    drawn = run.record.drawn.get(phase, {})
    return {key: n for key, n in drawn.items() if not key.startswith(BELOW)}


def _numbers(run: Run) -> tuple[int, int]:
    """Drawn without gradients, and in all."""
    drawn = [_by_size(_drawn(run, phase), 1) for phase in ("idle", "whole")]
    found = [[n for (kind, size), (_, n) in one.items() if kind != "choices" and size > 1] for one in drawn]  # fmt: skip
    return round(sum(found[0])), round(sum(map(sum, found)))


def _lost(one: Drawn, two: Drawn, steady: set[str], base: int) -> Lost | None:
    """The largest that is missing, how often; all numbers missing; those in their place.

    ``base``: 1 for sizes as they are, 2 for those between two powers of 2 together, as batches
    of sentences have many."""
    rows = [_by_size(some, base) for some in (one, two)]
    lost: dict[tuple[int, str], float] = {}
    total, gained, more = Counter[str](), Counter[str](), 0.0
    for key in {*rows[0], *rows[1]}:
        (times, numbers), (now, left) = (some.get(key, (0, 0)) for some in rows)
        kind, size = key
        plainly = times >= (LEAST if size > 1 else OFTEN) and 2 * now <= times
        slightly = times >= OFTEN and 20 * (times - now) >= times and f"{kind} {size}" in steady
        if left <= numbers and (plainly or slightly and kind != "choices"):
            lost[size, kind] = times - now
            total[kind] += round(numbers - left)
        else:  # some more and some less, where draws decide their sizes
            gained[kind] += round(left - numbers)
            more += now - times
    for size, kind in sorted(lost, reverse=True):
        # Numbers of another kind stand for it as far as they stand for none of their own.
        others = gained - total - Counter({kind: gained[kind]})
        place = gained[kind] + others.total() - (kind == "normals") * others["numbers"]
        as_often = kind == "choices" and 2 * more >= lost[size, kind]
        if 4 * place < total[kind] and not as_often:
            of = f"{'about ' * (base > 1)}{size}"
            return (kind, of), lost[size, kind], total[kind], max(0, place)
    return None


def _by_size(drawn: Drawn, base: int) -> dict[tuple[str, int], tuple[float, float]]:
    """By kind and size: how many draws, and of how many numbers in all."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for key, n in drawn.items():
        kind, _, text = key.partition(" ")
        size = int(text) if base == 1 else 1 << int(text).bit_length()
        times, numbers = found.get((kind, size), (0, 0))
        found[kind, size] = times + n, numbers + n * int(text)
    return found


def _models(run: Run) -> set[int]:
    return {one.model for one in run.record.evaluations}


def _of(run: Run, model: int) -> list[Evaluation]:
    return [one for one in run.record.evaluations if one.model == model]


def _put_off(ev: Evidence) -> Check | None:
    """Calls without gradients that the original makes before most steps (to act, or for targets)
    are made before a few, for as many samples: by other weights. Not of what never moves, nor of
    what does not move between them (a generator, while its critic takes steps)."""
    start, end = ev.a.record.start, ev.a.record.model
    moved = {k.partition("/")[0] for k, v in start.items() if k in end and end[k].sha != v.sha}
    for model in sorted(m for m in _models(ev.a) & _models(ev.b) if str(m) in moved):
        rows = [[_by_weights(pair[k], model) for pair in ev.pairs] for k in (0, 1)]
        until = min((max(one, default=0) for some in rows for one in some), default=0)
        cut = [[{s: n for s, n in one.items() if s <= until} for one in some] for some in rows]
        if not all(one.keys() == some[0].keys() for some in cut for one in some) or not ev.pairs:
            continue
        (before, *_), (after, *_) = cut
        if len(before) < OFTEN or not after.keys() < before.keys() or 2 * len(after) > len(before):
            continue
        if sum(after.values()) > 0.8 * sum(before.values()):
            often = f"before {len(after)} of {until + 1} steps, before {len(before)} in the original: put off, or made ahead, by other weights"
            text = f"for as many samples model {model} is called without gradients {often}"
            return differs(text)
    return None


def _by_weights(run: Run, model: int) -> Counter[int]:
    """For how many samples, by the step from which on its weights are what they are."""
    found = Counter[int]()
    for one in _of(run, model):
        found[one.step if one.weights < 0 else one.weights] += one.samples
    return found


def _another(ev: Evidence) -> Check | None:
    """What a model that trains was asked in most steps, one that does not (a target, an average) is
    asked in its place, or the reverse."""
    trained = {call.model for call in ev.a.record.calls}
    both = _models(ev.a) & _models(ev.b)
    for one, other in product(both & trained, both - trained):
        moved = [(_more(*pair, one), _more(*pair, other)) for pair in ev.pairs]
        if surely(sum(x[s] == -y[s] != 0 for s in x) >= max(OFTEN, len(x) / 2) for x, y in moved):
            lost, got = (one, other) if sum(moved[0][0].values()) < 0 else (other, one)
            text = f"model {got} is asked without gradients what the original asks of model {lost}"
            return differs(text)
    return None


def _more(a: Run, b: Run, model: int) -> Counter[int]:
    """For how many samples more ``model`` is called without gradients in ``b``, by step."""
    before, after = (Counter({e.step: e.samples for e in _of(run, model)}) for run in (a, b))
    after.subtract(before)
    return after
