"""Typestate on small programs: a door that must not be opened twice, nor left open."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from autofast.flow.typestate import Events, Protocol, follow
from autofast.model.source import statement_of
from tests.reading import read


@dataclass(frozen=True, eq=False)
class Event:
    kind: str
    node: ast.AST


class Door(Protocol[str, Event]):
    def __init__(self) -> None:
        super().__init__("closed")

    def happen(self, event: Event, state: str) -> list[str]:
        if event.kind == state:
            self.wrong(event.kind, event.node, "{} again")
        return [event.kind]

    def leave(self, node: ast.Raise | ast.Assert, state: str) -> None:
        if state == "open":
            self.wrong("left", node, "{} leaves it open")


def followed(folder: Path, text: str) -> tuple[set[str], list[tuple[str, int]]]:
    """The states at the end, and what is wrong in which lines; `shut` and `opened` happen after
    their statements.
    """
    script = read(folder, text)
    calls = {"open_": "open", "close": "closed", "opened": "open", "shut": "closed"}
    found = [
        (calls[n.func.id], n, n.func.id in ("opened", "shut"))
        for n in script.each(ast.Call)
        if isinstance(n.func, ast.Name) and n.func.id in calls
    ]
    at = [Event(kind, node) for kind, node, later in found if not later]
    after = [Event(kind, statement_of(node)) for kind, node, later in found if later]
    door = Door()
    ends = follow(script, door, Events(at, after=after)).ends
    return set(ends), sorted((kind, node.lineno) for (kind, _), (_, node) in door.problems.items())


HEAD = "import random\nflag = random.random() < 0.5\nother = random.random() < 0.5\n"


@pytest.mark.parametrize(
    ("text", "ends", "wrong"),
    [
        ("open_()\nclose()", {"closed"}, []),
        ("open_()\nopen_()", {"open"}, [("open", 5)]),
        ("if flag:\n    open_()", {"open", "closed"}, []),
        ("if flag:\n    open_()\nif flag:\n    close()", {"closed"}, []),
        ("if flag:\n    open_()\nif not flag:\n    open_()", {"open"}, []),
        ("if flag:\n    open_()\nif other:\n    close()", {"open", "closed"}, [("closed", 7)]),
        (
            "if flag:\n    open_()\nflag = random.random() < 0.5\nif flag:\n    close()",
            {"open", "closed"},
            [("closed", 8)],
        ),
        ("if False:\n    open_()", {"closed"}, []),
        ("for i in range(3):\n    open_()\n    close()", {"closed"}, []),
        ("for i in range(3):\n    open_()", {"open"}, [("open", 5)]),
        (
            "for i in range(3):\n    open_()\n    if flag:\n        continue\n    close()",
            {"open", "closed"},
            [("open", 5)],
        ),
        (
            "while flag:\n    open_()\n    if other:\n        break\n    close()",
            {"open", "closed"},
            [],
        ),
        ("open_()\nif flag:\n    raise ValueError\nclose()", {"closed"}, [("left", 6)]),
        (
            "try:\n    open_()\n    print(1)\n    close()\nexcept ValueError:\n    close()",
            {"closed"},
            [("closed", 9)],
        ),
        ("try:\n    open_()\nfinally:\n    close()", {"closed"}, [("closed", 7)]),
        ("if flag:\n    opened()\nclose()", {"closed"}, [("closed", 6)]),
        ("opened() or print()\nshut()", {"closed"}, []),
        ("flag and open_()", {"open", "closed"}, []),
        ("open_() if flag else close()", {"open", "closed"}, [("closed", 4)]),
    ],
)
def test_all_ways_are_gone(
    tmp_path: Path, text: str, ends: set[str], wrong: list[tuple[str, int]]
) -> None:
    assert followed(tmp_path, HEAD + text) == (ends, wrong)


def test_functions_are_entered_and_left(tmp_path: Path) -> None:
    text = "def use():\n    open_()\n    if flag:\n        return\n    close()\n\nuse()\nuse()"
    assert followed(tmp_path, HEAD + text) == ({"open", "closed"}, [("open", 5)])


def test_an_exception_leaves_a_function_where_it_comes(tmp_path: Path) -> None:
    text = "def use():\n    open_()\n    print(1)\n    close()\n\ntry:\n    use()\nexcept ValueError:\n    close()"
    assert followed(tmp_path, HEAD + text) == ({"closed"}, [("closed", 12)])


def test_what_cannot_be_followed_is_said(tmp_path: Path) -> None:
    text = "def use():\n    open_()\n    if flag:\n        use()\n    yield 1\n\nfor _ in use():\n    pass"
    _, wrong = followed(tmp_path, HEAD + text)
    assert ("generator", 4) in wrong


def test_conditions_in_which_nothing_happens_are_no_ways_of_their_own(tmp_path: Path) -> None:
    flags = [f"f{n} = random.random() < 0.5" for n in range(12)]
    idle = [f"if f{n}:\n    print({n})" for n in range(12)]
    text = "\n".join(["import random", *flags, *idle, "open_()", "close()"])
    assert followed(tmp_path, text) == ({"closed"}, [])
