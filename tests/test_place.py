"""Where an argument is written: at the call, in a dict display, a ``dict()`` call, an ``update()``
or an item assignment.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from autofast.edit.compose import compose
from autofast.read import read_script
from autofast.write.arguments import put

HEAD = """
import os
from torch.utils.data import DataLoader
data = [1, 2, 3]
debug = os.environ.get("DEBUG")
"""


def placed(tmp_path: Path, body: str, name: str = "timeout", value: str = "9") -> str:
    """The lines that change when every loader of the script gets the argument; or the reason why
    they do not.
    """
    path = tmp_path / "train.py"
    path.write_text(HEAD + textwrap.dedent(body))
    script = read_script(path, tmp_path)
    calls = [loader.node for loader in script.loaders]
    edits: dict[object, None] = {}
    for loader in script.loaders:
        made = put(script, loader.args, name, value, calls)
        if isinstance(made, str):
            return made
        edits.update(dict.fromkeys(made))
    unique = {
        (
            type(e),
            id(
                getattr(e, "call", None)
                or getattr(e, "display", None)
                or getattr(e, "expr", None)
                or getattr(e, "stmt", None)
            ),
        ): e
        for e in edits
    }
    (text,) = compose(unique.values()).values()  # type: ignore[arg-type]
    return "\n".join(
        line.strip() for line in text.splitlines() if line not in path.read_text().splitlines()
    ).replace('"', "'")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = DataLoader(data, batch_size=2)", "a = DataLoader(data, batch_size=2, timeout=9)"),
        ("a = DataLoader(data, timeout=0)", "a = DataLoader(data, timeout=9)"),
        ("kw = {'batch_size': 2}\na = DataLoader(data, **kw)", "kw = {'batch_size': 2, 'timeout': 9}"),
        ("kw = dict(batch_size=2)\na = DataLoader(data, **kw)\nb = DataLoader(data, **kw)", "kw = dict(batch_size=2, timeout=9)"),
        ("kw = {'timeout': 0}\na = DataLoader(data, **kw)", "kw = {'timeout': 9}"),
        ("kw = {}\nkw['timeout'] = 0\na = DataLoader(data, **kw)", "kw['timeout'] = 9"),
        ("kw = {}\nkw.update(timeout=0)\na = DataLoader(data, **kw)", "kw.update(timeout=9)"),
        ("kw = {}\nif debug:\n    kw.update({'timeout': 0})\na = DataLoader(data, **kw)", "kw.update({'timeout': 9})"),
        ("kw = {'timeout': 0} if debug else {}\na = DataLoader(data, **kw)", "kw = {'timeout': 9} if debug else {}"),
        ("one = {'timeout': 0}\nkw = {**one, 'batch_size': 2}\na = DataLoader(data, **kw)", "one = {'timeout': 9}"),
        ("def make(d, **kw):\n    return DataLoader(d, **kw)\nargs = dict(timeout=0)\na = make(data, **args)", "args = dict(timeout=9)"),
        ("def make(d, kw):\n    return DataLoader(d, **kw)\na = make(data, {'timeout': 0})", "a = make(data, {'timeout': 9})"),
        ("kw = {'batch_size': 2}\nkw.pop('shuffle', 0)\na = DataLoader(data, **kw)", "kw = {'batch_size': 2, 'timeout': 9}"),
        ("def make(**kw):\n    kw.pop('name')\n    return DataLoader(data, **kw)\na = make(name='a', batch_size=2)", "return DataLoader(data, timeout=9, **kw)"),
        ("kw = {'batch_size': 2}\na = DataLoader(data, **kw)\nprint(kw)", "a = DataLoader(data, timeout=9, **kw)"),
    ],
)  # fmt: skip
def test_where_it_is_written(tmp_path: Path, body: str, expected: str) -> None:
    assert placed(tmp_path, body) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import json\nkw = json.load(open('x'))\na = DataLoader(data, **kw)", "may be given already"),
        ("kw = {'timeout': 0}\na = DataLoader(data, **kw)\nprint(kw)", "also used on line"),
        ("kw = {'timeout': 0}\na = DataLoader(data, **kw)\nt = kw['timeout']", "also used on line"),
        ("kw = {'timeout': 0}\na = DataLoader(data, **kw)\nfor k in kw.items():\n    pass", "also used on line"),
        ("kw = {'timeout': 0}\nkw.popitem()\na = DataLoader(data, **kw)", "also used on line"),
        ("kw = {'batch_size': 2}\nt = kw.pop('timeout', 0)\na = DataLoader(data, **kw)", "is taken out of the dict"),
        ("def make(**kw):\n    t = kw.pop('timeout', 0)\n    return DataLoader(data, **kw)\na = make(batch_size=2)", "is taken out of the dict"),
        ("one = {'batch_size': 2}\nt = one.pop('timeout', 0)\nkw = {**one}\na = DataLoader(data, **kw)", "is taken out of the dict"),
    ],
)  # fmt: skip
def test_what_is_left_alone(tmp_path: Path, body: str, reason: str) -> None:
    assert reason in placed(tmp_path, body)


def test_a_dict_that_also_feeds_another_call_is_left_to_the_call(tmp_path: Path) -> None:
    body = "kw = {'batch_size': 2}\nclass Mine:\n    def __init__(self, batch_size):\n        pass\nm = Mine(**kw)\na = DataLoader(data, **kw)"
    assert placed(tmp_path, body) == "a = DataLoader(data, timeout=9, **kw)"


def test_an_item_is_added_beside_an_item_assignment(tmp_path: Path) -> None:
    from autofast.write.arguments import places_of_argument

    path = tmp_path / "train.py"
    path.write_text(
        HEAD + "kw = {}\nif debug:\n    kw['num_workers'] = 4\na = DataLoader(data, **kw)\n"
    )
    script = read_script(path, tmp_path)
    (home,) = places_of_argument(script, script.loaders[0].args, "num_workers")
    (text,) = compose([home.set("persistent_workers", "True")]).values()  # type: ignore[union-attr]
    assert "    kw['num_workers'] = 4\n    kw['persistent_workers'] = True\n" in text.replace(
        '"', "'"
    )
