"""Who holds a value, as ``flow/holders.py`` says it, over small functions that do something with
what ``secret()`` gives.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofast.flow.holders import Holders
from tests.reading import read

HEAD = """
import collections, contextlib, dataclasses, functools, heapq, threading, types
import torch
def secret(): return torch.ones(3) * 2
class Box:
    def __init__(self, v=None): self.v = v
    def put(self, v): self.v = v
@dataclasses.dataclass
class Record:
    v: object
Pair = collections.namedtuple("Pair", "v")
box, rows, table = Box(), [], {}
def show(v): print(v.sum())
"""
HELD = {  # what a function does -> who holds it when that has returned
    "x = secret()": [],
    "x = secret()\nprint(x.sum(), x + 1)\ntorch.save(x, 'file')": [],
    "show(secret())": [],
    "x = [secret()]\ny = {0: x}\nfor z in y.values(): print(z)": [],
    "box.v = secret()": ["ATTRIBUTE box.v"],
    "x = secret()\nsetattr(box, 'v', x.view(-1))": ["ATTRIBUTE setattr(box, 'v', x.view(-1))"],
    "box.put(secret())": ["ATTRIBUTE self.v"],
    "x = Box(secret())": ["ATTRIBUTE self.v"],
    "box.v = Record(secret())": ["ATTRIBUTE box.v"],
    "box.v = Pair(secret())": ["ATTRIBUTE box.v"],
    "box.v = types.SimpleNamespace(v=secret())": ["ATTRIBUTE box.v"],
    "box.v = [secret()] * 2": ["ATTRIBUTE box.v"],
    "box.v = secret().add_": ["ATTRIBUTE box.v"],
    "box.v = functools.partial(show, secret())": ["ATTRIBUTE box.v"],
    "class A:\n    v = secret()": ["ATTRIBUTE v"],
    "rows.append(secret())": ["CONTAINER rows", "VARIABLE rows"],
    "heapq.heappush(rows, secret())": [
        "CONTAINER rows", "VARIABLE rows", "UNKNOWN heapq.heappush(rows, secret())"
    ],
    "table[0] = secret()": ["CONTAINER table", "VARIABLE table"],
    "box.v.append(secret())": ["CONTAINER box.v"],
    "x = []\nx.append(secret())": [],
    "x = []\nx.append(secret())\nbox.v = x": ["ATTRIBUTE box.v"],
    "x = secret()\nbox.v = lambda: x.sum()": ["LATER lambda: x.sum()"],
    "x = secret()\nbox.v = (x for _ in rows)": ["LATER (x for _ in rows)", "ATTRIBUTE box.v"],
    "def f(x=secret()): pass": ["UNKNOWN secret()"],
    "yield secret()": ["GENERATOR (yield secret())"],
    "with contextlib.nullcontext(secret()) as x: box.v = x": ["ATTRIBUTE box.v"],
    "match secret():\n    case x: box.v = x": ["ATTRIBUTE box.v"],
    "raise ValueError(secret())": ["UNKNOWN ValueError(secret())"],
    "raise secret()": ["UNKNOWN secret()"],
    "list(map(show, [secret()]))": ["UNKNOWN map(show, [secret()])"],
    "unknown(secret())": ["UNKNOWN unknown(secret())"],
    "x = secret()\nt = threading.Thread(target=show, args=(x,))": [
        "UNKNOWN threading.Thread(target=show, args=(x,))"
    ],
}


@pytest.mark.parametrize("does", HELD)
def test_who_holds_it_beyond_the_function(tmp_path: Path, does: str) -> None:
    body = does.replace("\n", "\n    ")
    script = read(tmp_path, f"{HEAD}\ndef run():\n    {body}\nfor _ in range(2): run()\n")
    call = [c for c in script.each(ast.Call) if ast.unparse(c) == "secret()"][-1]
    found = script.analysis(Holders).beyond(call)
    assert [f"{h.how.name} {ast.unparse(h.node)}" for h in found] == HELD[does]
