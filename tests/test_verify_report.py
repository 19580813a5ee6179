"""The reports of a verification: right words for every outcome, JSON that reads back, pages and
comments that nothing can break out of.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autofast.report import verify_diff, verify_facts, verify_json, verify_words
from autofast.report.style import Style, short
from autofast.report.verify_html import page
from autofast.report.verify_markdown import LIMIT, markdown
from autofast.report.verify_text import WIDTH, sentence, text
from autofast.verify import result
from autofast.verify.evidence import record
from autofast.verify.result import Contribution, Ratio, Sameness, Speed, SpeedVerdict, Verification
from autofast.verify.speed import verdict_of
from tests import verify_samples as samples
from tests.verify_samples import SAMPLES, SPEEDS, parity, verification

ROOT = Path(__file__).resolve().parent.parent
VOID = {"meta", "br", "hr", "img", "link", "input"}
GAIN = re.compile(r"faster|speed-?up|\bgains?\b|improve|quicker|pays back", re.I)
COMBINATIONS = list(itertools.product([None, *SpeedVerdict], [None, *Sameness]))


@cache
def made(name: str) -> Verification:
    return SAMPLES[name]()


@cache
def shown(name: str) -> str:
    return page(made(name), date="1 April 2026")


def light(fast: SpeedVerdict | None, same: Sameness | None, **more: object) -> Verification:
    """A verification without runs."""
    speed = None if fast is None else SPEEDS[fast]
    return verification(
        speed, same, runs=(), timed=(), **{"warnings": (), "diagnosis": None, **more}
    )


# ------------------------------------------------------------------------------------- the sentence
def test_faster_and_equivalent() -> None:
    assert (
        sentence(made("faster"))
        == "1.83× faster (95 % CI 1.76–1.90, 12 pairs); same training: loss within seed noise; pays back after 484 steps"
    )


@pytest.mark.parametrize(
    ("fast", "same", "said"),
    [
        (SpeedVerdict.SAME, Sameness.IDENTICAL, "No difference in speed shown: 1.00× (95 % CI 0.99–1.01, 12 pairs; noise floor ±1.3 %); same training: losses and weights"),
        (SpeedVerdict.SLOWER, Sameness.EQUIVALENT, "Slower: a step takes 1.25× as long (95 % CI 1.22–1.28, 12 pairs); same training: loss within seed noise"),
        (SpeedVerdict.UNCLEAR, Sameness.EQUIVALENT, "Speed unclear, 1.04× (95 % CI 0.95–1.13, 3 pairs; noise floor ±1.3 %): the interval is wider"),
        (SpeedVerdict.FASTER, Sameness.DIFFERENT, "Trains differently: gradient norm, step 1: 4.0012 times as large as the original's in all 60 steps; 1.83× faster"),
        (SpeedVerdict.FASTER, Sameness.SUSPICIOUS, "Suspicious, as it converges better than chance allows: loss against seed noise: final loss lower by 0.21"),
        (SpeedVerdict.FASTER, Sameness.BROKEN, "Broken: number of steps and samples: 60 steps in the original, 54 in the other"),
        (SpeedVerdict.FASTER, Sameness.UNCLEAR, "1.83× faster (95 % CI 1.76–1.90, 12 pairs); sameness unclear: the interval reaches over the margin, about 4 more runs"),
        (SpeedVerdict.FASTER, None, "1.83× faster (95 % CI 1.76–1.90, 12 pairs); sameness not tested; pays back"),
        (None, Sameness.EQUIVALENT, "Speed not measured; same training: loss within seed noise"),
        (None, None, "Nothing was measured"),
    ],
)  # fmt: skip
def test_sentences(fast: SpeedVerdict | None, same: Sameness | None, said: str) -> None:
    assert sentence(light(fast, same)).startswith(said)


def test_a_script_that_fails_is_told_with_its_error() -> None:
    assert sentence(made("broken")).startswith(
        "Broken: train_fast.py fails with RuntimeError: mat1 and mat2 must have"
    )
    assert (
        sentence(made("nothing"))
        == "No comparison: train.py fails with ModuleNotFoundError: No module named 'timm'"
    )
    late = replace(samples.run("rewritten"), timed_out=True, seconds=61.0)
    assert (
        sentence(verification(None, Sameness.BROKEN, runs=(late,)))
        == "Broken: train_fast.py did not end within 61.0 s"
    )
    dead = replace(
        samples.run("original"),
        records=(),
        exit_code=139,
        stderr="starting\nSegmentation fault\n\n",
    )
    assert (
        sentence(verification(None, None, runs=(dead,)))
        == "No comparison: train.py ends with exit code 139: Segmentation fault"
    )
    idle = samples.run("original", steps=0)
    assert (
        sentence(verification(None, None, runs=(idle,)))
        == "No comparison: train.py makes no optimizer step"
    )
    long = samples.failed("rewritten", "ValueError: " + "x" * 5000 + "\nsecond line")
    assert len(sentence(verification(None, Sameness.BROKEN, runs=(long,)))) < 300


@pytest.mark.parametrize(("fast", "same"), COMBINATIONS)
def test_no_gain_without_proof(fast: SpeedVerdict | None, same: Sameness | None) -> None:
    """Only FASTER may be called a gain, in every report; and everything always says something."""
    v = light(fast, same)
    told = [sentence(v), text(v, Style()), markdown(v), *map(str, verify_words.badges(v))]
    assert all(told) and "\n" not in sentence(v)
    if fast is not SpeedVerdict.FASTER:
        assert not any(GAIN.search(t) for t in told), told
    broken = same is Sameness.BROKEN
    assert ("faster" in sentence(v)) == (fast is SpeedVerdict.FASTER and not broken)
    assert not (
        "pays back" in sentence(v)
        and same in (Sameness.DIFFERENT, Sameness.SUSPICIOUS, Sameness.BROKEN)
    )
    tone = dict(zip(("speed", "same"), (t for _, t in verify_words.badges(v)), strict=True))
    assert (tone["speed"] == "good") == (
        fast is SpeedVerdict.FASTER and same in (Sameness.IDENTICAL, Sameness.EQUIVALENT)
    )
    assert (tone["same"] == "good") == (same in (Sameness.IDENTICAL, Sameness.EQUIVALENT))
    if same not in (Sameness.IDENTICAL, Sameness.EQUIVALENT):
        assert "trains the same" not in sentence(v)


@pytest.mark.parametrize(
    ("fast", "same"),
    [
        (f, s)
        for f, s in COMBINATIONS
        if f is not SpeedVerdict.FASTER and s in (None, Sameness.EQUIVALENT)
    ],
)
def test_no_gain_on_the_page(fast: SpeedVerdict | None, same: Sameness | None) -> None:
    html = re.sub(r"<style>.*?</style>", "", page(light(fast, same, diff={}, rules=())), flags=re.S)
    assert not GAIN.search(html), GAIN.search(html)


def test_interrupted() -> None:
    v = light(
        SpeedVerdict.FASTER, Sameness.EQUIVALENT, interrupted="the time budget of 60 s is used up"
    )
    assert sentence(v).endswith(
        "; ended early (the time budget of 60 s is used up), judged on what there is"
    )
    assert (
        sentence(light(None, None, interrupted="ended by Ctrl-C"))
        == "Nothing was measured (ended by Ctrl-C)"
    )


def test_break_even() -> None:
    def tail(steps: int | None) -> str:
        return sentence(
            verification(replace(samples.FASTER, break_even=steps), runs=(), timed=())
        ).rpartition("; ")[2]

    assert tail(0) == "same training: loss within seed noise"
    assert tail(1) == "pays back after 1 step"
    assert tail(None) == "never pays back what its start costs"
    short = verification(replace(samples.FASTER, break_even=90, own_steps=60), runs=(), timed=())
    assert "never pays back within the script's own 60 steps (only after 90 steps)" in sentence(
        short
    )


def test_numbers() -> None:
    said = verify_words
    assert [said.seconds(x) for x in (0.00085, 0.0421, 3.2, 99.99, 125.0, 700.0, math.nan, None)] == [
        "850 µs", "42.1 ms", "3.20 s", "100 s", "125 s", "11 min 40 s", "–", "–",
    ]  # fmt: skip
    assert [said.memory(x) for x in (812.0, 3400.0, None)] == ["812 MiB", "3.32 GiB", "–"]
    assert [said.percent(x) for x in (0.0, 0.004, 0.5, math.nan)] == ["0 %", "<1 %", "50 %", "–"]
    assert said.interval(Ratio(1.0123, 1.0083, 1.0163, 6)) == "1.012 (1.008–1.016)"
    assert said.interval(Ratio(1.2, 0.9, math.inf, 2)) == "1.20 (0.90–∞)"
    assert said.interval(Ratio(1.2, 0.0, math.inf, 2)) == "1.20 (2 pairs, too few for an interval)"
    assert said.interval(Ratio(math.nan, math.nan, math.nan, 0)) == "–"
    assert said.floor(Ratio(1.0, 0.996, 1.004, 6)) == "±0.4 %"
    assert said.floor(Ratio(1.0, 0.88, 1.1, 6)) == "±14 %"  # as far as from 1 to 1 / 0.88
    assert said.floor(Ratio(math.nan, math.nan, math.nan, 0)) == "not measured"


# --------------------------------------------------------------------------------------------- text
@pytest.mark.parametrize("name", SAMPLES)
def test_text_fits_and_is_plain(name: str) -> None:
    told = text(made(name), Style())
    assert "\x1b" not in told
    assert max(map(len, told.splitlines())) <= WIDTH
    assert " ".join(told.split()).startswith(" ".join(sentence(made(name)).split())[:80])
    assert "\x1b[" in text(made(name), Style(on=True))


def test_what_did_not_pass_stands_first() -> None:
    one, other = (
        result.Check(name, passed, "figures") for name, passed in (("held", True), ("lost", False))
    )
    judged = result.Parity(Sameness.DIFFERENT, "exact", (one, other), "lost: figures")
    v = replace(light(None, Sameness.DIFFERENT), parity=judged)
    for told in (text(v, Style(), verbose=True), markdown(v), page(v)):
        assert told.rindex("lost") < told.rindex("held")


def test_text_says_what_was_found() -> None:
    told = text(made("rules"), Style(), verbose=True)
    for part in (
        "40.1 ms",
        "21.9 ms",
        "±1.3 %",
        "loss against seed noise",
        "not decided",
        "31 %",
        "persistent-workers",
        "no effect shown",
        "H200",
        "refused at train.py:30: items change",
        "on request: --compile",
    ):
        assert part in told, part


SCREEN = 30  # lines; what each rule contributes, where that was asked for, comes on top


@pytest.mark.parametrize("name", SAMPLES)
def test_a_screen_holds_what_a_decision_needs(name: str) -> None:
    """The finding, the figures, what to do; details are told where they are."""
    v = made(name)
    told = text(replace(v, contributions=()), Style())
    assert len(told.splitlines()) <= SCREEN
    assert "--verbose" in told and ("Time per step" in told) == (v.speed is not None)
    assert "Host waits" not in told and "largest worker" not in told


def test_details_are_asked_for() -> None:
    told = text(made("rules"), Style(), verbose=True)
    assert "Host waits" in told and "largest worker" in told and "--verbose" not in told


def test_nothing_is_said_twice() -> None:
    few = Speed(
        SpeedVerdict.UNCLEAR,
        Ratio(1.2, 0.0, math.inf, 2),
        Ratio(math.nan, 0.0, math.inf, 0),
        *("median step", 0.04, 0.035, 7.0, 7.0, 3, 0.0, 0),
        reason="too few pairs: 2 and 0 of the original against itself, at least 6 of each are needed",
    )
    v = verification(few, Sameness.DIFFERENT, interrupted="the time budget of 60 s is used up")
    for verbose in (False, True):
        told = " ".join(text(v, Style(), verbose).split())
        assert told.count("too few") == 1 + verbose and told.count("is used up") == 1
        assert told.count("4.0012 times") == 1 + verbose  # once in the table of checks
    assert text(made("faster"), Style()).count("1.83") == 1


@pytest.mark.parametrize(
    ("fast", "same", "more", "said"),
    [
        (SpeedVerdict.FASTER, Sameness.EQUIVALENT, {}, "train_fast.py can take the place of train.py"),
        (SpeedVerdict.SAME, Sameness.IDENTICAL, {}, "keep train.py: on this machine nothing is won"),
        (SpeedVerdict.SLOWER, Sameness.IDENTICAL, {}, "keep train.py; `autofast tune train.py`"),
        (SpeedVerdict.SLOWER, Sameness.IDENTICAL, {"rules": ()}, "keep train.py"),
        (SpeedVerdict.FASTER, Sameness.DIFFERENT, {}, "keep train.py until that is mended"),
        (None, Sameness.BROKEN, {}, "keep train.py until that is mended"),
        (SpeedVerdict.UNCLEAR, Sameness.EQUIVALENT, {}, "run it again while nothing else runs"),
        (SpeedVerdict.UNCLEAR, Sameness.EQUIVALENT, {"interrupted": "late"}, "with a longer --time-budget"),
        (SpeedVerdict.FASTER, Sameness.UNCLEAR, {}, ""),  # the first sentence has it
        (None, None, {}, ""),
    ],
)  # fmt: skip
def test_what_to_do_next(
    fast: SpeedVerdict | None, same: Sameness | None, more: dict[str, object], said: str
) -> None:
    v = light(fast, same, **more)
    told = dict(verify_facts.conclusions(v))["Next"]
    assert said in told and bool(said) == bool(told)
    assert ("Next" in text(v, Style())) == bool(said)


def test_a_rewrite_made_now_is_written_by_the_command_that_is_named() -> None:
    v = replace(made("faster"), rewritten=made("faster").original, environment={"device": "cpu"})
    assert "`autofast rewrite train.py --target cpu --in-place` writes it" in text(v, Style())
    never = replace(samples.FASTER, break_even=None)
    assert "keep the original train.py, unless for a longer" in text(
        replace(v, speed=never), Style()
    )


def test_what_else_failed_and_where_it_failed() -> None:
    names = [f"check {n}" for n in range(9)]
    checks = tuple(result.Check(name, False, "figures") for name in names)
    open_ = result.unclear("figures", "seeds")
    judged = result.Parity(Sameness.DIFFERENT, "unknown", (*checks, open_), "check 0: figures")
    told = dict(verify_facts.conclusions(replace(made("faster"), parity=judged)))
    assert told["Also failed"] == "check 1, check 2, check 3, check 4, check 5 and 3 more"
    assert told["Also open"] == "seeds"
    assert 'File "train_fast.py", line 31' in text(made("broken"), Style())


def test_terminals_obey_nothing() -> None:
    run = samples.failed("rewritten", "Error: \x1b[2Jgone\x07")
    v = verification(
        None,
        Sameness.BROKEN,
        runs=(run,),
        warnings=("\x1b]0;title\x07",),
        environment={"a\x1b[31m": "b\udc80"},
    )
    for told in (text(v, Style()), markdown(v), page(v)):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff]", told)
        told.encode()


def test_rules_are_judged_against_noise() -> None:
    v = made("faster")
    found = [
        verify_facts.finding(v, Contribution("r", alone, left_out))
        for alone, left_out in (
            (Ratio(1.2, 1.1, 1.3, 6), None),
            (Ratio(1.02, 1.012, 1.03, 6), None),
            (None, Ratio(0.9, 0.88, 0.92, 6)),
            (Ratio(1.2, 1.1, 1.3, 6), Ratio(0.9, 0.88, 0.92, 6)),
            (None, None),
        )
    ]
    assert found == ["helps", "no effect shown", "costs", "unclear", "not measured"]


def test_what_is_held_against_a_rule_is_what_is_held_against_the_whole() -> None:
    v = made("faster")
    assert v.speed is not None
    for noise, found, said in (
        (Ratio(0.85, 0.7, 1.1, 6), Ratio(1.37, 1.35, 1.4, 6), "no effect shown"),  # 1 / 0.7 is 1.43
        (Ratio(0.85, 0.75, 1.1, 6), Ratio(1.37, 1.35, 1.4, 6), "helps"),
        (Ratio(1.0, 1.0, 1.0, 6), Ratio(1.006, 1.005, 1.007, 6), "no effect shown"),
    ):
        told = replace(v, speed=replace(v.speed, noise=noise))
        assert verify_facts.finding(told, Contribution("r", found, None)) == said
        assert (verdict_of(noise, found) is SpeedVerdict.FASTER) == (said == "helps")
    unmeasured = replace(v, speed=replace(v.speed, noise=Ratio(math.nan, 0.0, math.inf, 0)))
    assert (
        verify_facts.finding(unmeasured, Contribution("r", Ratio(1.4, 1.3, 1.5, 6), None))
        == "unclear"
    )


# --------------------------------------------------------------------------------------------- JSON
@pytest.mark.parametrize("name", SAMPLES)
def test_json_reads_back(name: str) -> None:
    v = made(name)
    document = verify_json.text(v)
    assert json.loads(document, parse_constant=pytest.fail) == verify_json.report(v)
    assert verify_json.read(document) == verify_json.kept(v)


def test_json_of_what_is_no_number() -> None:
    speed = replace(
        samples.UNCLEAR, ratio=Ratio(math.nan, -math.inf, math.inf, 1), first_step_after=math.nan
    )
    run = samples.run("original", steps=3)
    odd = replace(
        run.record.steps[1],
        losses=(math.nan, math.inf),
        phases={"data": math.nan},
        grad_norm=math.inf,
    )
    run = replace(
        run, records=(replace(run.record, steps=(run.record.steps[0], odd), losses=(math.nan,)),)
    )
    document = verify_json.text(verification(speed, runs=(run,), timed=()))
    data = json.loads(document, parse_constant=pytest.fail)
    assert data["speed"]["ratio"]["value"] == "NaN" and data["speed"]["ratio"]["low"] == "-Infinity"
    again = verify_json.read(document)
    assert (
        again.speed is not None
        and math.isnan(again.speed.ratio.value)
        and again.speed.ratio.high == math.inf
    )
    step = again.runs[0].record.steps[1]
    assert (
        math.isnan(step.losses[0]) and step.grad_norm == math.inf and list(step.phases) == ["data"]
    )
    assert json.loads(verify_json.text(again)) == data


def test_json_leaves_out_output_and_states() -> None:
    document = verify_json.text(made("faster"))
    assert not re.search(r'"(stdout|model|start|sketch)"', document)
    assert '"stderr"' in document


def test_json_of_other_versions() -> None:
    data = json.loads(verify_json.text(made("nothing")))
    assert verify_json.read(
        {**data, "added_later": 1, "original": {**data["original"], "new": 2}}
    ) == verify_json.kept(made("nothing"))
    with pytest.raises(ValueError, match="version 99"):
        verify_json.read({**data, "version": 99})
    with pytest.raises(ValueError, match="Arm: path is missing"):
        verify_json.read({**data, "original": {"name": "a", "command": "b"}})


def test_json_is_described_field_by_field() -> None:
    described = set(
        re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "verify-json.md").read_text("utf-8"))
    )
    kinds = [
        k
        for module in (record, result)
        for k in vars(module).values()
        if isinstance(k, type) and is_dataclass(k)
    ]
    for kind in (k for k in kinds if k is not record.TensorPrint):
        left_out = verify_json._LEFT_OUT.get(kind, frozenset())
        missing = {f.name for f in fields(kind)} - left_out - described
        assert not missing, f"{kind.__name__}: {missing}"
    assert {"version", "sentence", "passed"} <= described


# ----------------------------------------------------------------------------------------- the page
class Tags(HTMLParser):
    """Every tag closed, in order; identifiers and links kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} {name}"
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "action", "srcset"):
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", SAMPLES)
def test_page_is_whole_and_alone(name: str) -> None:
    html = shown(name)
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert not tags.open
    assert len(tags.ids) == len(set(tags.ids))
    assert all(link.startswith("#") and link[1:] in tags.ids for link in tags.links)
    assert set(re.findall(r"url\(#([^)]*)\)", html)) <= set(tags.ids)
    assert not tags.names & {"script", "link", "iframe", "img", "object", "image"}
    assert not re.search(r"https?:|@import|url\((?!#)", html)
    ET.fromstring(html.partition("\n")[2])  # well-formed as XML, too
    assert len(html.encode()) < 500_000
    assert "1 April 2026" in html


