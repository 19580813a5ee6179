"""The command line, as a user meets it: options, exit codes, what is said where, and that nothing
is ever lost.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

from autofast import __version__
from autofast.cli import cli
from autofast.model.source import BadInput

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader, device):
    model.eval()
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        total += nn.functional.mse_loss(model(x), y, reduction="sum").item()
    return total / len(loader.dataset)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        print(epoch, evaluate(model, loader, device))


if __name__ == "__main__":
    main()
"""
IDLE = "import torch\n\nprint(torch.zeros(3))\n"


@dataclass
class Done:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


Run = Callable[..., Done]


@pytest.fixture
def project(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder of its own with one training script, and the current folder of the test."""
    (tmp_path / ".git").mkdir()  # its root, whatever stands above
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))
    return tmp_path


def autofast(*arguments: object, stdin: bytes = b"") -> Done:
    """Run the command in this process."""
    result = CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin, prog_name="autofast")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(result.exit_code, result.stdout_bytes, result.stderr)


def fault(done: Done) -> str:
    """The one line about what the user must mend; nothing else was said, and nothing written to
    standard output.
    """
    assert done.code == 2 and done.out == b"", (done.code, done.out, done.err)
    assert (
        done.err.startswith("autofast: ") and done.err.endswith("\n") and done.err.count("\n") == 1
    ), done.err
    assert "internal error" not in done.err, done.err
    return done.err.removeprefix("autofast: ").rstrip("\n")


def files(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


# ---------------------------------------------------------------------------------------- bad input
BAD: dict[str, tuple[bytes, str]] = {
    "text": (b"Dear reader, this is a letter.\n", r"bad\.py:1: syntax error: .*mend it first"),
    "python 2": (
        b"import torch\nprint 'epoch', 1\nloss.backward()\n",
        r"bad\.py:2: syntax error: .*Python 2.*2to3",
    ),
    "python 2 except": (
        b"try:\n    pass\nexcept IOError, e:\n    pass\n",
        r"bad\.py:3: syntax error: .*Python 2",
    ),
    **(
        {
            "newer Python": (
                b"try:\n    pass\nexcept ValueError, TypeError:\n    pass\n",
                r"bad\.py:3: syntax error: [^;]*\(in Python 3\.\d+\); mend it first, or run autofast with",
            )
        }
        if sys.version_info < (3, 14)
        else {}
    ),
    "async": (b"x = 1\ny = x.cuda(async=True)\n", r"bad\.py:2: syntax error: .*non_blocking"),
    "syntax error": (
        b"import torch\n\nfor x in y\n    pass\n",
        r"bad\.py:3: syntax error: .*mend it first",
    ),
    "binary": (
        b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe\x00",
        r"bad\.py:1: .*not a Python|bad\.py:1: a binary file",
    ),
    "nul": (b"import torch\n\x00\n", r"bad\.py:1: a binary file"),
    "wrong encoding": (
        b"# coding: utf-8\nname = '\xe9'\n",
        r"bad\.py:1: not UTF-8, and it names no other",
    ),
    "latin-1, not said": (b"name = '\xe9'\n", r"bad\.py:1: not UTF-8, and it names no other"),
    "utf-16": ("name = 1\n".encode("utf-16"), r"bad\.py:1: not UTF-8, and it names no other"),
    "too deep": (b"x = " + b"(" * 5000 + b")" * 5000, r"bad\.py:1: syntax error: too many nested"),
    "unknown encoding": (b"# coding: klingon\nname = 1\n", r"bad\.py:1: not a Python text file"),
}


@pytest.mark.parametrize("command", ["rewrite", "check"])
@pytest.mark.parametrize("case", BAD)
def test_unreadable_script(project: Path, command: str, case: str) -> None:
    raw, said = BAD[case]
    (project / "bad.py").write_bytes(raw)
    before = files(project)
    done = autofast(command, "bad.py", *(["--in-place"] if command == "rewrite" else []))
    assert re.match(said, fault(done)), done.err
    assert files(project) == before


BAD_NOTEBOOKS = {
    "empty": ("", 1, "its JSON"),
    "no json": ('{\n "cells": [\n  nothing', 3, "its JSON"),
    "a list": ("[]", 1, "no list of cells"),
    "a number": ("3", 1, "no list of cells"),
    "no cells": ("{}", 1, "no list of cells"),
    "cells are a number": ('{"cells": 3}', 1, "no list of cells"),
    "a cell is a number": ('{"cells": [3]}', 1, "no list of cells"),
}


@pytest.mark.parametrize("command", ["rewrite", "check"])
@pytest.mark.parametrize("case", BAD_NOTEBOOKS)
def test_unreadable_notebook(project: Path, command: str, case: str) -> None:
    text, line, why = BAD_NOTEBOOKS[case]
    (project / "bad.ipynb").write_text(text)
    said = fault(autofast(command, "bad.ipynb"))
    assert said.startswith(f"bad.ipynb:{line}: not a Jupyter notebook of format 4 ({why}"), said
    assert said.endswith("open and save it with Jupyter")
    assert (project / "bad.ipynb").read_text() == text


@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_links_that_lead_nowhere(project: Path, command: str) -> None:
    Path("one.py").symlink_to("other.py")
    Path("other.py").symlink_to("one.py")
    Path("lost.py").symlink_to("nothing.py")
    assert "one.py: a link to itself; " in fault(autofast(command, "one.py"))
    said = fault(autofast(command, "lost.py"))
    assert said.startswith("lost.py: a link to nothing.py, which does not exist; mend the link")


@pytest.mark.parametrize("style", ["text", "json", "concise", "sarif", "markdown"])
def test_a_name_that_is_no_text(project: Path, style: str) -> None:
    name = os.fsdecode(b"tr\xff.py")
    try:
        Path(name).write_text(SCRIPT)
    except OSError:
        pytest.skip("this file system has no such names")
    done = autofast("check", name, "--output-format", style, "--exit-zero")
    shown = rb"tr%FF.py" if style == "sarif" else rb"tr\udcff.py"
    assert done.code == 0 and shown in done.out, done.err
    assert autofast("check", name, "--diff").code == 1
    done = autofast("rewrite", name, "--diff")
    assert done.code == 0 and rb"tr\udcff.py" in done.out
    autofast("rewrite", name, "--patch", "all.patch")
    assert b"+++ b/tr\xff.py\n" in Path("all.patch").read_bytes()


MISUSED = {
    ("--nope",): "no such option '--nope'",
    ("chekc",): "no such command 'chekc'",
    ("check", "--selct", "tf32"): "no such option '--selct'; did you mean --select?",
    (
        "check",
        "train.py",
        "--output-format",
        "xml",
    ): "invalid value for '--output-format': 'xml' is not",
    ("check", ""): "names nothing; give a script or a folder",
    ("rewrite",): "missing argument 'ENTRY'",
    ("rewrite", ""): "names nothing; give a script",
    ("rewrite", "train.py", "--min-gain", "much"): "'much' is no number",
    ("rewrite", "train.py", "--workers", "many"): "'many' is no number",
    ("rewrite", "train.py", "--accumulate", "-3"): "-3 is not in the range x>=2",
    ("rewrite", "train.py", "--diff", "--in-place"): "--in-place and --diff exclude each other",
    ("rewrite", "-", "--in-place"): "standard input cannot be rewritten with --in-place",
    ("rule",): "missing argument 'NAME'",
    ("verify", "no.py"): "no.py: no such file; give the training script",
    ("verify", "train.py", "no.py"): "no.py: no such file; write it with",
    ("verify", "--runs", "3"): "no such option '--runs'",
    ("tune", "train.py", "--time-budget", "long"): "'long' is no number",
}


@pytest.mark.parametrize("command", MISUSED, ids=" ".join)
def test_a_command_that_cannot_be(project: Path, command: tuple[str, ...]) -> None:
    before = files(project)
    assert MISUSED[command] in fault(autofast(*command))
    assert files(project) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_a_pipe_is_not_waited_for(project: Path, command: str) -> None:
    os.mkfifo("pipe.py")
    assert "pipe.py: is no regular file; give a script, or `-`" in fault(
        autofast(command, "pipe.py")
    )


def test_no_such_file(project: Path) -> None:
    assert fault(autofast("rewrite", "no.py")).startswith("no.py: no such file")
    assert fault(autofast("check", "no.py")).startswith("no.py: no such file")


def test_a_folder_as_entry(project: Path) -> None:
    (project / "sub").mkdir()
    assert (
        fault(autofast("rewrite", "sub")) == "sub: is a directory; give the training script in it"
    )


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", IDLE], ids=["empty", "blank", "comment", "no loop"]
)
def test_no_training_loop(project: Path, text: str) -> None:
    (project / "idle.py").write_text(text)
    done = autofast("rewrite", "idle.py", "--in-place")
    assert done.code == 0 and done.err.startswith("idle.py: nothing to rewrite\n")
    assert "Note: no training loop found; give the script that trains\n" in done.err
    assert (project / "idle.py").read_text() == text
    done = autofast("check", "idle.py")
    assert done.code == 0 and re.fullmatch(
        r"autofast: idle\.py: no training loop found.*\n", done.err
    )


def test_modules_by_relative_names_that_are_computed(project: Path) -> None:
    (project / "lazy.py").write_text(
        "import importlib\n\nfor name in open('names'):\n"
        "    importlib.import_module(f'.commands.{name}', __package__)\n"
        "    importlib.import_module('.commands.' + name)\n"
    )
    (project / "train.py").write_text("import lazy\n" + SCRIPT)
    assert autofast("check", "train.py").code == 1


@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_a_marimo_notebook_is_called_one(project: Path, command: str) -> None:
    head = "import marimo\n\napp = marimo.App()\n\n\n@app.cell\ndef _():\n"
    cell = SCRIPT[SCRIPT.index("def main") :].splitlines(keepends=True)[1:]
    (project / "nb.py").write_text(head + "    import torch\n" + "".join(cell) + "\n\napp.run()\n")
    done = autofast(command, "nb.py")
    assert done.code == 0
    assert "a marimo notebook, whose cells are not followed; `marimo export script`" in done.err


def test_loop_of_a_framework(project: Path) -> None:
    script = """
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        def main():
            model = AutoModelForCausalLM.from_pretrained("x")
            trainer = Trainer(model=model, args=TrainingArguments(output_dir="out"), train_dataset=[])
            trainer.train()

        main()
    """
    (project / "hf.py").write_text(dedent(script))
    done = autofast("rewrite", "hf.py")
    assert done.code == 0 and "the Hugging Face Trainer has the training loop" in done.err
    assert "no training loop" not in autofast("check", "hf.py").err


def test_targets_that_are_refused(project: Path) -> None:
    (project / "there.py").write_text("precious")
    (project / "locked.py").write_text("precious")
    (project / "locked.py").chmod(0o444)
    (project / "sub").mkdir()
    before = files(project)
    assert "there.py: exists; replace it with --force" in fault(
        autofast("rewrite", "train.py", "-o", "there.py")
    )
    assert "there.py: exists; replace it with --force" in fault(
        autofast("rewrite", "train.py", "--patch", "there.py")
    )
    assert "locked.py: is read-only" in fault(
        autofast("rewrite", "train.py", "-o", "locked.py", "--force")
    )
    assert "sub: is a directory" in fault(autofast("rewrite", "train.py", "-o", "sub"))
    assert "no folder none" in fault(autofast("rewrite", "train.py", "-o", "none/fast.py"))
    assert "rewrite it with --in-place" in fault(
        autofast("rewrite", "train.py", "-o", "train.py", "--force")
    )
    assert "rewrite it with --in-place" in fault(
        autofast("rewrite", "train.py", "--output-dir", ".", "--force")
    )
    assert "is not a folder" in fault(
        autofast("rewrite", "train.py", "--output-dir", "there.py", "--force")
    )
    assert "name another one for the patch" in fault(
        autofast("rewrite", "train.py", "--patch", "train.py", "--force")
    )
    assert "not a regular file" in fault(
        autofast("rewrite", "train.py", "-o", os.devnull, "--force")
    )
    assert files(project) == before


def test_read_only_script_is_not_rewritten_in_place(project: Path) -> None:
    (project / "train.py").chmod(0o444)
    assert "train.py: is read-only" in fault(autofast("rewrite", "train.py", "--in-place"))
    assert (project / "train.py").read_text() == SCRIPT


def test_ten_thousand_lines(project: Path) -> None:
    filler = "".join(
        f"\n\ndef helper_{n}(x):\n    y = x + {n}\n    return y * 2\n" for n in range(2000)
    )
    (project / "long.py").write_text(
        SCRIPT.replace("\n\ndef evaluate", filler + "\n\ndef evaluate")
    )
    assert (project / "long.py").read_text().count("\n") > 10_000
    done = autofast("rewrite", "long.py", "--in-place")
    assert done.code == 0, done.err
    text = (project / "long.py").read_text()
    compile(text, "long.py", "exec")
    assert filler in text


def test_import_cycle(project: Path) -> None:
    (project / "a.py").write_text(
        "import b\nfrom b import train\n\nif __name__ == '__main__':\n    train()\n"
    )
    (project / "b.py").write_text(
        "import a\n"
        + SCRIPT.replace("def main()", "def train()").replace("    main()\n", "    a.train()\n")
    )
    done = autofast("check", "a.py", "b.py", ".")
    assert done.code in (0, 1) and "internal" not in done.err, done.err
    assert autofast("rewrite", "a.py").code == 0


def test_root(project: Path) -> None:
    (project / "sub").mkdir()
    assert "is outside of --root sub" in fault(autofast("rewrite", "train.py", "--root", "sub"))
    assert "none: is no folder" in fault(autofast("rewrite", "train.py", "--root", "none"))
    assert autofast("check", "train.py", "--root", ".").code == 1


@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_unknown_rule(project: Path, command: str) -> None:
    assert (
        fault(autofast(command, "train.py", "--select", "tf23"))
        == "there is no rule called 'tf23'; did you mean tf32?"
    )
    assert "`autofast rules`" in fault(autofast(command, "train.py", "--ignore", "qqqqqqqq"))


def test_configuration(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.autofast]\nefect = 'exact'\n")
    assert "unknown key 'efect'" in fault(autofast("check", "train.py"))
    (project / "pyproject.toml").write_text("[tool.autofast]\nselect = ['tf32', 'nonsense']\n")
    assert "no rule called 'nonsense'" in fault(autofast("check", "train.py"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["rewrite"],
        ["rewrite", "train.py", "--in-place", "--diff"],
        ["rewrite", "train.py", "-o", "a.py", "--patch", "b.patch"],
        ["rewrite", "-", "--in-place"],
        ["rewrite", "-", "--output-dir", "x"],
        ["rewrite", "train.py", "--effect", "wild"],
        ["check", "--fix", "--diff"],
        ["check", "--fix", "-"],
        ["check", "train.py", "--output-format", "xml"],
        ["frobnicate"],
    ],
)
def test_wrong_usage(project: Path, arguments: Sequence[str]) -> None:
    done = autofast(*arguments)
    assert done.code == 2 and done.out == b"" and done.err.startswith("autofast: ")


def test_a_fault_of_ours_is_one_line_and_writes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("autofast.commands.planning.read_script", broken)
    done = autofast("rewrite", "train.py", "--in-place")
    assert (
        done.code == 2
        and done.err.count("\n") == 1
        and "train.py: internal error (KeyError" in done.err
    )
    assert autofast("check", "train.py").code == 2
    assert (project / "train.py").read_text() == SCRIPT


# ------------------------------------------------------------------------------------------ rewrite
def rewritten(*arguments: str) -> bytes:
    done = autofast("rewrite", "train.py", "-o", "-", *arguments)
    assert done.code == 0, done.err
    assert done.out != SCRIPT.encode()
    return done.out


def test_without_an_output_option_the_diff_is_shown(project: Path) -> None:
    before = files(project)
    shown, plain = autofast("rewrite", "train.py", "--diff"), autofast("rewrite", "train.py")
    assert shown.code == plain.code == 0 and shown.out == plain.out
    assert (
        plain.text.startswith("--- a/train.py\n+++ b/train.py\n@@ -") and "\x1b" not in plain.text
    )
    assert all(
        re.search(r" @@  [a-z0-9-]+(, [a-z0-9-]+)*$", line)
        for line in plain.text.splitlines()
        if line.startswith("@@")
    )
    assert (
        "Nothing was written" in plain.err and "To verify: autofast verify train.py\n" in plain.err
    )
    assert files(project) == before


def test_several_processes_are_verified_beside_one(project: Path) -> None:
    (project / "train.py").write_text(
        SCRIPT.replace(
            "print(epoch, evaluate(model, loader, device))",
            "found = evaluate(model, DataLoader(data, batch_size=32), device)\n        print(epoch, found)",
        )
    )
    start = '--launch-rewritten "torchrun --nproc-per-node=2"\n'
    assert (
        f"To verify: autofast verify train.py --ddp {start}"
        in autofast("rewrite", "train.py", "--ddp").err
    )
    assert (
        f"To verify: autofast verify train.py fast.py {start}"
        in autofast("rewrite", "train.py", "--ddp", "-o", "fast.py").err
    )


def test_in_place(project: Path) -> None:
    expected = rewritten()
    (project / "train.py").chmod(0o755)
    done = autofast("rewrite", "train.py", "--in-place")
    assert done.code == 0 and done.out == b"" and "Wrote train.py" in done.err
    assert files(project) == {"train.py": expected}
    assert stat.S_IMODE((project / "train.py").stat().st_mode) == 0o755
    verify = re.search(r"^To verify: autofast verify (\S+) train\.py$", done.err, re.MULTILINE)
    assert verify and Path(verify[1]).read_text() == SCRIPT, "the original is kept where it says"
    again = autofast("rewrite", "train.py", "--in-place")
    assert again.code == 0 and "nothing to rewrite" in again.err and "Wrote" not in again.err
    assert files(project) == {"train.py": expected}


def test_to_a_file(project: Path) -> None:
    expected = rewritten()
    (project / "train.py").chmod(0o755)
    done = autofast("rewrite", "train.py", "-o", "fast.py")
    assert done.code == 0 and done.out == b""
    assert (
        "Wrote fast.py" in done.err and "To verify: autofast verify train.py fast.py\n" in done.err
    )
    assert files(project) == {"train.py": SCRIPT.encode(), "fast.py": expected}
    assert stat.S_IMODE((project / "fast.py").stat().st_mode) == 0o755
    (project / "fast.py").write_text("old")
    assert autofast("rewrite", "train.py", "-o", "fast.py", "--force").code == 0
    assert (project / "fast.py").read_bytes() == expected


def test_nothing_to_rewrite_still_gives_the_file(project: Path) -> None:
    (project / "train.py").write_bytes(rewritten())
    before = files(project)
    done = autofast("rewrite", "train.py", "-o", "fast.py")
    assert done.code == 0 and "nothing to rewrite" in done.err
    assert (project / "fast.py").read_bytes() == before["train.py"]
    done = autofast("rewrite", "train.py", "--patch", "a.patch")
    assert done.code == 0 and done.out == b"" and not (project / "a.patch").exists()
    done = autofast("rewrite", "train.py")
    assert done.code == 0 and done.out == b""


def test_summary(project: Path) -> None:
    done = autofast("rewrite", "train.py")
    places = {(f["rule"], f["line"]) for f in findings("train.py") if f["worth"]}
    assert re.match(
        rf"train\.py: {len({rule for rule, _ in places})} rules?, \d+ places? in 1 file; strongest effect: \w+\n",
        done.err,
    )
    for rule, line in places:
        assert re.search(
            rf"^  {rule} +\w+(, \w+)* +train\.py:(\d+, )*{line}\b", done.err, re.MULTILINE
        ), (rule, line, done.err)
    refused = [f for f in findings("train.py") if f["status"] == "refused"]
    assert all(f["reason"] in done.err for f in refused)


def test_stdin(project: Path) -> None:
    expected = rewritten()
    assert autofast("rewrite", "-", stdin=SCRIPT.encode()).out == expected
    named = autofast("rewrite", "-", "--stdin-filename", "train.py", stdin=SCRIPT.encode())
    assert named.code == 0 and named.out == expected
    diff = autofast(
        "rewrite", "-", "--stdin-filename", "sub/other.py", "--diff", stdin=SCRIPT.encode()
    )
    assert diff.text.startswith("--- a/sub/other.py\n")
    assert "verify" not in named.err
    assert files(project) == {"train.py": SCRIPT.encode()}


@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_bad_stdin(project: Path, command: str) -> None:
    done = autofast(command, "-", "--stdin-filename", "a.py", stdin=b"print 'x'\n")
    assert done.code == 2 and done.err.startswith("autofast: a.py:1: syntax error")


SHAPES: dict[str, Callable[[str], bytes]] = {
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "bom": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "latin-1": lambda text: ("# -*- coding: latin-1 -*-\n# café\n" + text).encode("latin-1"),
    "no last newline": lambda text: text.rstrip("\n").encode(),
    "tabs": lambda text: re.sub(
        r"^(?: {4})+", lambda m: "\t" * (len(m[0]) // 4), text, flags=re.MULTILINE
    ).encode(),
    "crlf and bom": lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_survive(project: Path, shape: str) -> None:
    raw = SHAPES[shape](SCRIPT)
    (project / "train.py").write_bytes(raw)
    done = autofast("rewrite", "-", "--stdin-filename", "train.py", stdin=raw)
    assert autofast("rewrite", "train.py", "--in-place").code == 0
    new = (project / "train.py").read_bytes()
    assert new == done.out and new != raw
    assert new.startswith(b"\xef\xbb\xbf") is raw.startswith(b"\xef\xbb\xbf")
    assert new.endswith(b"\n") is raw.endswith(b"\n")
    assert new.count(b"\n") == new.count(b"\r\n") or "crlf" not in shape
    assert b"\r" not in new or "crlf" in shape
    assert ("café".encode("latin-1") in new) is (shape == "latin-1")
    assert shape != "tabs" or not re.search(rb"^ ", new, re.MULTILINE)
    untouched = set(raw.splitlines(keepends=True)) & set(new.splitlines(keepends=True))
    assert len(untouched) > 15


@pytest.mark.parametrize("shape", ["plain", *SHAPES])
def test_patch_is_what_git_applies(project: Path, shape: str) -> None:
    (project / ".git").rmdir()
    subprocess.run(["git", "init", "-q", "."], check=True)
    raw = SHAPES.get(shape, str.encode)(SCRIPT)
    (project / "train.py").write_bytes(raw)
    expected = autofast("rewrite", "train.py", "-o", "-").out
    done = autofast("rewrite", "train.py", "--patch", "fast.patch")
    assert done.code == 0 and done.out == b"" and "git apply fast.patch" in done.err
    assert (project / "fast.patch").read_bytes() == autofast(
        "rewrite", "train.py", "--patch", "-"
    ).out
    assert (project / "train.py").read_bytes() == raw
    subprocess.run(["git", "apply", "fast.patch"], check=True)
    assert (project / "train.py").read_bytes() == expected


def test_select_and_ignore(project: Path) -> None:
    def rules(*arguments: str) -> set[str]:
        return {f["rule"] for f in findings("train.py", *arguments) if f["status"] == "fix"}

    everything = rules()
    assert {"tf32", "fused-optimizer"} < everything
    assert rules("--select", "tf32") == {"tf32"}
    assert (
        rules("--select", "tf32,no-grad-eval")
        == rules("--select", "tf32", "--select", "no-grad-eval")
        == {"tf32", "no-grad-eval"}
    )
    assert "tf32" not in rules("--ignore", "tf32") and rules("--ignore", "tf32") < everything
    assert not {"tf32", "fused-optimizer"} & rules("--effect", "exact")
    (project / "pyproject.toml").write_text("[tool.autofast]\nignore = ['tf32']\n")
    assert "tf32" not in rules() and rules("--select", "tf32") == {"tf32"}
    assert not {"tf32", "fused-optimizer"} & rules("--ignore", "fused-optimizer")


def test_a_rule_on_request_beside_the_others(project: Path) -> None:
    text = SCRIPT.replace("shuffle=True", "shuffle=True, num_workers=1, pin_memory=True")
    (project / "train.py").write_text(text)

    def rules(*arguments: str) -> set[str]:
        found = findings("train.py", "--ignore", "gpu-data", *arguments)
        return {f["rule"] for f in found if f["status"] == "fix"}

    usual = rules()
    assert usual and "cuda-prefetch" not in usual
    both = rules("--extend-select", "cuda-prefetch")
    assert "cuda-prefetch" in both and usual - {"non-blocking"} <= both
    assert rules("--select", "tf32", "--extend-select", "cuda-prefetch") == {
        "tf32",
        "cuda-prefetch",
    }
    (project / "pyproject.toml").write_text('[tool.autofast]\nextend-select = ["cuda-prefetch"]\n')
    assert rules() == both and rules("--select", "tf32") == {"tf32"}
    wrong = autofast("check", "train.py", "--extend-select", "cuda-prefech")
    assert wrong.code == 2 and "did you mean cuda-prefetch?" in wrong.err


def test_a_rule_beyond_the_effect_is_said_to_be(project: Path) -> None:
    done = autofast("rewrite", "train.py", "--select", "tf32", "--effect", "exact")
    assert (
        done.code == 0
        and "nothing to rewrite" in done.err
        and "tf32: needs --effect rounding" in done.err
    )


def test_rules_on_request(project: Path) -> None:
    schedule = "    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)\n    for epoch in range(2):\n"
    text = SCRIPT.replace("    for epoch in range(2):\n", schedule).replace(
        "        print(epoch", "        scheduler.step()\n        print(epoch"
    )
    (project / "train.py").write_text(text)
    request = {"compile": "--compile", "stepwise-scheduler": "--select stepwise-scheduler"}
    for name, option in request.items():
        assert name not in {f["rule"] for f in findings("train.py", "--effect", "sampling")}
        (asked,) = (
            f for f in findings("train.py", *option.split()) if f["rule"] == name
        )  # without --effect recipe
        assert asked["status"] == "fix" and "on request" not in asked["message"]
    listed = {f["rule"]: f for f in findings("train.py", "--effect", "recipe")}
    assert listed["compile"]["status"] == "fix" and listed["compile"]["message"].endswith(
        "(on request: --compile)"
    )
    assert "stepwise-scheduler" not in listed  # it makes no step faster
    assert "torch.compile" not in autofast("rewrite", "train.py", "--effect", "recipe").out.decode()
    assert not {
        f["rule"] for f in findings("train.py", "--effect", "recipe", "--select", "tf32")
    } & set(request)
    assert "compile" not in {
        f["rule"] for f in findings("train.py", "--effect", "recipe", "--ignore", "compile")
    }


@pytest.mark.parametrize(
    ("option", "other"), [("--keep-batch", "--accumulate"), ("--sync-batchnorm", "--ddp")]
)
def test_options_that_need_another(project: Path, option: str, other: str) -> None:
    assert f"{option} means nothing without {other}; give both" in fault(
        autofast("check", "train.py", option)
    )


# ------------------------------------------------------------------------------------ several files
@pytest.fixture
def split(project: Path) -> Path:
    """The script in two files: the loader is made in data.py."""
    made = "    loader = DataLoader(data, batch_size=32, shuffle=True)\n"
    make = "def make(data, device):\n    return DataLoader(data, batch_size=32, shuffle=True)\n"
    (project / "data.py").write_text("from torch.utils.data import DataLoader\n\n\n" + make)
    text = SCRIPT.replace(made, "    loader = make(data, device)\n").replace(
        "import torch\n", "import torch\nfrom data import make\n", 1
    )
    (project / "train.py").write_text(text)
    return project


def test_edits_in_other_files(split: Path) -> None:
    before = files(split)
    both = [f for f in findings("train.py", "--imported") if f["status"] == "fix"]
    assert {f["path"] for f in both} == {"data.py", "train.py"}
    assert {f["path"] for f in findings("train.py")} == {"train.py"}
    assert findings("train.py", "--root", ".") == findings("train.py", "--imported")
    assert (
        " more in 1 imported file (--imported shows them).\n" in autofast("check", "train.py").text
    )
    alone = autofast("rewrite", "train.py", "-o", "fast.py")
    assert (
        alone.code == 0
        and "Not written, as they change other files" in alone.err
        and "data.py:5" in alone.err
    )
    assert files(split) == {**before, "fast.py": (split / "fast.py").read_bytes()}

    folder = autofast("rewrite", "train.py", "--output-dir", "fast")
    assert folder.code == 0 and "Not written" not in folder.err
    written = files(split / "fast")
    assert set(written) == {"train.py", "data.py"} and written["data.py"] != before["data.py"]
    assert "To verify: autofast verify train.py fast/train.py" in folder.err
    assert fault(autofast("rewrite", "train.py", "--output-dir", "fast")).endswith(
        "give another name"
    )

    (split / "away").mkdir()
    assert f"PYTHONPATH={split}" in autofast("rewrite", "train.py", "-o", "away/train.py").err

    diff = autofast("rewrite", "train.py").text
    assert "+++ b/train.py\n" in diff and "+++ b/data.py\n" in diff
    assert autofast("rewrite", "train.py", "--in-place").code == 0
    assert {name: (split / name).read_bytes() for name in written} == written


def test_patch_of_several_files_in_a_sub_folder(
    split: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (split / ".git").rmdir()
    subprocess.run(["git", "init", "-q", "."], check=True)
    (split / "my code").mkdir()
    for name in ("train.py", "data.py"):
        (split / name).rename(split / "my code" / name)
    assert autofast("rewrite", "my code/train.py", "--patch", "a.patch").code == 0
    assert autofast("rewrite", "my code/train.py", "--output-dir", "fast").code == 0
    subprocess.run(["git", "apply", "a.patch"], check=True)
    assert files(split / "my code") == files(split / "fast" / "my code")


# -------------------------------------------------------------------------------------------- check
def findings(*arguments: object) -> list[dict[str, Any]]:
    done = autofast("check", *arguments, "--output-format", "json")
    report = json.loads(done.out)
    assert (
        done.code in (0, 1)
        and set(report) == {"version", "files", "findings"}
        and report["version"] == 1
    )
    return list(report["findings"])


def test_json(project: Path) -> None:
    (project / "pkg").mkdir()
    (project / "train.py").rename(project / "pkg" / "train.py")
    found = findings("pkg/train.py")
    keys = {"rule", "effect", "path", "line", "column", "end_line", "message", "status", "reason"}
    keys |= {"worth", "gain", "end_column", "cell"}
    assert found and all(set(f) == keys and f["path"] == "pkg/train.py" for f in found)
    assert all(
        f["status"] in ("fix", "refused", "advice") and bool(f["reason"]) is (f["status"] != "fix")
        for f in found
    )
    lines = SCRIPT.splitlines()
    assert all(
        1 <= f["line"] <= f["end_line"] <= len(lines)
        and 1 <= f["column"] <= len(lines[f["line"] - 1])
        for f in found
    )
    assert json.loads(autofast("check", "pkg", "--output-format", "json").out)["files"] == [
        "pkg/train.py"
    ]


def test_text_and_exit_codes(project: Path) -> None:
    done = autofast("check", "train.py", "--output-format", "concise")
    assert done.code == 1 and done.err == ""
    *lines, last, how, left = done.text.splitlines()
    assert re.fullmatch(r"\d+ more places are not worth their lines: .+", left)
    assert how == "--diff shows the fixes, --fix writes them."
    assert all(
        re.fullmatch(
            r"train\.py:\d+:\d+: [a-z0-9-]+ \[\w+\] .+ \((fix(; estimate: .+)?|advice: .+)\)", line
        )
        for line in lines
        if line
    )
    assert re.fullmatch(
        r"Found \d+ fix(es)?( and \d+ pieces? of advice)? in 1 file(; \d+ refused \(listed with --show-refused\))?\.",
        last,
    )
    assert autofast("check", "train.py", "--exit-zero").code == 0
    assert len(autofast("check", "train.py", "-v").text.splitlines()) >= len(lines) + 1
    (project / "train.py").write_bytes(autofast("rewrite", "train.py", "-o", "-").out)
    assert not [f for f in findings("train.py") if f["worth"]]


def test_paths_of_several_folders(project: Path) -> None:
    (project / ".git").rmdir()
    for name in ("one", "two"):
        (project / name).mkdir()
        (project / name / "train.py").write_text(SCRIPT)
    assert {f["path"] for f in findings("one/train.py", "two/train.py")} == {
        "one/train.py",
        "two/train.py",
    }


def test_columns_count_characters(project: Path) -> None:
    marked = SCRIPT.replace("optimizer = torch", 'optimizer = "é" and torch')
    (project / "train.py").write_text(marked, encoding="utf-8")
    for f in findings("train.py", "-v"):
        line = marked.splitlines()[f["line"] - 1]
        assert not line[f["column"] - 1].isspace()


def test_folder_with_a_broken_file(project: Path) -> None:
    (project / "old.py").write_text("print 'loss.backward()'\n")
    done = autofast("check", ".")
    assert done.code == 2 and re.fullmatch(r"autofast: old\.py:1: syntax error.*\n", done.err)
    assert "train.py:" in done.text, "what can be read is still reported"
    assert autofast("check", ".", "--exit-zero").code == 2


def test_shared_findings_are_reported_once(split: Path) -> None:
    (split / "other.py").write_text((split / "train.py").read_text())
    places = [(f["path"], f["line"], f["column"], f["rule"]) for f in findings(".")]
    assert len(places) == len(set(places)) and {path for path, *_ in places} == {
        "train.py",
        "other.py",
        "data.py",
    }


def test_ignore_comment(project: Path) -> None:
    def lines(*arguments: str) -> set[int]:
        return {
            f["line"]
            for f in findings("train.py", "--select", "no-grad-eval", *arguments)
            if f["status"] == "fix"
        }

    (line,) = lines()
    text = SCRIPT.splitlines()
    text[line - 1] += "  # autofast: ignore[no-grad-eval]"
    (project / "train.py").write_text("\n".join(text) + "\n")
    assert not lines()


def test_comment_that_ignores_nothing(project: Path) -> None:
    (project / "train.py").write_text(
        SCRIPT.replace("model.eval()", "model.eval()  # autofast: ignore[pin-memory]")
    )
    unused = "train.py:7: unused `# autofast: ignore[pin-memory]`\n"
    assert f"Note: {unused}" in autofast("rewrite", "train.py").err
    assert autofast("check", "train.py").err == f"autofast: warning: {unused}"


# ------------------------------------------------------------------------- rules, version, start-up
def test_rules_and_cards(project: Path) -> None:
    done = autofast("rules")
    assert done.code == 0 and re.search(r"^autocast +rounding +", done.text, re.MULTILINE)
    assert autofast("rule", "autocast").text.startswith("# autocast\n")
    assert fault(autofast("rule", "autocats")).endswith("did you mean autocast?")


def test_version_and_help() -> None:
    assert autofast("--version").text == f"autofast {__version__}\n"
    for command in ("rewrite", "check", "rules", "rule"):
        assert autofast(command, "--help").code == 0
        assert command in autofast("--help").text


def test_help_says_whole_sentences() -> None:
    """None is cut in the list of commands, and no option is told as a piece of one."""
    assert not re.search(r"\w\.\.\.$", autofast("--help").text, re.MULTILINE)
    for name, command in cli.commands.items():
        for option in command.params:
            told = (getattr(option, "help", "") or "A.").partition("  [")[0]
            assert re.match(r"[A-Z\d][^ ]+ \S.*\.$|A\.$", told, re.DOTALL), (
                name,
                option.name,
                told,
            )
            assert not told.startswith(("Of ", "As ", "For ", "What ")), (name, option.name, told)
        takes_text = any(p.name == "stdin_filename" for p in command.params)
        assert takes_text is (name in ("check", "rewrite"))


OPTIONAL = {
    "rewrite train.py": ("jinja2", "matplotlib", "numpy", "pygls", "lsprotocol", "pynvml"),
    "rewrite train.py --report page.html": ("jinja2",),
    "check": ("jinja2", "matplotlib", "numpy", "pygls", "lsprotocol", "pynvml"),
    "verify idle.py --report page.html": ("matplotlib",),
    "tune idle.py": ("jinja2", "matplotlib", "numpy", "pygls", "lsprotocol", "pynvml"),
    "tune idle.py --report page.html": ("jinja2", "matplotlib"),
    "server": ("pygls", "lsprotocol"),
}
WITHOUT = """
import importlib.machinery as machinery, sys
find, missing = machinery.PathFinder.find_spec, sys.argv[1].split(",")
def found(name, *rest):
    return None if name.partition(".")[0] in missing else find(name, *rest)
machinery.PathFinder.find_spec = found
sys.argv[:2] = ["autofast"]
from autofast.__main__ import main
main()
"""


@pytest.mark.parametrize("command", OPTIONAL)
def test_packages_that_are_not_installed(project: Path, command: str) -> None:
    """A command that needs one of another extra says which; the others do without it."""
    (project / "idle.py").write_text(IDLE)
    arguments = [sys.executable, "-c", WITHOUT, ",".join(OPTIONAL[command]), *command.split()]
    done = subprocess.run(arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    last = (done.stderr.splitlines() or [""])[-1]
    if "--report" in command or command == "server":
        assert done.returncode == 2 and OPTIONAL[command][0] in last, done.stderr
        assert re.search(r"pip install 'autofast-torch\[(verify|report|server)\]'$", last), last
    else:
        expected = {"rewrite": 0, "check": 1, "tune": 2}[command.partition(" ")[0]]
        assert done.returncode == expected, done.stderr
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "seen"), [("env/bin/python", "{here}/env/bin/python"), ("python3", "python3")]
)
def test_an_interpreter_is_named_from_here(
    project: Path, monkeypatch: pytest.MonkeyPatch, given: str, seen: str
) -> None:
    """The runs are made in other folders."""

    def asked(python: str) -> NoReturn:
        raise BadInput(f"asks {python}")

    monkeypatch.setattr("autofast.verify.command.ask", asked)
    done = autofast("verify", "train.py", "train.py", "--python", given)
    assert done.err.endswith(f"autofast: asks {seen.format(here=project)}\n") and done.code == 2


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is another thing there")
def test_ctrl_c_while_it_starts(project: Path) -> None:
    code = "import builtins, os, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "real = builtins.__import__\ndef slow(name, *rest):\n"
    code += "    if name == 'click':\n        os.kill(os.getpid(), signal.SIGINT)\n"
    code += "    return real(name, *rest)\nbuiltins.__import__ = slow\n"
    code += "from autofast.__main__ import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("chekc", "no such command 'chekc'; did you mean check? `autofast --help`"),
        ("speed", "no such command 'speed'; `autofast --help`"),
        ("check --efect x", "no such option '--efect'; did you mean --effect? `autofast check"),
        ("check --foo", "no such option '--foo'; `autofast check --help`"),
    ],
)
def test_what_was_probably_typed(project: Path, arguments: str, said: str) -> None:
    told = fault(autofast(*arguments.split())).replace("option: --efect", "option '--efect'")
    assert told.replace("option: --foo", "option '--foo'").startswith(said)  # as older click has it


BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {"torch", "torchvision", "numpy"}:
            raise AssertionError("imports " + name)
sys.meta_path.insert(0, Blocker())
from autofast.cli import main
sys.argv = ["autofast", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    "arguments", [["rewrite", "train.py"], ["check", "."], ["rules"], ["rule", "tf32"]]
)
def test_torch_is_never_imported_nor_the_script_run(project: Path, arguments: list[str]) -> None:
    (project / "train.py").write_text(
        SCRIPT.replace("import torch\n", "import torch\nopen('ran', 'w').close()\n", 1)
    )
    done = subprocess.run(
        [sys.executable, "-c", BLOCKER, *arguments], capture_output=True, text=True
    )
    assert done.returncode in (0, 1) and done.stderr.count("Traceback") == 0, done.stderr
    assert not (project / "ran").exists()


@pytest.mark.parametrize(
    ("what", "extra"),
    [
        ("autofast.cli", "'rich', 'pathspec', "),
        ("autofast.commands.rewriting, autofast.registry; autofast.registry.all_rules()", ""),
    ],
)
def test_start_imports_little(what: str, extra: str) -> None:
    """Nothing that only some runs need: a check makes no text, so the rules alone do not load
    LibCST.
    """
    code = f"import sys, {what}; print([m for m in ({extra}'libcst', 'black', 'torch', 'pygls', 'lsprotocol', 'jinja2') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_colour_only_on_a_terminal(project: Path) -> None:
    pty = pytest.importorskip("pty")

    def colours(**environment: str) -> bool:
        ours, theirs = pty.openpty()
        env = (
            {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
            | {"TERM": "xterm"}
            | environment
        )
        with subprocess.Popen(
            [sys.executable, "-m", "autofast", "rewrite", "train.py"],
            stdout=theirs,
            stderr=theirs,
            env=env,
        ) as process:
            os.close(theirs)
            out = b""
            try:
                while chunk := os.read(ours, 65536):
                    out += chunk
            except OSError:  # how Linux says that the other end is closed
                pass
        os.close(ours)
        assert process.returncode == 0
        # Long work moves the cursor, too: that is no colour.
        return bool(re.search(rb"\x1b\[[\d;]*m", out))

    assert colours() and not colours(NO_COLOR="1") and not colours(TERM="dumb")


CLOSED = {
    "rewrite - <&-": (2, "autofast: standard input is closed; give the name of a script"),
    "check - <&-": (2, "autofast: standard input is closed; give the name of a script"),
    "rewrite train.py -i <&- ": (2, "no answer"),
    "--help >/dev/full": (2, "autofast: standard output: cannot be written (No space"),
    "--version >/dev/full": (2, "autofast: standard output: cannot be written (No space"),
    "rewrite train.py -o /dev/stdout": (2, "is not a regular file; use `-` for standard output"),
    "check train.py -q >&-": (1, ""),
    "check train.py -q 2>&-": (1, ""),
    "rewrite train.py >/dev/full": (2, "autofast: standard output: cannot be written (No space"),
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the shell of another system")
@pytest.mark.parametrize("command", CLOSED, ids=str.strip)
def test_closed_and_full_streams(project: Path, command: str) -> None:
    code, said = CLOSED[command]
    shell = f"{sys.executable} -m autofast {command}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert said in (done.stderr.splitlines() or [""])[-1] and "internal" not in done.stderr
    assert (project / "train.py").read_text() == SCRIPT


@pytest.mark.skipif(os.name != "posix", reason="a folder that is in use cannot be removed there")
def test_a_folder_that_is_gone(project: Path) -> None:
    shell = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m autofast check ."
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
    assert done.returncode == 2
    assert "autofast: the current folder: No such file or directory; change" in done.stderr


def test_closed_pipe(project: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m autofast rewrite train.py 2> err | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "--- a/train.py\n" and "Traceback" not in (project / "err").read_text()


# ---------------------------------------------------------------------------- odd input and options
@pytest.mark.parametrize(
    "text",
    [
        "x = len(__file__)\n"
        + "if x == 0:\n    y = 0\n"
        + "".join(f"elif x == {n}:\n    y = {n}\n" for n in range(1, 1500)),
        "x = 1\n" + "y = x" + ".real" * 2000 + "\n",
    ],
    ids=["elif", "attributes"],
)
@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_code_that_is_nested_too_deeply(project: Path, command: str, text: str) -> None:
    Path("train.py").write_text(text + SCRIPT)
    message = fault(autofast(command, "train.py"))
    assert re.match(r"train.py:\d+: nested too deeply to be read \(\d+ levels", message)
    assert "internal error" not in message


def test_a_dangling_link_is_called_by_its_name(project: Path) -> None:
    Path("link.py").symlink_to("/nowhere/other.py")
    message = fault(autofast("rewrite", "link.py"))
    assert message.startswith("link.py: a link to /nowhere/other.py, which does not exist")


@pytest.mark.parametrize("command", ["rewrite", "check", "verify", "tune"])
def test_a_link_to_itself(project: Path, command: str) -> None:
    Path("one.py").symlink_to("two.py")
    Path("two.py").symlink_to("one.py")
    done = autofast(command, "one.py")
    assert done.code == 2 and "one.py: " in done.err and "internal error" not in done.err
    assert autofast("rewrite", "train.py").code == 0  # beside it


@pytest.mark.parametrize(
    "options",
    [
        "one.py --root .",
        "train.py -o one.py",
        "train.py --patch one.py",
        "train.py --report one.py",
    ],
)
def test_a_link_to_itself_in_an_option(project: Path, options: str) -> None:
    Path("one.py").symlink_to("two.py")
    Path("two.py").symlink_to("one.py")
    done = autofast("rewrite", *options.split())
    assert done.code == 2 and "one.py: a link to itself" in done.err and Path("one.py").is_symlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_in_the_folder_is_not_read(project: Path) -> None:
    os.mkfifo("pipe.py")
    Path("empty.py").write_text("")
    assert "no training loop" in autofast("rewrite", "empty.py").err


@pytest.mark.parametrize("levels", [3_000, 20_000])  # more than we follow, than Python parses
def test_a_neighbour_that_python_cannot_parse(project: Path, levels: int) -> None:
    Path("empty.py").write_text("")
    Path("deep.py").write_text("import empty\nx = " + "1+" * levels + "1\n")
    done = autofast("rewrite", "empty.py")
    assert done.code == 0 and "no training loop" in done.err and "nested" not in done.err


@pytest.mark.parametrize("option", ["-o", "--output-dir", "--patch", "--split-patches", "--report"])
def test_an_empty_name_writes_nothing(project: Path, option: str) -> None:
    done = autofast("rewrite", "train.py", option, "")
    assert done.code == 2 and done.out == b"" and "names nothing" in done.err


def test_no_number(project: Path) -> None:
    done = autofast("rewrite", "train.py", "--min-gain", "nan")
    assert done.code == 2 and "'nan' is no number" in done.err


def test_options_that_leave_no_rule(project: Path) -> None:
    assert "names no rule" in autofast("rewrite", "train.py", "--select", "").err
    assert "no rule is left" in fault(
        autofast("rewrite", "train.py", "--select", "autocast", "--ignore", "autocast")
    )
    assert autofast("rewrite", "train.py", "--ignore", "").code == 0


def test_a_promise_that_no_longer_holds_is_named(project: Path) -> None:
    """What is written may need a newer torch than the oldest that a README promises, where that is
    too old for the Pythons of today.
    """
    Path("README.md").write_text("Runs with PyTorch v1.0 or higher.\n")
    text = SCRIPT.replace("torch.randn(256, 64)", "torch.randn(256, 3, 64, 64)")
    layers = "nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 61), nn.Flatten(), nn.Linear(256, 1)"
    text = re.sub(r"nn\.Sequential\(.*\)\.to", f"nn.Sequential({layers}).to", text)
    Path("train.py").write_text(text)
    done = autofast("rewrite", "train.py", "--select", "channels-last", "--exhaustive")
    assert "needs torch 1.5 or newer; README.md:1 asks for torch >=1.0" in done.err


def test_the_torch_that_the_user_names(project: Path) -> None:
    Path("requirements.txt").write_text("torch==1.8\n")
    chosen = ("rewrite", "train.py", "--select", "fused-optimizer", "--exhaustive")
    done = autofast(*chosen)
    assert "fused=True" not in done.out.decode()
    assert (
        "requirements.txt:1 asks for torch ==1.8: 1 fix needs a newer torch and was left out;"
        " with a newer one give --torch 2.4" in done.err
    )
    assert "fused=True" in autofast(*chosen, "--torch", "2.4").out.decode()
    assert (
        "--torch says 2.0, and what would be written needs torch 2.4"
        in autofast(*chosen, "--torch", "2.0").err
    )
    done = autofast("rewrite", "train.py", "--torch", "new")
    assert done.code == 2 and "'new' is no version; write one as 2.4" in done.err


def test_the_torch_that_is_installed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("requirements.txt").write_text("torch==1.8\n")
    chosen = ("rewrite", "train.py", "--select", "fused-optimizer", "--exhaustive")
    for version, there in (("2.13.0+cu130", True), ("1.13.1", False), ("2.6.0a0+git", True)):
        monkeypatch.setattr("importlib.metadata.version", lambda _, found=version: found)
        done = autofast(*chosen, "--torch", "installed")
        assert ("fused=True" in done.out.decode()) is there, done.err


def test_no_torch_is_installed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofast.cli.options._installed_torch", lambda: "")
    done = autofast("rewrite", "train.py", "--torch", "installed")
    assert done.code == 2 and "no torch is installed beside autofast" in done.err
