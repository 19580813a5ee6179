"""Random numbers that are drawn within calls, evaluations, and printed numbers that seeds or the
last digit decide. On made-up runs, and on torch's generators.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofast.verify.evidence import alike
from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import FULL, Call, Evaluation, Pass, Run, Step
from autofast.verify.judging import draws, printed, rounding
from autofast.verify.judging.parity import judge
from autofast.verify.result import Sameness
from tests import probing
from tests.test_verify_judge import LOSSES, MOVED, made, tensor
from tests.verify_runs import record, run

OWN = "rng = default_rng(0)"
SIZES = {
    "wholes 2": 96,
    "numbers 60": 24,
    "numbers 2560": 48,
    "choices 20": 24,
    "choices 900": 4,
    "normals 70": 24,
    "below 17": 140,
    "below 9": 100,
}


def sized(arm: str = "original", more: dict[str, Any] | None = None, **other: Any) -> Run:
    sentences = dict.fromkeys((f"numbers {n}" for n in range(40, 52)), 2)
    idle = other.pop("idle", {})
    whole = {**SIZES, **(sentences if other.pop("many", False) else {}), **(more or {})}
    drawn = {"whole": whole, "idle": idle}
    losses = LOSSES if arm == "original" else (1.01, 0.9, 0.8, 0.7)
    return made(arm, losses, drawn=drawn, states=tuple(f"{arm}{i}" for i in range(4)), **other)


@pytest.mark.parametrize(
    ("more", "other", "passed"),
    [
        ({}, {}, None),
        ({"numbers 60": 0}, {}, False),  # lost
        ({"numbers 60": 0, "numbers 3": 24}, {}, False),  # one for all of 20 samples
        ({"numbers 2560": 24}, {}, False),  # one of two a step
        ({"numbers 2560": 24, "numbers 20": 24}, {}, False),
        ({"numbers 2560": 36}, {}, False),  # under every seed
        ({"numbers 2560": 36, "numbers 640": 12}, {}, None),
        ({"numbers 60": 0, "numbers 30": 48}, {}, None),  # halves of the batches
        ({"numbers 60": 0, "numbers 2560": 0, "numbers 2620": 48}, {}, None),  # both at once
        ({"numbers 60": 0, "numbers 1440": 1}, {}, None),  # for all steps before the first
        ({"numbers 60": 0, "numbers 300": 1}, {}, False),  # once, and not again
        ({"choices 900": 1}, {}, False),  # one order for all epochs
        ({"numbers 60": 1, "wholes 2": 0, "wholes 192": 1}, {}, False),  # at once, and one for all
        ({"numbers 60": 0, "coins 60": 24}, {}, None),  # by another kind
        ({"numbers 60": 0, "normals 60": 24}, {}, False),  # noise of another shape
        ({"numbers 60": 0, "normals 60": 20, "numbers 240": 1}, {}, False),
        ({"numbers 60": 0, "normals 60": 23}, {}, None),
        (
            {"numbers 60": 0, "normals 60": 24},
            {"script": ("a.py", "x.argsort()")},
            "made otherwise",
        ),
        ({"below 17": 40, "below 9": 200}, {}, False),  # never at the border
        ({"below 17": 40, "below 9": 100, "below 18": 90}, {}, None),
        ({"below 17": 40, "below 9": 0, "below 153": 100}, {}, None),  # two in one
        ({"normals 70": 0, "numbers 70": 24}, {}, False),  # noise of another shape
        ({"normals 70": 0, "numbers 70": 24}, {"script": ("a.py", "erfinv")}, "made otherwise"),
        ({"choices 900": 0, "choices 3600": 1}, {}, None),  # all orders at once
        ({"choices 900": 0, "numbers 900": 4}, {}, None),  # by sorting numbers
        ({"choices 900": 0, "numbers 1": 4}, {}, None),  # by a seed for each
        ({"choices 900": 1}, {"script": ("a.py", OWN)}, "a generator of its own"),
        ({"numbers 60": 0}, {"idle": {"numbers 60": 24}}, None),  # the same, without gradients
        ({}, {"idle": {"numbers 60": 9}}, False),  # noise in an evaluation
        ({}, {"idle": {"choices 900": 9}}, None),  # in another order
        ({"choices 900": 1, "choices 20": 20, "choices 24": 4}, {}, False),  # others by chance
        ({f"numbers {n}": 0 for n in range(40, 52)}, {"many": True}, False),  # of sentences
        ({"numbers 60": 0, "choices 20": 48}, {}, None),  # a category in another way
        ({"numbers 60": 0, "numbers 1": 1440}, {}, None),  # each by itself
        ({"numbers 60": 0}, {"masks": (60,) * 4}, None),  # by dropout
        ({"numbers 60": 0}, {"script": ("a.py", "rng = default_rng(0)")}, "a generator of its own"),
        ({"numbers 60": 0}, {"script": ("a.py", OWN), "changed": {"a.py": (OWN, OWN)}}, False),
        ({"numbers 60": 0}, {"changed": {"b.py": ("", OWN)}}, "a generator of its own"),
    ],
)
def test_draws_of_one_size(
    more: dict[str, int], other: dict[str, Any], passed: bool | str | None
) -> None:
    script = {"script": ("a.py", OWN)} if "changed" in other and passed is False else {}
    script |= {"many": True} if "many" in other else {}
    runs = [sized(seed=seed, **script) for seed in (0, 0, 1)]
    runs += [sized("rewritten", more, seed=seed, **other) for seed in (0, 1)]
    check = draws.check(gather("unknown", runs))
    if isinstance(passed, str):
        assert check is not None and check.passed is None and passed in check.text
    else:
        assert (check.passed if check is not None else None) is passed


ONE_BY_ONE = {"numbers 1": 320, "numbers 64": 160, "normals 192": 160, "choices 120": 160}
AT_ONCE = {"numbers 8": 40, "numbers 512": 20, "normals 1536": 20, "choices 120": 160}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (AT_ONCE, ""),
        ({**AT_ONCE, "numbers 8": 20, "numbers 1": 20}, "140 draws of 1 number less"),
        ({**AT_ONCE, "numbers 8": 0, "numbers 1": 40}, "280 draws of 1 number less"),
        ({**ONE_BY_ONE, "normals 192": 0, "normals 64": 160}, "160 draws of 64 numbers in place"),
        ({**ONE_BY_ONE, "normals 192": 0, "normals 100": 160}, ""),  # what nobody needed
        ({**ONE_BY_ONE, "normals 192": 0, "normals 64": 160, "numbers 128": 160}, ""),
        ({**AT_ONCE, "numbers 8": 20, "numbers 1": 20, "wholes 8": 20}, ""),  # by another kind
        ({**AT_ONCE, "numbers 8": 20, "numbers 1": 33}, ""),  # as draws have it
    ],
)
def test_numbers_that_are_missing_to_the_last_one(after: dict[str, int], said: str) -> None:
    """Of 8 samples in each of 20 steps."""
    losses = tuple(1.0 - i / 100 for i in range(20))
    runs = []
    for arm, drawn in (("original", ONE_BY_ONE), ("original", ONE_BY_ONE), ("rewritten", after)):
        states = tuple(f"{arm}{i}" for i in range(20))
        some = tuple(x + 0.01 * (arm == "rewritten") for x in losses)
        script = ("a.py", "turn.cos()" * (arm == "rewritten"))
        runs.append(made(arm, some, states=states, drawn={"whole": drawn}, script=script))
    check = draws.check(gather("unknown", runs))
    found = check.text if check is not None and check.passed is False else ""
    assert said in found and bool(said) == bool(found)


@pytest.mark.parametrize(
    ("ends", "wrong"),
    [
        ((50, 50, 50, 50), True),
        ((50, 50, 50), False),
        ((50, 51, 50, 50), False),
        ((48,) * 4, False),
    ],
)
def test_another_range_where_data_decide_how_many(ends: tuple[int, ...], wrong: bool) -> None:
    runs = [sized(more={"below 48": 1500 + seed}, seed=seed) for seed in (0, *range(len(ends)))]
    runs += [
        sized("rewritten", {"below 48": 510, f"below {end}": 1000 - 3 * seed}, seed=seed)
        for seed, end in enumerate(ends)
    ]
    check = draws.check(gather("unknown", runs))
    found = "" if check is None else check.text
    assert ("whole numbers below 50 in place of as many below 48" in found) == wrong


@pytest.mark.parametrize(
    ("within", "left", "law", "passed"),
    [
        (0, 24, 0.3, None),  # what one number decides is drawn as what three did
        (0, 24, 0.4, False),
        (0, 12, 0.3, False),  # fewer than there are calls
        (9, 24, 0.3, False),  # in the model, for its layers perhaps
    ],
)
def test_one_number_that_decides_what_several_did(
    within: int, left: int, law: float, passed: bool | None
) -> None:
    def one(arm: str, seed: int, many: int) -> Run:
        losses = tuple(1.0 - i / 100 + 0.01 * (arm == "rewritten") for i in range(24))
        draw = random.Random(f"{arm}{seed}")
        share = law if arm == "rewritten" else 0.3
        blocks = [tuple(draw.gauss(share, 0.01) for _ in range(140)) for _ in losses]
        calls = tuple(
            Call(0, 8, {"0": draw.random()}, i, laws={"0": block}) for i, block in enumerate(blocks)
        )
        drawn = {"whole": {"numbers 60": many, "wholes 60": 24}, "sizes": {"within": within}}
        states = tuple(f"{arm}{i}" for i in range(24))
        return made(arm, losses, seed=seed, calls=calls, drawn=drawn, states=states)

    runs = [one("original", seed, 72) for seed in (0, 0, 1, 2, 3)]
    runs += [one("rewritten", seed, left) for seed in range(4)]
    check = draws.check(gather("unknown", runs))
    assert check is not None and check.passed is passed, check


@pytest.mark.parametrize(
    ("workers", "unseen", "wrong"),
    [((0, 0), (0, 0), True), ((0, 4), (0, 0), True), ((2, 4), (0, 0), True), ((4, 2), (0, 0), False),
     ((2, 2), (3, 3), True), ((0, 4), (0, 3), False)],
)  # fmt: skip
def test_draws_of_other_workers(
    workers: tuple[int, int], unseen: tuple[int, int], wrong: bool
) -> None:
    """Fewer may draw tables of their own less often, and what is not counted tells nothing."""
    runs = []
    for place, arm in ((0, "original"), (0, "original"), (1, "rewritten")):
        whole = {
            "sizes": {"unseen": unseen[place]},
            "whole": {**SIZES, "numbers 60": 24 - 24 * place},
        }
        passes = (Pass(0, True, 4, 32, True, workers[place]),)
        runs.append(replace_drawn(sized(arm, passes=passes), whole))
    check = draws.check(gather("unknown", runs))
    assert (check is not None and check.passed is False) == wrong


def replace_drawn(run: Run, drawn: dict[str, Any]) -> Run:
    return replace(run, records=(replace(run.record, drawn=drawn),))


def test_what_is_drawn_once_stands_for_nothing_in_shorter_runs() -> None:
    """The training stops by its own numbers: data made before it are no more for that."""
    before = {"numbers 1000000": 1, "numbers 60": 400, "numbers 9": 12}
    after = {"numbers 1000000": 1, "numbers 1": 300, "numbers 9": 9}
    plain = made(losses=LOSSES, drawn={"whole": before})
    other = made("rewritten", (1.01, 0.9, 0.8), drawn={"whole": after})
    check = draws.check(gather("unknown", [plain, plain, other]))
    assert check is not None and "400 draws of 60 numbers less" in check.text
    kept = made("rewritten", (1.01, 0.9, 0.8), drawn={"whole": {**after, "numbers 60": 300}})
    assert draws.check(gather("unknown", [plain, plain, kept])) is None


def test_draws_of_no_use_may_be_left_out() -> None:
    """Nothing but rounding parts the two."""
    left = {"numbers 60": 0}
    other = replace_losses(LOSSES, 1e-7)
    after = made("rewritten", other, drawn={"whole": {**SIZES, **left}})
    plain = made(drawn={"whole": SIZES})
    assert draws.check(gather("unknown", [plain, plain, after])) is None
    moved = made(losses=replace_losses(LOSSES, 2e-7), detail=MOVED, drawn={"whole": SIZES})
    assert draws.check(gather("unknown", [plain, plain, after, moved])) is None


def replace_losses(losses: tuple[float, ...], by: float) -> tuple[float, ...]:
    return tuple(loss + by for loss in losses)


DRAWING = """
import random
import numpy
import torch
from torch.utils.checkpoint import checkpoint

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.empty(7).uniform_()