def test_page_is_the_same_every_time() -> None:
    assert page(SAMPLES["cpu"](), date="1 April 2026") == shown("cpu")


def test_page_has_all_parts() -> None:
    html = shown("rules")
    assert html.count('<svg class="plot"') == 4
    assert all(
        f'<section id="{part}">' in html
        for part in ("speed", "sameness", "phases", "rules", "changes", "measured")
    )
    assert "<text" in html and "font-family" not in html.split("</style>")[1]
    assert "prefers-color-scheme: dark" in html and "@media print" in html
    used = set(re.findall(r"var\(--([\w-]+)\)", html))
    assert used <= set(re.findall(r"--([\w-]+):", html)), (
        "every colour of the plots is one of the page's"
    )
    assert "#0a5e" not in html
    for part in (
        "python train_fast.py --epochs 90",
        "NVIDIA H200",
        "Keep batches in page-locked memory",
        "· rounding",
    ):
        assert part in html or part.removeprefix("· ") in html, part


def test_page_escapes() -> None:
    html = shown("hostile")
    assert not re.search(r"<script|<svg onload|<b>|<i>rule|</td></table> ```", html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert '<details class="file">' in html, "a long diff is folded"
    assert '<details class="file" open="">' in shown("faster")


@pytest.mark.parametrize("drop", ["rounds", "runs", "pairs", "noise", "steps"])
def test_page_of_little(drop: str) -> None:
    """Whatever is missing, there is a page."""
    v = made("cpu")
    assert v.speed is not None
    nan = Ratio(math.nan, math.nan, math.nan, 0)
    missing: dict[str, Callable[[], Verification]] = {
        "rounds": lambda: replace(v, rounds=()),
        "runs": lambda: replace(v, runs=(), rounds=()),
        "pairs": lambda: replace(
            v, speed=replace(v.speed, ratio=nan, step_before=math.nan, step_after=math.nan)
        ),
        "noise": lambda: replace(
            v, speed=replace(v.speed, noise=nan, ratio=replace(v.speed.ratio, high=math.inf))
        ),
        "steps": lambda: replace(v, runs=tuple(replace(r, records=()) for r in v.runs)),
    }
    less = missing[drop]()
    ET.fromstring(page(less).partition("\n")[2])
    assert text(less, Style()) and markdown(less)


def test_losses_of_one_seed_that_are_no_numbers() -> None:
    run = samples.run("rewritten", steps=20)
    bad = tuple(
        replace(s, losses=(math.nan,) if s.index > 10 else s.losses) for s in run.record.steps
    )
    run = replace(run, records=(replace(run.record, steps=bad),))
    assert 'aria-label="Loss of both scripts' in page(
        verification(None, Sameness.BROKEN, runs=(samples.run("original", steps=20), run))
    )


def test_diff_is_taken_apart_by_its_numbers() -> None:
    diff = "--- a/x.sql\n+++ b/x.sql\n@@ -3,3 +3,2 @@  one, two\n a\n--- old remark\n-b\n+++ new\n\\ No newline at end of file\nrest\n@@ -9 +8 @@\n-c\n+d\n"
    file = verify_diff.parsed("x.sql", diff)
    assert [(line.kind, line.text, line.old, line.new) for line in file.hunks[0].lines] == [
        (" ", "a", 3, 3), ("-", "-- old remark", 4, None), ("-", "b", 5, None), ("+", "++ new", None, 4), ("\\", " No newline at end of file", None, None),
    ]  # fmt: skip
    assert [h.rules for h in file.hunks] == [("one", "two"), ()]
    assert (file.added, file.removed) == (2, 3)


# ----------------------------------------------------------------------------------------- Markdown
@pytest.mark.parametrize("name", SAMPLES)
def test_markdown_holds_together(name: str) -> None:
    told = markdown(made(name))
    assert len(told) <= LIMIT
    assert told.count("<details>") == told.count("</details>") >= 3
    prose = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", told, flags=re.S | re.M)
    for table in re.findall(r"(?:^\|.*\n)+", prose, flags=re.M):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(cells) == 1, table
    assert not re.search(r"<(?!/?(?:details|summary|code)>)", prose)
    assert not re.search(r"(?<![\w&#;])@\w", prose)


def test_markdown_of_much_keeps_to_the_limit() -> None:
    many = tuple(Contribution(f"rule-{n}", None, None, "why " * 200) for n in range(200))
    told = markdown(replace(made("hostile"), contributions=many))
    assert (
        len(told) <= LIMIT
        and "too long for a comment" in told
        and "more lines are left out" in told
    )


# ------------------------------------------------------------------------------------ kinds of data
def test_the_runs_of_a_round_are_told_in_order() -> None:
    v = made("cpu")
    arms = [[run.arm[0] for run in one] for one in verify_facts.rounds(v)]
    assert ["".join(one) for one in arms[:2]] == ["oor", "roo"] and len(arms) == 6
    alone = verify_facts.rounds(replace(v, rounds=()))
    assert [[run.arm[0]] for one in alone for run in one] == [[arm] for one in arms for arm in one]


def test_verdicts_are_all_worded() -> None:
    assert set(verify_words.SPEED_WORDS) == set(SpeedVerdict) == set(SPEEDS)
    assert set(verify_words.SAMENESS_WORDS) == set(Sameness)
    assert all(isinstance(s, Speed) for s in SPEEDS.values())
    assert all(verify_words.parity_clause(parity(kind)) for kind in Sameness)


@pytest.mark.parametrize(
    ("width", "cut"),
    [
        (40, "held out loss over seeds"),
        (24, "held out loss over seeds"),
        (23, "held out loss over…"),
        (18, "held out loss…"),
        (9, "held out…"),
        (6, "held…"),
    ],
)
def test_no_word_is_cut(width: int, cut: str) -> None:
    assert short("held out loss over seeds", width) == cut and len(cut) <= max(width, 24)
    assert short("x" * 30, 10) == "x" * 9 + "…"  # a path
    words = "the loss is not yet known to fall for certain " * 30
    found = replace(parity(Sameness.UNCLEAR), summary=words, more_runs=0)
    said = verify_words.parity_clause(found)
    assert said.rstrip("…").rsplit(" ", 1)[-1] in found.summary.split() and "…" in said
