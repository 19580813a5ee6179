"""Readings make no work for Python's collector, also in a process that holds a lot."""

from __future__ import annotations

import gc

import pytest

from autofast import heap


def test_what_lives_on_is_not_looked_at_for_each_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "MANY", 10)  # this process holds more, whatever is read
    monkeypatch.setattr(heap, "_left", 0)
    looks: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            looks.append(1)

    gc.callbacks.append(look)
    try:
        for _ in range(20):
            with heap.growing():
                assert not gc.isenabled()
    finally:
        gc.callbacks.remove(look)
        gc.unfreeze()
    assert gc.isenabled() and len(looks) <= 2


def test_garbage_of_many_scripts_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "MANY", 10)
    monkeypatch.setattr(heap, "_left", 0)

    class Circle:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            self.more: list[list[int]] = [[] for _ in range(50_000)]
            Circle.alive += 1

        def __del__(self) -> None:
            Circle.alive -= 1

    for _ in range(40):
        with heap.growing():
            Circle()
    gc.unfreeze()
    assert Circle.alive < 40
