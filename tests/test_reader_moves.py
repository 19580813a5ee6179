"""Functions that move whatever a batch is made of to the device, and call themselves for its parts:
what they give is known exactly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.model.values import Dict, Num, Seq, Tensor, Thing, Values, one
from tests.reading import HEAD, read, shown

ROWS = "[g(v, device) for v in x]"
TABLE = "{k: g(v, device) for k, v in x.items()}"
SPELLINGS = {
    "isinstance": f"""
def g(x, device):
    if isinstance(x, torch.Tensor):
        return x.to(device)
    if isinstance(x, dict):
        return {TABLE}
    if isinstance(x, (list, tuple)):
        return {ROWS}
    return x
""",
    "is_tensor, elif, a loop": f"""
def g(x, device):
    if torch.is_tensor(x):
        return x.to(device)
    elif isinstance(x, dict):
        found = {{}}
        for k, v in x.items():
            found[k] = g(v, device)
        return found
    elif isinstance(x, list):
        return {ROWS}
    elif isinstance(x, tuple):
        return tuple(g(v, device) for v in x)
    else:
        return x
""",
    "hasattr first, the same type": f"""
def g(x, device):
    if hasattr(x, "to"):
        return x.to(device)
    if isinstance(x, dict):
        return type(x)({TABLE})
    if isinstance(x, (list, tuple)):
        return type(x)(g(v, device) for v in x)
    return x
""",
    "abstract classes": f"""
from collections.abc import Mapping, Sequence
def g(x, device):
    if isinstance(x, (str, bytes)):
        return x
    elif isinstance(x, Mapping):
        return {TABLE}
    elif isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(g(v, device) for v in x))
    elif isinstance(x, Sequence):
        return {ROWS}
    return x.to(device) if torch.is_tensor(x) else x
""",
    "no tensor first": f"""
def g(x, device):
    if not isinstance(x, torch.Tensor):
        if isinstance(x, dict):
            return {TABLE}
        if isinstance(x, (tuple, list)):
            return {ROWS}
        return x
    return x.to(device)
""",
    "exact types": f"""
def g(x, device):
    if type(x) is torch.Tensor:
        x = x.to(device)
    elif type(x) in (list, tuple):
        x = {ROWS}
    elif type(x) is dict:
        x = {TABLE}
    return x
""",
    "map and dict()": """
def g(x, device):
    if isinstance(x, torch.Tensor):
        return x.to(device)
    if isinstance(x, (list, tuple)):
        return list(map(lambda v: g(v, device), x))
    if isinstance(x, dict):
        return dict((k, g(v, device)) for k, v in x.items())
    return x
""",
    "a function for each part": """
def each(x, f):
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, (list, tuple)):
        return type(x)(each(v, f) for v in x)
    if isinstance(x, dict):
        return {k: each(v, f) for k, v in x.items()}
    return x
def g(x, device):
    return each(x, lambda t: t.to(device))
""",
    "nested": """
def g(x, device):
    def move(x):
        if torch.is_tensor(x):
            return x.to(device)
        elif isinstance(x, dict):
            return {k: move(v) for k, v in x.items()}
        elif isinstance(x, (list, tuple)):
            return [move(v) for v in x]
        else:
            return x
    return move(x)
""",
    "dataclasses, too": f"""
import dataclasses
def g(x, device):
    if torch.is_tensor(x):
        return x.to(device)
    if dataclasses.is_dataclass(x):
        kinds = {{f.name: g(getattr(x, f.name), device) for f in dataclasses.fields(x)}}
        return dataclasses.replace(x, **kinds)
    if isinstance(x, (list, tuple)):
        return {ROWS}
    if isinstance(x, dict):
        return {TABLE}
    return x
""",
}
SCRIPT = """
class Data(Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(64, 3), torch.randint(0, 10, (64,))
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return ITEM
device = torch.device("cuda")
for batch in DataLoader(Data(), batch_size=4):
    probe.show(g(batch, device))
"""


def inside(found: Values) -> object:
    """What it is made of: the device and dtype of tensors."""
    thing: Thing | None = one(found)
    if isinstance(thing, Tensor):
        return thing.device, thing.dtype
    if isinstance(thing, Seq):
        return [inside(i) for i in thing.exact or ()] or [inside(thing.elem)]
    if isinstance(thing, Dict):
        assert not thing.rest and not thing.open
        return {key: inside(thing.get(key)) for key in thing.entries}
    return "text" if isinstance(thing, Num) else found


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_batch_is_moved(name: str, tmp_path: Path) -> None:
    item = '{"x": self.x[i], "more": {"y": self.y[i], "name": f"n{i}"}}'
    code = HEAD + SPELLINGS[name] + SCRIPT.replace("ITEM", item)
    expected = {"x": ("dev", "f32"), "more": {"y": ("dev", "int"), "name": ["text"]}}
    assert inside(shown(read(tmp_path, code))) == expected


@pytest.mark.parametrize("name", [n for n in SPELLINGS if "loop" not in n])
def test_each_part_by_itself(name: str, tmp_path: Path) -> None:
    code = HEAD + SPELLINGS[name] + SCRIPT.replace("ITEM", "self.x[i], self.y[i]")
    assert inside(shown(read(tmp_path, code))) == [("dev", "f32"), ("dev", "int")]


def test_what_a_recursion_gives(tmp_path: Path) -> None:
    code = """
def last(tree):
    if isinstance(tree, list):
        return last(tree[-1])
    return tree
probe.show(last([1, [2, [3, ["a"]]]]))
"""
    assert not any("itself" in getattr(t, "why", "") for t in shown(read(tmp_path, HEAD + code)))


@pytest.mark.parametrize("move", ["cuda(x)", "to(x, 'cuda')", "half(x)", "type(x, torch.int)"])
def test_a_method_that_is_asked_of_the_class(move: str, tmp_path: Path) -> None:
    """Nothing is said of what moves or casts in this way: it is not where it was."""
    text = f"x = torch.ones(3)\nprobe.show(torch.Tensor.{move})\n"
    text += f"probe.show(list(map(lambda x: torch.Tensor.{move}, [x]))[0])\n"
    assert not any(isinstance(t, Tensor) for t in shown(read(tmp_path, HEAD + text)))
