"""``rewrite --report``: the page says of every line what the files say, and everything that the
rules say.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.test_cli import SCRIPT, autofast, fault, project, split

__all__ = ["project", "split"]  # fixtures
VOID = {"meta", "br"}


class Page(HTMLParser):
    """What a browser would show: rows by side, notes with the number of the row before them, and
    whether tags are closed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.rows: dict[str, list[list[str]]] = {"old": [], "new": []}
        self.notes: list[tuple[str, str]] = []
        self.text = path.read_text("utf-8")
        self.feed(self.text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        kind = dict(attrs).get("class") or ""
        self.open.append((tag, kind))
        if kind.split()[:1] == ["row"]:
            self.rows[self._side()].append(["", ""])
        if tag == "li" and ("ul", "said-of") in self.open:
            last = self.rows["old"][-1][0] if self.rows["old"] else ""
            self.notes.append((last, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][1] in ("n", "c"):
            self.rows[self._side()][-1][self.open[-1][1] == "c"] += data
        elif ("ul", "said-of") in self.open and self.notes:
            self.notes[-1] = (self.notes[-1][0], self.notes[-1][1] + data)

    def _side(self) -> str:
        return next(kind.split()[1] for _, kind in self.open if kind.startswith("side"))

    def said(self) -> list[tuple[str, str]]:
        return [(line, " ".join(text.split())) for line, text in self.notes]


def test_both_sides_and_all_reasons(project: Path) -> None:
    kept = SCRIPT.replace("shuffle=True)", "shuffle=True, pin_memory=False)")
    (project / "train.py").write_text(kept)
    done = autofast(
        "rewrite", "train.py", "-o", "fast.py", "--report", "page.html", "--ignore", "gpu-data"
    )
    assert done.code == 0 and "Page for reviewers: page.html\n" in done.err
    page = Page(project / "page.html")
    before, after = kept.splitlines(), (project / "fast.py").read_text().splitlines()
    for rows, lines in ((page.rows["old"], before), (page.rows["new"], after)):
        assert rows and all(lines[int(number) - 1] == code for number, code in rows)
        numbers = [int(number) for number, _ in rows]
        assert numbers == sorted(set(numbers))
    shown = {int(number) for number, _ in page.rows["new"]}
    assert {n for n, line in enumerate(after, 1) if line not in before} <= shown
    said = page.said()
    loader = str(next(n for n, line in enumerate(before, 1) if "loader = DataLoader" in line))
    assert any(
        line == loader and text.startswith("left alone pin-memory") and "is written out" in text
        for line, text in said
    ), said
    assert any("done fused-optimizer" in text and "the update of 4" in text for _, text in said)
    # Nothing is loaded from elsewhere.
    assert not re.search(r"(src|href|url)\s*[=(]|@import|<script|https?:", page.text)
    assert 'name="viewport"' in page.text


def test_several_files_and_text_that_looks_like_tags(split: Path) -> None:
    train = split / "train.py"
    train.write_text(train.read_text().replace("lr=1e-3)", "lr=1e-3)  # <b>&amp;</b>"))
    before = {name: (split / name).read_text() for name in ("train.py", "data.py")}
    done = autofast("rewrite", "train.py", "--in-place", "--report", "page.html", "-q")
    assert done.code == 0 and done.err == ""
    page = Page(split / "page.html")
    old = [code for _, code in page.rows["old"]]
    assert any(code.endswith("lr=1e-3)  # <b>&amp;</b>") for code in old)
    assert "<b>" not in page.text
    for name, text in before.items():
        assert f"<code>{name}</code>" in page.text
        assert (split / name).read_text() != text
        assert set(old) & set(text.splitlines())


def test_nothing_to_say_and_what_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "page.html").write_text("mine")
    why = fault(autofast("rewrite", "train.py", "--in-place", "--report", "page.html"))
    assert why == "page.html: exists; replace it with --force, or give another name"
    assert (project / "train.py").read_text() == SCRIPT
    assert autofast("rewrite", "train.py", "--report", "page.html", "--force").code == 0
    assert Page(project / "page.html").rows["new"]
    why = fault(autofast("rewrite", "train.py", "--report", "train.py", "--force"))
    assert why == "train.py: is a file of the script; name another one for the page"
    (project / "idle.py").write_text("x = 1\n")
    assert autofast("rewrite", "idle.py", "--report", "idle.html").code == 0
    assert "Nothing to rewrite" in Page(project / "idle.html").text
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    why = fault(autofast("rewrite", "train.py", "--report", "other.html"))
    assert why == "--report: needs jinja2; pip install 'autofast-torch[report]'"
