"""Rows from events, without torch: what the parent makes of a file that the probe wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autofast.verify.evidence.record import Step
from autofast.verify.running.steps import read_record

BASE: dict[str, Any] = {
    "version": 1,
    "rank": 0,
    "world_size": 1,
    "ending": "end",
    "exit_code": 0,
    "error": "",
    "traceback": "",
    "backwards": 0,
    "optimizers": ["SGD"],
    "moments": {"script_started": 0.0, "ended": 100.0},
    "peak_memory": 1.0,
    "peak_memory_children": 0.0,
    "environment": {},
    "notes": [],
}


def read(folder: Path, events: list[list[Any]], **more: Any) -> tuple[Step, ...]:
    path = folder / "record-0.json"
    path.write_text(json.dumps({**BASE, "events": events, **more}))
    return read_record(path).steps


def spent(step: Step) -> dict[str, float]:
    return {name: round(time, 6) for name, time in step.phases.items() if abs(time) > 1e-9}


def test_gaps(tmp_path: Path) -> None:
    events = [
        ["i", 10, 11, 0, 0, 0, 4],
        ["n", 11, 13, 0, 8],
        ["t", 14, 15],
        ["b", 20, 24, 1.5],
        ["o", 25, 26, 0, [0.1], None],
    ]
    events += [
        ["n", 28, 29, 0, 8],
        ["b", 31, 32, 0.5],
        ["n", 33, 34, 0, 8],
        ["b", 37, 38, float("nan")],
        ["o", 38, 40, 0, [0.1], None],
    ]
    first, second = read(tmp_path, events)
    # Before the loader: the script's start. Between backward and optimizer: clipping and the like.
    assert spent(first) == {
        "other": 11,
        "data": 3,
        "transfer": 1,
        "forward": 6,
        "backward": 4,
        "optimizer": 1,
    }
    assert (first.wall, first.samples, first.losses) == (26, 8, (1.5,))
    assert spent(second) == {"other": 3, "data": 2, "forward": 5, "backward": 2, "optimizer": 2}
    assert (second.wall, second.samples, second.batches, second.backwards) == (14, 16, 2, 2)


def test_nested_spans(tmp_path: Path) -> None:
    events = [["o", 10, 20, 0, [], None], ["f", 11, 18], ["b", 14, 17, 1.0], ["c", 15, 16]]
    (step,) = read(tmp_path, events)
    assert spent(step) == {
        "other": 10,
        "optimizer": 3,
        "forward": 4,
        "backward": 2,
        "communication": 1,
    }


def test_evaluation_with_a_checkpoint_after_it(tmp_path: Path) -> None:
    events = [
        ["i", 0, 0, 0, 0, 0, 0],
        ["n", 1, 2, 0, 4],
        ["b", 3, 4, 1.0],
        ["o", 4, 5, 0, [], None],
    ]
    events += [["i", 6, 7, 1, 1, 0, 0], ["n", 7, 8, 1, 10], ["n", 9, 10, 1, 10], ["e", 11, 12, 1]]
    events += [["n", 20, 21, 0, 4], ["b", 22, 23, 1.0], ["o", 23, 24, 0, [], None]]
    _, step = read(tmp_path, events)
    assert spent(step) == {
        "other": 1,
        "evaluation": 14,
        "data": 1,
        "forward": 1,
        "backward": 1,
        "optimizer": 1,
    }
    assert (step.samples, step.evaluation_samples) == (4, 20)


def test_one_fetch_to_look_at_is_not_training(tmp_path: Path) -> None:
    look = [["i", 0, 1, 0, 0, 0, 9], ["n", 1, 2, 0, 4]]
    train = [
        ["i", 5, 5, 1, 0, 0, 9],
        ["n", 6, 7, 1, 4],
        ["b", 8, 9, 1.0],
        ["o", 9, 10, 0, [], None],
    ]
    (step,) = read(tmp_path, [*look, *train])
    assert (step.samples, step.evaluation_samples) == (4, 4)
    # next(iter(loader)) at every step is.
    steps = read(tmp_path, [[kind, start + 10 * n, end + 10 * n, *([n + 1, *rest[1:]] if kind in "in" else rest)]
                            for n in range(3) for kind, start, end, *rest in train])  # fmt: skip
    assert [step.samples for step in steps] == [4, 4, 4]


def test_skipped_steps_and_the_devices_time(tmp_path: Path) -> None:
    events = [
        ["b", 1, 2, 1.0],
        ["o", 2, 3, 0, [0.1], {"inf": 0.0}],
        ["b", 4, 5, 1.0],
        ["o", 5, 6, 0, [0.1], {"inf": 1.0, "grad_norm": 2.0}],
    ]
    events += [["b", 7, 8, 1.0], ["k", 8, 9, 0, [0.1]]]
    steps = read(tmp_path, events, walls=[None, 2.5, 3.5])
    assert [step.skipped for step in steps] == [False, True, True]
    assert [step.wall for step in steps] == [3, 2.5, 3.5] and steps[1].grad_norm == 2


def test_backwards_make_rows_where_no_optimizer_does(tmp_path: Path) -> None:
    steps = read(tmp_path, [["b", 1, 2, 1.0], ["b", 4, 5, 2.0]])
    assert [(step.optimizer, step.wall, step.losses) for step in steps] == [
        (-1, 2, (1.0,)),
        (-1, 3, (2.0,)),
    ]


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no JSON"),
        ("[]", "version 1"),
        ('{"version": 7}', "version 1"),
        ('{"version": 1}', "malformed record: KeyError"),
        (json.dumps({**BASE, "ending": "odd", "events": []}), "malformed record: ValueError"),
        (json.dumps({**BASE, "events": [["b"]]}), "malformed record"),
        (json.dumps({**BASE, "events": [["b", "x", 1, 2]]}), "malformed record"),
        (None, "no record"),
    ],
)
def test_what_is_no_record(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "record-0.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=why) as caught:
        read_record(path)
    assert "\n" not in str(caught.value)
