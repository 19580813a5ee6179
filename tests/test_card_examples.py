"""The example of every card is what its rule writes today: before and after, in a script of
``tests/card_examples`` that runs.

The example is a diff of parts of the script, in the order of the script. A line of ``...`` skips
lines: between two parts where it is unchanged, else in a block that is shown up to there. Blank
lines do not count, nor how far the card is indented.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autofast import registry
from autofast.rule import Effect
from tests.harness import HARNESS, HAVE_TORCH, Job, Run, compare
from tests.onerule import Applied, apply
from tests.test_cards import sections

pytestmark = pytest.mark.skipif(not HAVE_TORCH, reason="the scripts are executed")

SCRIPTS = Path(__file__).with_name("card_examples")
PRETEND = {
    script: str(Path(__file__).with_name("pretend") / name)
    for script, name in {
        "apex_o1.py": "apex.py",
        "images.py": "torchvision.py",
        "photos.py": "torchvision.py",
    }.items()
}
SHOWN = {  # script -> the rules whose cards show parts of it
    "amp.py": "legacy-amp-api unscale-before-clip",
    "apex_o1.py": "apex-amp",
    "attention.py": "sdpa",
    "binary.py": "bce-with-logits",
    "blocks.py": "bias-before-norm",
    "bytes_of_images.py": "cast-on-device",
    "critic.py": "frozen-critic",
    "image.py": "autocast channels-last compile cudnn-benchmark fused-optimizer grad-scaler non-blocking num-workers pin-memory tf32",
    "images.py": "gpu-augmentation",
    "leftovers.py": "anomaly-mode device-creation empty-cache no-grad-eval set-to-none",
    "lengths.py": "python-loop",
    "parallel.py": "dataparallel-to-ddp",
    "photos.py": "uint8-transfer",
    "replay.py": "list-to-tensor",
    "resume.py": "checkpoint-state",
    "table.py": "accumulation batched-dataset ddp gpu-data loss-item-sync stepwise-scheduler",
    "target.py": "foreach-update graph-kept per-step-io",
    "trainer.py": "trainer-args",
    "variable.py": "variable-api",
    "weighted.py": "cache-constant",
    "words.py": "padded-vocabulary",
    "workers.py": "cuda-prefetch persistent-workers prefetch-factor",
}
SCRIPT = {rule: script for script, rules in SHOWN.items() for rule in rules.split()}
WITH = {  # which have nothing to do without the other
    "cuda-prefetch": "cuda-prefetch pin-memory",
    "grad-scaler": "autocast grad-scaler",
}
ACCUMULATE = {"accumulation": 4}
ADVICE = {
    "apex-amp",
    "padded-vocabulary",
    "per-step-io",
    "prefetch-factor",
    "set-to-none",
}  # what a person may write, as the rule does not
OTHER_NUMBERS = {"uint8-transfer"}  # bytes in the place of floats
ONE_PROCESS = {"ddp", "dataparallel-to-ddp"}  # what these change, they change under torchrun


@dataclass
class Part:
    """Lines that stand together in the script, before and after."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def parts(example: str) -> list[Part]:
    """The parts of the script that the diff of ``example`` shows."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", example, re.DOTALL | re.MULTILINE)
    found = [Part()]
    for line in diff.splitlines():
        sign, text = line[:1], line[1:]
        assert sign in ("", " ", "+", "-"), f"a line of a diff starts with a blank, + or -: {line}"
        if sign == " " and text.strip() == "...":
            found.append(Part())
        elif text.strip():
            found[-1].before += [text] * (sign != "+")
            found[-1].after += [text] * (sign != "-")
    return found


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def end_of(shown: Sequence[str], lines: Sequence[str], start: int) -> int | None:
    """Where the lines end that ``shown`` shows, if they start at ``start`` of ``lines``."""
    deeper = indentation(lines[start]) - indentation(shown[0])
    at = start
    for line in shown:
        first, column = at, indentation(line) + deeper
        if line.strip() == "...":
            while at < len(lines) and indentation(lines[at]) >= column:
                at += 1
        elif at < len(lines) and lines[at] == " " * column + line.strip():
            at += 1
        if at == first:
            return None
    return at


def rest(text: str, shown: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> list[str]:
    """The lines of ``text`` without those that are ``shown``.

    Where there is something among ``others``, too, a mark says where the lines stood and how far
    they were indented.
    """
    lines, left, done = [line for line in text.splitlines() if line.strip()], [], 0
    for number, (part, other) in enumerate(zip(shown, others, strict=True)):
        if not part:
            continue
        ends = ((start, end_of(part, lines, start)) for start in range(done, len(lines)))
        start, end = next(((start, end) for start, end in ends if end is not None), (-1, -1))
        assert end > 0, "not in the script:\n" + "\n".join(part) + "\n\n" + text
        mark = f"part {number}, indented by {indentation(lines[start]) - indentation(part[0])}"
        left += lines[done:start] + [mark] * bool(other)
        done = end
    return left + lines[done:]


def check(example: str, before: str, after: str) -> None:
    """``example`` shows all that was changed from ``before`` to ``after``, as it is there."""
    found = parts(example)
    olds, news = [part.before for part in found], [part.after for part in found]
    assert rest(before, olds, news) == rest(after, news, olds), (
        "something changes that the card does not show:\n" + after
    )


def by_hand(example: str, text: str) -> str:
    """``text`` with what ``example`` shows."""
    lines = [line for line in text.splitlines() if line.strip()]
    for part in parts(example):
        if part.before != part.after:
            ends = ((start, end_of(part.before, lines, start)) for start in range(len(lines)))
            ((start, end),) = [(start, end) for start, end in ends if end is not None]
            deeper = indentation(lines[start]) - indentation(part.before[0])
            lines[start:end] = [" " * deeper + line for line in part.after]
    return "\n".join(lines) + "\n"


def rewritten(name: str) -> Applied:
    """The script of a card after the rule of the card."""
    text = (SCRIPTS / SCRIPT[name]).read_text("utf-8")
    return apply(
        WITH.get(name, name),
        text,
        asked=not registry.all_rules()[name].default,
        accumulate=ACCUMULATE.get(name, 0),
    )


def effect(name: str, made: Applied) -> Effect:
    """The strongest of the fixes, in one process on a CPU."""
    rules = registry.all_rules()
    return (
        Effect.EXACT
        if name in ONE_PROCESS
        else max(rules[f.rule].effect if f.effect is None else f.effect for f in made.fixes)
    )


def differences(before: Run, after: Run, effect: Effect, other: bool = False) -> Iterator[str]:
    """What must not be different, one line each; ``other``: loaders give the same images in other
    numbers.
    """
    if effect < Effect.RECIPE:
        yield from compare(before, after, effect, same_samples=not other)
    elif (
        after.error
        or len(before.losses) != len(after.losses)
        or not all(map(math.isfinite, after.losses))
    ):
        yield f"other batches: {len(before.losses)} losses became {after.losses} {after.traceback}"


def test_every_card_has_a_script() -> None:
    assert sorted(SCRIPT) == list(registry.all_rules())
    assert sorted(path.name for path in SCRIPTS.glob("*.py")) == list(SHOWN)


@pytest.mark.parametrize("name", SCRIPT)
def test_example(name: str, tmp_path: Path) -> None:
    """The rule changes in the script what the card shows and nothing else, and the script goes on
    giving the same numbers.
    """
    example, made = sections(registry.card(name))["Example"], rewritten(name)
    if name in ADVICE:
        assert made.text == made.before and made.advice and not made.fixes
        text, allowed = by_hand(example, made.before), registry.all_rules()[name].effect
    else:
        text, allowed = made.text, effect(name, made)
        check(example, made.before, text)
    (tmp_path / "train.py").write_text(made.before, "utf-8")
    original = Job(tmp_path, before=PRETEND.get(SCRIPT[name], ""))
    stays = "" if name == "apex-amp" else original.before
    changed = Job(tmp_path, files={"train.py": text.encode()}, before=stays)
    before, after = HARNESS.run_many([original, changed])
    assert before.ok and before.losses, before.traceback
    found = list(differences(before, after, allowed, name in OTHER_NUMBERS))
    if name == "gpu-augmentation":  # crops that are drawn otherwise hold other pixels
        found = [line for line in found if "gave other samples" not in line]
    assert found == []


BEFORE = "import a\n\ndef f():\n    x = a.b()\n    y = 2\n    z = 3\n"


@pytest.mark.parametrize(
    ("diff", "after"),
    [
        ("-x = a.b()\n+x = a.c()", BEFORE.replace("b()", "c()")),
        (
            "+import d\n ...\n x = a.b()\n-y = 2",
            BEFORE.replace("    y = 2\n", "").replace("import a", "import d\nimport a"),
        ),
        (
            "+def g():\n+    ...\n ...\n-y = 2\n+y = g()",
            "import a\ndef g():\n    if a:\n        return 2\n" + BEFORE[9:].replace("2", "g()"),
        ),
    ],
)
def test_what_a_card_shows(diff: str, after: str) -> None:
    example = f"```diff\n{diff}\n```"
    check(example, BEFORE, after)
    wrong = (
        after + "    w = 4\n",
        after.replace("z = 3", "z = 4"),
        after.replace("    y", "        y").replace("    x", "      x"),
    )
    for other in (*wrong, BEFORE):
        with pytest.raises(AssertionError):
            check(example, BEFORE, other)
