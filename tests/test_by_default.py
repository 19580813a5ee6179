"""What expressions are while options have their defaults."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from autofast.facts import by_default
from autofast.read import read_script


def test_each_variable_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.py"
    rows = [f"v{n + 1} = v{n} or v{n} or None" for n in range(12)]
    path.write_text(
        "import lib\nv0 = lib.version() if lib else None\n" + "\n".join(rows) + "\nprint(v12)\n"
    )
    script = read_script(path, tmp_path)
    asked: list[ast.expr] = []
    real = by_default._given

    def counted(*given: Any) -> Any:
        asked.append(given[1])
        return real(*given)

    monkeypatch.setattr(by_default, "_given", counted)
    last = next(n for n in script.each(ast.Name) if n.id == "v12" and isinstance(n.ctx, ast.Load))
    assert by_default.value_by_default(script, last) is ...
    assert len(asked) == len(set(asked)) > 12, len(asked)


@pytest.mark.parametrize(("more", "value"), [("", 3), ("size = size + n\n", ...)])
def test_what_goes_round_in_a_loop_is_not_known(tmp_path: Path, more: str, value: object) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        f"import lib\nsize = 3\nfor n in lib.rows():\n    {more or 'pass'}\n    print(size)\n"
    )
    script = read_script(path, tmp_path)
    last = [n for n in script.each(ast.Name) if n.id == "size" and isinstance(n.ctx, ast.Load)][-1]
    for _ in range(2):  # also when it is asked again
        assert by_default.value_by_default(script, last) is value


YAML = "eval: 0\ntest: null\nsub:\n  name: small\n  flag: false\n"
ARGPARSE = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--test")
p.add_argument("--eval", type=int, default=0)
p.add_argument("--name", default="small", choices=["small", "big"])
p.add_argument("--mode", choices=["a", "b"])
p.add_argument("--need", required=True)
p.add_argument("path")
p.add_argument("maybe", nargs="?")
c = p.parse_args()
"""
CLICK = """
import click
@click.command()
@click.argument("path")
@click.option("--asked", prompt=True)
@click.option("--eval", default=0)
def main(path, asked, eval):
    print({asked})
main()
"""
LOADED = 'import yaml\nc = yaml.safe_load(open("config.yml"))\n'
EASY = "import yaml\nfrom easydict import EasyDict\nc = EasyDict(yaml.safe_load(open('config.yml')))\n"
YACS = """
from yacs.config import CfgNode as CN
_C = CN()
_C.EVAL = 0
_C.SUB = CN()
_C.SUB.FLAG = False
def defaults():
    return _C.clone()
c = defaults()
c.merge_from_file("exp.yaml")
"""
FALLBACK = """
import yaml
class Config(dict):
    def __init__(self, path):
        self.known = yaml.load(open(path))
    def __getattr__(self, name):
        if self.known.get(name) is not None:
            return self.known[name]
        if DEFAULTS.get(name) is not None:
            return DEFAULTS[name]
        return None
DEFAULTS = {"eval": 0, "size": 4}
c = Config("FILE")
"""


@pytest.mark.parametrize(
    ("settings", "asked", "value"),
    [
        (ARGPARSE, "c.test is not None", False),
        (ARGPARSE, "vars(c)['eval']", 0),
        (ARGPARSE, "getattr(c, 'test')", None),
        (ARGPARSE, "int(c.eval)", 0),
        (ARGPARSE, "c.name.startswith('b')", False),
        (ARGPARSE, "c.name in ('big', 'huge')", False),
        (ARGPARSE, "c.mode == 'a'", ...),  # no choice is the default
        (ARGPARSE, "c.need", ...),
        (ARGPARSE, "c.path", ...),
        (ARGPARSE, "c.maybe", None),
        (CLICK, "path", ...),
        (CLICK, "asked", ...),
        (CLICK, "eval", 0),
        (LOADED, "c['test'] is not None", False),
        (LOADED, "c['sub']['flag']", False),
        (LOADED, "c.get('eval', 5)", 0),
        (LOADED, "c.get('other', 5)", 5),
        (EASY, "c.sub.name == 'big'", False),
        (YACS, "c.EVAL", 0),
        (YACS, "c.SUB.FLAG", False),
        (YACS + "c.EVAL = 5\n", "c.EVAL", 5),
        (YACS + "c.EVAL = 5\n", "_C.EVAL", 0),
        (FALLBACK.replace("FILE", "config.yml"), "c.eval", 0),
        (FALLBACK.replace("FILE", "config.yml"), "c.sub", ...),
        (FALLBACK.replace("FILE", "config.yml").replace("eval\": 0", "eval\": 7"), "c.eval", 0),
        (FALLBACK.replace("FILE", "elsewhere.yml"), "c.eval", 0),
        (FALLBACK.replace("FILE", "elsewhere.yml"), "c.size", 4),
        (FALLBACK.replace("FILE", "template.yml"), "c.size", 9),
        ("import lib\nc = lib.load()\n", "c.eval", ...),
        ("import yaml\nc = yaml.safe_load(open('elsewhere.yml'))\n", "c['eval']", ...),
        (LOADED + "c['eval'] = 3\n", "c['eval']", 3),
        (LOADED + "import os\nif os.name: c['eval'] = 3\n", "c['eval']", ...),
    ],
)
def test_settings_by_default(tmp_path: Path, settings: str, asked: str, value: object) -> None:
    (tmp_path / "config.yml").write_text(YAML)
    (tmp_path / "template.yml.example").write_text("size: 9\n")
    path = tmp_path / "train.py"
    path.write_text(settings.format(asked=asked) if "{asked}" in settings else f"{settings}print({asked})\n")
    script = read_script(path, tmp_path)
    shown = [n for n in script.each(ast.Call) if isinstance(n.func, ast.Name) and n.func.id == "print"]
    assert by_default.value_by_default(script, shown[-1].args[0]) is value