@torch.jit.script
def scripted(x):
    return x + torch.rand_like(x)


def noisy(x):
    return model(x + torch.rand_like(x))


for step in range(4):
    x = torch.randn(6, 4)[torch.randperm(6)[: 2 + step % 2]]
    torch.empty(5).normal_()
    random.random(), numpy.random.rand(2, 5), random.choice([1, 2])
    torch.randint(5, (3,)), torch.randint(1, 6, (3,)), torch.randint_like(x, 5), x.random_(2, 7)
    random.randint(1, 5), random.randrange(5), numpy.random.randint(5), numpy.random.randint(low=1, high=6)
    scripted(x)
    loss = checkpoint(noisy, x, use_reentrant=False).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_sizes_of_draws_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DRAWING)
    ran = probing.run(tmp_path, str(tmp_path / "train.py"), detail=FULL)
    drawn = ran.record.drawn
    assert drawn["sizes"]["sequence"] and drawn["sizes"]["among"] and not drawn["idle"]
    assert drawn["whole"] == {"numbers 7": 1, "normals 24": 4, "choices 6": 4, "normals 5": 4, "numbers 1": 4, "numbers 10": 4, "choices 1": 4, "numbers 12": 2, "numbers 8": 2, "below 5": 120, "wholes 1": 16, "wholes 3": 8, "wholes 12": 4, "wholes 8": 4}  # fmt: skip


