"""``autofast explain FILE:LINE``: what is said of a place is what the analyses know, and nothing
else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import SCRIPT, autofast, fault, project, split

__all__ = ["project", "split"]  # fixtures


def line_of(text: str, code: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if code in line)


def explained(code: str, file: str = "train.py", *options: str) -> dict[str, Any]:
    place = f"{file}:{line_of(Path(file).read_text(), code)}"
    done = autofast("explain", place, "--json", *options)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.text)
    assert found["place"] == place and code in found["code"]
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {rule["rule"]: rule["status"] for rule in found["rules"]}


def test_how_often_a_place_runs(project: Path) -> None:
    text = SCRIPT.replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n"
        "            if seen % 100 == 0:\n                print(seen)\n"
        "            if loss > 1:\n                print(loss)\n"
        "            seen += 1\n",
    ).replace("    for epoch in", "    seen = 0\n    for epoch in")
    (project / "train.py").write_text(text)
    epoch = f"epoch (train.py:{line_of(text, 'for epoch')})"
    loop = line_of(text, "model.train()") + 1
    step = f"in every step of the training (train.py:{loop})"
    assert explained("seen = 0")["runs"] == ["once"]
    assert explained("model.train()")["runs"] == [f"in every {epoch}"]
    assert explained("loss.backward()")["runs"] == [f"{step}, in every {epoch}"]
    assert explained("print(seen)")["runs"] == [f"{step}, in every {epoch}; in few of them"]
    assert explained("print(loss)")["runs"] == [f"{step}, in every {epoch}; not in all of them"]
    (evaluated,) = explained("total += ")["runs"]  # across the call
    assert evaluated == f"in every batch of an evaluation (train.py:9), in every {epoch}"


def test_what_things_are_and_where_they_come_from(split: Path) -> None:
    loader = explained("DataLoader(data", "data.py")
    assert loader["entry"] == "train.py" and loader["runs"] == ["once"]
    said = loader["roles"]
    assert said[0] == "loader of TensorDataset (tensors)"
    assert "batch_size = 32 (literal, data.py:5)" in said
    assert any("which trains, gone through again and again" in line for line in said)
    made = line_of((split / "train.py").read_text(), "data = TensorDataset")
    values = {v["expr"]: v for v in loader["values"]}
    assert values["data"]["value"].endswith(f"TensorDataset (made at train.py:{made})")
    assert values["data"]["set_at"] == ["data.py:4"]

    optimizer = explained("optimizer = torch.optim.Adam")
    assert optimizer["roles"][0].startswith("optimizer Adam of the model made at train.py:")
    assert "lr = 0.001 (literal" in optimizer["roles"][1]
    assert verdicts(optimizer)["fused-optimizer"] == "fix"

    step = explained("optimizer.step()")
    assert any(role.startswith("update of the training loop at") for role in step["roles"])
    tensor = {v["expr"]: v["value"] for v in explained("loss.backward()")["values"]}["loss"]
    assert tensor.startswith("the loss of a batch of the loader at data.py:5 out of the model")
    assert "with gradients" in tensor


def test_options_and_what_is_not_known(project: Path) -> None:
    text = SCRIPT.replace("    torch.manual_seed(0)\n", "    torch.manual_seed(0)\n"
        "    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--batch', type=int, default=16)\n"
        "    args = parser.parse_args()\n"
        "    mystery = somewhere.thing()\n").replace("batch_size=32", "batch_size=args.batch")  # fmt: skip
    text = text.replace("    for epoch in", "    print(mystery)\n    for epoch in")
    text = "import argparse\nimport somewhere\n" + text
    (project / "train.py").write_text(text)
    option = line_of(text, "add_argument")
    loader = explained("loader = DataLoader")
    said = f"batch_size = the option --batch (train.py:{option}; default: 16)"
    assert said in loader["roles"]  # the place once
    (mystery,) = [v for v in explained("print(mystery)")["values"] if v["expr"] == "mystery"]
    assert mystery["value"].startswith("not known: ")


def test_what_rules_do_and_why_not(project: Path) -> None:
    kept = SCRIPT.replace("shuffle=True)", "shuffle=True, pin_memory=False)")
    (project / "train.py").write_text(kept)
    found = explained("loader = DataLoader", "train.py", "--exhaustive", "--ignore", "gpu-data")
    refused = [r for r in found["rules"] if r["rule"] == "pin-memory"]
    assert (
        refused[0]["status"] == "refused" and "pin_memory=False is written" in refused[0]["reason"]
    )
    (project / "train.py").write_text(SCRIPT)
    # A line that the fix of another place changes.
    other = explained("from torch.utils.data", "train.py", "--ignore", "gpu-data")
    assert verdicts(other) == {"batched-dataset": "change"} and other["runs"] == ["once"]
    text = autofast("explain", other["place"], "--ignore", "gpu-data").text
    assert text.startswith("train.py:3: from torch.utils.data import DataLoader, TensorDataset\n")
    assert f"(changes this line: for train.py:{line_of(SCRIPT, 'loader = DataLoader')})" in text


def test_where_nothing_runs(project: Path) -> None:
    (project / "train.py").write_text(
        SCRIPT.replace("        print(epoch", "        continue\n        print(epoch")
    )
    blank = autofast("explain", "train.py:4")
    assert blank.code == 0 and "nothing runs here" in blank.text
    assert not explained("print(epoch")["reached"]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("train.py", "train.py: is no place; write FILE:LINE, as in train.py:12"),
        ("nothing.py:3", "nothing.py: no such file; write FILE:LINE, as in train.py:12"),
        ("train.py:999", "train.py:999: there is no such line in the code of this file"),
    ],
)
def test_no_place(project: Path, place: str, why: str) -> None:
    assert fault(autofast("explain", place)) == why


def test_the_project_is_that_of_the_file(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = autofast("explain", f"{project / 'train.py'}:1", "--root", str(project))
    assert done.code == 0 and f"{project / 'train.py'}:1: " in done.text
