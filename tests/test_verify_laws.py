"""The law by which inputs are drawn: another strength, share or range is told from other draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import Call, Run
from autofast.verify.judging import inputs, laws
from autofast.verify.probe.laws import BLOCK, Laws, described
from autofast.verify.result import Check
from tests.test_verify_judge import MOVED, made

CALLS, ROWS = 80, 24
Law = Callable[[torch.Generator], torch.Tensor]


def run(arm: str, seed: int, law: Law, stream: int, calls: int = CALLS) -> Run:
    generator = torch.Generator().manual_seed(1000 * stream + seed)
    kept, found = Laws(), []
    for i in range(calls):
        tensor = law(generator)
        sums = {"0": float(tensor.double().sum())}
        found.append(Call(0, ROWS, sums, i, laws={k: tuple(v) for k, v in kept.called(0, [("0", tensor)]).items()}))  # fmt: skip
    return made(arm, seed=seed, calls=tuple(found))


def given(before: Law, after: Law, stream: int = 7) -> Check | None:
    runs = [run("original", seed, before, 1) for seed in range(4)]
    runs += [run("rewritten", seed, after, stream) for seed in range(4)]
    moved = made(detail=MOVED, calls=runs[0].record.calls)
    return inputs.given(gather("unknown", [runs[0], *runs, moved]))


def pictures(noise: float = 0.05, flips: float = 0.5, kind: str = "normal") -> Law:
    """Of a slope that goes up to the right, each with a level of its own."""

    def law(g: torch.Generator) -> torch.Tensor:
        clean = torch.linspace(0, 0.3, 12) + torch.rand(ROWS, 1, 1, 1, generator=g)
        clean = clean.expand(ROWS, 1, 12, 12)
        clean = torch.where(torch.rand(ROWS, 1, 1, 1, generator=g) < flips, clean.flip(-1), clean)
        if kind == "even":
            return clean + noise * 3**0.5 * (2 * torch.rand(clean.shape, generator=g) - 1)
        white = torch.randn(clean.shape, generator=g)
        if kind == "of rows":
            white = white[..., :1].expand_as(white)
        return clean + noise * white

    return law


def turned(coins: str = "each its own") -> Law:
    """Pictures with a slope along both axes and a level, turned along each, and made lighter, by
    chance."""

    def law(g: torch.Generator) -> torch.Tensor:
        slope = torch.linspace(-0.3, 0.3, 12)
        clean = slope + 0.5 * slope[:, None] + torch.rand(ROWS, 1, 1, 1, generator=g)
        clean = clean + 0.1 * torch.randn(clean.shape, generator=g)
        coins_ = torch.rand(3, ROWS, 1, 1, 1, generator=g) < 0.5
        if coins == "one for both turns":
            coins_[1] = coins_[0]
        if coins == "one for a turn and the light":
            coins_[2] = coins_[1]
        across, down, light = coins_
        clean = torch.where(across, clean.flip(-1), clean)
        clean = torch.where(down, clean.flip(-2), clean)
        return clean + 0.2 * light

    return law


def words(share: float = 0.15) -> Law:
    """Of 20 at most, some of them replaced by 1, some by another."""

    def law(g: torch.Generator) -> torch.Tensor:
        text = torch.randint(2, 50, (ROWS, 20), generator=g)
        drawn = torch.rand(text.shape, generator=g)
        text = torch.where(drawn < share, torch.randint(2, 50, text.shape, generator=g), text)
        text[drawn < 0.8 * share] = 1
        text[torch.arange(20) >= torch.randint(8, 21, (ROWS, 1), generator=g)] = 0
        return text[:, : int((text != 0).sum(1).max())]

    return law


def times(kind: str) -> Law:
    def law(g: torch.Generator) -> torch.Tensor:
        if kind == "even":
            return torch.rand(ROWS, generator=g)
        if kind == "one less":
            return torch.randint(0, 99, (ROWS,), generator=g) / 100
        if kind == "steps":
            return torch.randint(0, 100, (ROWS,), generator=g) / 100
        return torch.randn(ROWS, generator=g).sigmoid()

    return law


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (pictures(), pictures(0.06), "distance of neighbours"),
        (pictures(), pictures(0.045), "neighbours"),
        (pictures(), pictures(flips=0.4), "slope"),
        (turned(), turned("one for both turns"), "slope along the last axis, times"),
        (turned(), turned("one for a turn and the light"), "times the mean"),
        (turned(), turned(), ""),
        (pictures(), pictures(kind="even"), "least"),
        (pictures(), pictures(kind="of rows"), "neighbours"),
        (words(), words(0.125), "modulo 16"),
        (times("normal"), times("even"), "quantile"),
        (pictures(), pictures(), ""),
        (words(), words(), ""),
        (times("normal"), times("normal"), ""),
    ],
)
def test_another_law_is_told_from_other_draws(before: Law, after: Law, said: str) -> None:
    found = given(before, after)
    assert found is not None and found.passed is (not said), found
    assert not said or "another law" in found.text


def test_numbers_of_16_bits_follow_the_same_law() -> None:
    """An input that another model makes under autocast."""

    def low(g: torch.Generator) -> torch.Tensor:
        return pictures()(g).bfloat16()

    found = given(pictures(), low)
    assert found is not None and found.passed, found


def test_whole_numbers_by_turns_with_others_have_no_law() -> None:
    kept = Laws()
    some = [torch.rand(ROWS, 3), torch.randint(0, 3, (ROWS,))] * BLOCK
    assert not any(kept.called(0, [("0", one)]) for one in some)


def test_equal_laws_are_told_apart_by_no_draws() -> None:
    """Ten times each, by all numbers that are kept."""
    for law in (pictures(), turned(), words(), times("steps")):
        before = [run("original", seed, law, 1, 3 * BLOCK) for seed in range(4)]
        for stream in range(2, 12):
            after = [run("rewritten", seed, law, stream, 3 * BLOCK) for seed in range(4)]
            assert laws.wrong([*zip(before, after, strict=True)], (0, "0")) == ""


def test_data_that_are_drawn_once_for_a_run_scatter_with_seeds() -> None:
    """Calls of one run tell less than they seem to: 30 samples, again and again."""

    def again(stream: int, seed: int) -> Law:
        g = torch.Generator().manual_seed(31 * stream + seed)
        level, slope = torch.rand(2, 30, 1, generator=g)
        some = level + slope * torch.linspace(0, 1, 6)
        return lambda g: some[torch.randint(0, 30, (ROWS,), generator=g)]

    before = [run("original", seed, again(1, seed), 1) for seed in range(4)]
    for stream in range(2, 16):
        after = [run("rewritten", seed, again(stream, seed), stream) for seed in range(4)]
        assert laws.wrong([*zip(before, after, strict=True)], (0, "0")) == ""


def test_two_views_by_turns_or_one_behind_the_other() -> None:
    def law(by_turns: bool) -> Law:
        def of(g: torch.Generator) -> torch.Tensor:
            views = [torch.randn(100, 6, generator=g) * size for size in (1, 3)]
            return torch.stack(views, 1).flatten(0, 1) if by_turns else torch.cat(views)

        return of

    found = given(law(True), law(False))
    assert found is not None and found.passed, found


def test_what_says_what_a_sample_is_like() -> None:
    torch.manual_seed(0)
    for tensor, names in (
        (torch.randn(5), laws.REAL),
        (torch.randn(6, 3, 90, 80, 2), laws.REAL),
        (torch.zeros(4, 7), laws.REAL),
        (torch.rand(3, 4) < 0.5, laws.REAL),
        (torch.randint(0, 9, (70, 2)), laws.WHOLE),
        (torch.tensor(2.0), laws.REAL),
    ):
        rows = described(tensor)
        assert rows.shape[1] == len(names) and rows.isfinite().all()
    one = torch.randn(8, 20)
    padded = torch.cat([one, torch.zeros(8, 9)], 1)
    known = [k for k, name in enumerate(laws.REAL) if not name.startswith(("share of z", "entry"))]
    assert torch.allclose(described(one)[:, known], described(padded)[:, known], atol=1e-5)
    line = dict(zip(laws.REAL, described(torch.arange(1.0, 5.0).expand(2, 4))[0].tolist()))  # noqa: B905
    assert line["mean"] == 2.5 and line["greatest"] == 4 and line["roughness"] == 0
    assert line["distance of neighbours along the last axis"] == 1
    assert line["slope along the last axis"] == pytest.approx(1.25**0.5)