IN_WORKERS = """
import sys
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        inner = next(iter(DataLoader([i, i + 1], batch_size=2)))
        return torch.randn(3) + numpy.random.rand() + inner.float().mean() / 24


def collate(items):
    return {"x": torch.stack(items) + torch.rand(1)}


def main():
    how = sys.argv[1]
    loader = DataLoader(
        Noisy(), 4, shuffle=True, collate_fn=collate, num_workers=2 * (how != "none"),
        multiprocessing_context=how if how != "none" else None,
    )
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for batch in loader:
            model(batch["x"]).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            for batch in loader:
                model(batch["x"])


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("steps", [0, 8])  # to the end, or while batches wait
@pytest.mark.parametrize("how", ["none", "fork", "spawn"])
def test_draws_in_workers_count_where_their_batches_are_taken(
    tmp_path: Path, how: str, steps: int
) -> None:
    (tmp_path / "train.py").write_text(IN_WORKERS)
    place = str(tmp_path / "train.py")
    ran = probing.run(tmp_path, place, how, detail=FULL, steps=steps)
    drawn, times = ran.record.drawn, 8 if steps else 12
    assert len(ran.record.steps) == times, ran.stderr
    assert drawn["sizes"]["unseen"] == (how == "spawn") * (times + (6 if steps else 12))
    if how != "spawn":
        trained = {key: drawn["whole"][key] for key in ("normals 3", "numbers 1")}
        assert trained == {"normals 3": 4 * times, "numbers 1": 5 * times}
        assert drawn["idle"]["normals 3"] == (24 if steps else 48)


# ---------------------------------------------------------------------------------- what is printed
def chosen(far: tuple[bool, ...], times: int = 1) -> list[Run]:
    """Under so many seeds; far ones print another threshold, though training differs by a rounding
    alone.
    """
    moved = tuple(loss + 1e-8 for loss in LOSSES)
    runs = [made(stdout="cut 0.40\n" * times, detail=MOVED)]
    for seed, jumps in enumerate(far):
        runs += [made(stdout="cut 0.40\n" * times, seed=seed)] * (2 if not seed else 1)
        runs.append(
            made(
                "rewritten", moved, stdout=f"cut {0.45 if jumps else 0.40:.2f}\n" * times, seed=seed
            )
        )
    return runs


@pytest.mark.parametrize(
    ("far", "times", "passed"),
    [
        ((True,), 1, None),  # not yet known
        ((True, False, False, False), 1, True),
        ((True, True, True, False), 1, True),
        ((True, True, True, True), 1, False),
        ((False, True, True, True), 1, True),
        ((True,), 4, False),
    ],
)
def test_a_number_that_is_printed_once_is_judged_over_seeds(
    far: tuple[bool, ...], times: int, passed: bool | None
) -> None:
    check = printed.rounded(gather("unknown", chosen(far, times)))
    assert check is not None and check.passed is passed


@pytest.mark.parametrize(
    ("other", "equivalent"),
    [
        (("0.8481", "0.7213", "0.6300"), True),  # 0.84805 and what is less
        (("0.8481", "0.7214", "0.6300"), False),
        (("0.8482", "0.7213", "0.6300"), False),
        (("0.848", "0.7213", "0.6300"), True),
    ],
)
def test_the_last_digit_of_a_sum_at_the_edge_of_two(
    other: tuple[str, ...], equivalent: bool
) -> None:
    def printing(arm: str, values: tuple[str, ...]) -> Run:
        return made(arm, stdout="".join(f"loss {value}\n" for value in values))

    plain = printing("original", ("0.8480", "0.7213", "0.6300"))
    found = judge("unknown", [plain, plain, printing("rewritten", other)])
    assert (found.verdict is Sameness.EQUIVALENT) is equivalent, found.summary


def test_a_number_that_is_always_the_same_is_no_loss() -> None:
    """Four batches in a pass, near to the sum of two losses."""

    def counting(arm: str, losses: tuple[float, ...], total: float) -> Run:
        return made(arm, losses, stdout=f"4 batches, sum {total}\n4 batches, sum {total}\n")

    plain = counting("original", (2.1, 2.0, 2.0, 2.0), 4.1)
    after = counting("rewritten", (1.9, 1.5, 1.5, 1.5), 3.4)
    check = printed.meaning(gather("unknown", [plain, plain, after]))
    assert check is None, check.text


# ------------------------------------------------------------------------------- calls and rounding
def test_streams_of_random_numbers_that_meet_again_are_not_the_same_draws() -> None:
    other = tuple(Call(0, 8, {"0": 9.0 + i}, i) for i in range(4))
    drawn = {"whole": SIZES, "sizes": {"sequence": 7, "among": 1}}
    plain, moved = made(drawn=drawn), made(detail=MOVED, drawn=drawn)
    for sequence, redrawn in ((7, True), (8, False)):
        after = {"whole": SIZES, "sizes": {"sequence": sequence, "among": 2}}
        after = made("rewritten", calls=other, drawn=after)
        assert alike.redrawn(gather("unknown", [plain, plain, moved, after])) is redrawn


@pytest.mark.parametrize(
    ("places", "verdict"),
    [((2, 2, 2, 2), Sameness.DIFFERENT), ((2, 1, 2, 2), None), ((4, 4, 4, 4), None)],
)
def test_other_data_after_steps_that_are_the_same(
    places: tuple[int, ...], verdict: Sameness | None
) -> None:
    """What is mined once, in place of anew, comes with the second pass under every seed; what a
    rounding has chosen comes anywhere."""

    def mined(arm: str, seed: int, place: int = 9, **other: Any) -> Run:
        calls = tuple(Call(0, 8, {"0": seed + i + (i >= place)}, i) for i in range(4))
        losses = tuple(loss + 1e-3 * (i >= place) for i, loss in enumerate(LOSSES))
        states = tuple(f"{seed}.{i}" for i in range(4))
        return made(arm, losses, seed=seed, calls=calls, states=states, **other)

    runs = [mined("original", seed) for seed in (0, 0, 1, 2, 3)]
    runs += [mined("rewritten", seed, place) for seed, place in enumerate(places)]
    found = judge("unknown", [*runs, mined("original", 0, detail=MOVED)])
    said = [c for c in found.checks if c.name == "data"]
    if places[0] == 4:
        assert not said
    else:
        assert said[0].passed is (None if verdict is None else False)
        assert "not a bit differs in 2 steps" in said[0].text


def test_real_and_fake_in_one_call_are_the_same_data() -> None:
    def calls(parts: tuple[tuple[int, float], ...], step: int) -> tuple[Call, ...]:
        return tuple(Call(0, size, {"0": value + step}, step) for size, value in parts)

    apart = sum((calls(((8, 1.0), (8, 2.0)), i) for i in range(4)), ())
    at_once = sum((calls(((16, 3.0 + i),), i) for i in range(4)), ())
    plain = made(calls=apart, masks=(), drawn={"0": {"calls": 8, "drew": 0}})
    other = made("rewritten", calls=at_once, masks=(), drawn={"0": {"calls": 4, "drew": 0}})
    assert alike.determined(gather("unknown", [plain, plain, other]))
    more = replace(at_once[2], sums={"0": 9.0})
    wrong = replace(other, records=(replace(other.record, calls=(*at_once[:2], more, at_once[3])),))
    assert alike.steps(gather("unknown", [plain, plain, wrong])) == 2


@pytest.mark.parametrize(("updates", "of_perturbed", "found"), [((1.0, 0.2), (1.0, 0.1), True), ((1.0, 0.2), (1.0, 0.19), False), ((1.0, 0.1), (1.0, 0.1), False)])  # fmt: skip
def test_steps_that_adam_makes_of_roundings(
    updates: tuple[float, ...], of_perturbed: tuple[float, ...], found: bool
) -> None:
    def stepped(arm: str, gradient: float, moved: tuple[float, ...], **more: Any) -> Run:
        steps = [
            Step(i, 0, 0.0, 1.0, {}, 8, 1, 0, 1, (1.0,), (0.1,), grad_norms=(1.0, gradient), update_norms=moved)
            for i in range(4)
        ]  # fmt: skip
        return run(record(steps), arm, **more)

    plain = stepped("original", 0.5, (1.0, 0.1))
    other = stepped("rewritten", 0.5000001, updates)
    perturbed = stepped("original", 0.5000001, of_perturbed, detail=MOVED)
    assert rounding.unruly(gather("unknown", [plain, plain, other, perturbed])) is found


def asked(arm: str = "original", trains: int = 72, slow: int = 64, steps: int = 20) -> Run:
    """Model 0 trains, model 1 does not; both are called without gradients before every step."""
    losses = tuple((1.0 if arm == "original" else 1.01) - i / 100 for i in range(steps))
    calls = [Evaluation(m, s, 1, n, {}) for s in range(steps) for m, n in ((0, trains), (1, slow))]
    states = tuple(f"{arm}{i}" for i in range(steps))
    return made(arm, losses, states=states, updates=(0.1,) * steps, evaluations=tuple(calls))


@pytest.mark.parametrize(
    ("trains", "slow", "steps", "wrong"),
    [
        (8, 128, 20, True),  # a choice of the net that trains, made by the slow one
        (64, 72, 20, True),  # acts by the slow one
        (136, 0, 20, True),
        (72, 64, 20, False),
        (8, 64, 20, False),  # computed along with what has gradients
        (36, 32, 20, False),  # half the batches
        (8, 120, 20, False),
        (8, 128, 5, False),  # in a few steps alone
    ],
)
def test_another_model_is_asked(trains: int, slow: int, steps: int, wrong: bool) -> None:
    original, other = asked(steps=steps), asked("rewritten", trains, slow, steps)
    check = draws.check(gather("unknown", [original, original, other]))
    assert check is not None and (check.passed is False) == wrong
    assert not wrong or f"model {int(trains < 72)} is asked" in check.text


def test_models_of_one_kind_change_their_numbers() -> None:
    """Two that train, or two that do not, are numbered in the order of their calls."""
    both = {"calls": tuple(Call(m, 8, {"0": 1.0}, i) for i in range(20) for m in (0, 1))}
    original, other = (
        replace(run, records=(replace(run.record, **both),))
        for run in (asked(), asked("rewritten", 64, 72))
    )
    check = draws.check(gather("unknown", [original, original, other]))
    assert check is not None and check.passed


@pytest.mark.parametrize(
    ("lost", "kept", "passed"),
    [
        (range(30, 50), 60, None),  # negatives that did not fit
        (range(30, 50), 0, False),  # the first draws, too
        (range(30, 34), 60, False),  # of a few sizes: of another step
        (range(100, 120), 60, False),  # larger than what is left
    ],
)
def test_what_is_drawn_again_until_it_fits(lost: range, kept: int, passed: bool | None) -> None:
    before = {"choices 64": 60, **{f"choices {size}": 3 for size in lost}}
    runs = [sized(more=before, seed=seed) for seed in (0, 0, 1)]
    runs += [sized("rewritten", {"choices 64": kept}, seed=seed) for seed in (0, 1)]
    check = draws.check(gather("unknown", runs))
    assert check is not None and check.passed is passed, check
    assert passed is False or "until it fits" in check.text


@pytest.mark.parametrize(("weights", "wrong"), [(1, True), (4, False), (-1, True)])
def test_fakes_of_several_steps_are_made_at_once(weights: int, wrong: bool) -> None:
    """A model is asked before each of 20 steps, or before every fourth, for as many samples: by
    other weights, unless these stay for ``weights`` steps as they are."""

    def asking(arm: str, every: int) -> Run:
        losses = tuple((1.0 if arm == "original" else 1.01) - i / 100 for i in range(20))
        since = (lambda s: s // weights * weights) if weights > 0 else (lambda s: -1)
        calls = [Evaluation(0, s, 1, 8 * every, {}, 0.0, since(s)) for s in range(0, 20, every)]
        states = tuple(f"{arm}{i}" for i in range(20))
        how = {"states": states, "updates": (0.1,) * 20, "evaluations": tuple(calls)}
        return made(arm, losses, start={"0/w": tensor(1.0)}, model={"0/w": tensor(2.0)}, **how)

    original, other = asking("original", 1), asking("rewritten", 4)
    check = draws.check(gather("unknown", [original, original, other]))
    assert check is not None and (check.passed is False) == wrong, check
    assert not wrong or "made ahead" in check.text


TARGETS = """
import copy
import torch
net = torch.nn.Linear(5, 1)
slow = copy.deepcopy(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    with torch.no_grad():
        net(torch.randn(4, 5))
        target = slow(torch.randn(4, 5))
    optimizer.zero_grad()
    (net(torch.randn(4, 5)) - target).square().mean().backward()
    optimizer.step()
    if step % 3 == 2:
        for one, two in zip(slow.parameters(), net.parameters()):
            one.data.copy_(two.data)
"""


def test_since_when_weights_are_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TARGETS)
    record = probing.run(tmp_path, str(tmp_path / "train.py"), detail=FULL).record
    found = {m: [one.weights for one in record.evaluations if one.model == m] for m in (0, 1)}
    assert sorted(found.values()) == [[0, 0, 0, 3, 3, 3], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(("choices", "wrong"), [(24, False), (20, False), (4, True), (0, True)])
def test_an_action_chosen_by_an_even_number_is_no_evaluation(choices: int, wrong: bool) -> None:
    """In place of a choice for each of 16; what is more is noise."""
    before = [sized(more={"choices 16": choices}, seed=seed) for seed in (0, 0, 1)]
    after = [sized("rewritten", idle={"numbers 16": 20}, seed=seed) for seed in (0, 1)]
    check = draws.check(gather("unknown", before + after))
    assert (check is not None and "without gradients" in check.text) is wrong, check
