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
