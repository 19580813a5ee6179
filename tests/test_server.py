"""``autofast server``: with a real client over standard input and output, and what it rests on in
this process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import SCRIPT, autofast, fault, project

__all__ = ["project"]  # fixtures

types = pytest.importorskip("lsprotocol.types", reason="needs the extra `server`: pygls")
LanguageClient = pytest.importorskip("pygls.lsp.client").LanguageClient


class Editor:
    """An editor: it opens files, types, and keeps what it is told."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.told: dict[tuple[str, int | None], asyncio.Future[Any]] = {}
        self.messages: list[str] = []
        self.last: dict[str, Any] = {}
        self.news = asyncio.Event()
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: Any) -> None:
            self.last[params.uri] = params.diagnostics
            self.news.set()
            future = self._future(params.uri, params.version)
            if not future.done():
                future.set_result(params.diagnostics)

        @client.feature(types.WINDOW_SHOW_MESSAGE)
        @client.feature(types.WINDOW_LOG_MESSAGE)
        def message(params: Any) -> None:
            self.messages.append(params.message)

    def _future(self, uri: str, version: int | None) -> asyncio.Future[Any]:
        return self.told.setdefault((uri, version), asyncio.get_running_loop().create_future())

    async def found(self, path: Path) -> list[Any]:
        """What the editor shows for the text as it is now."""
        uri = path.as_uri()
        return await asyncio.wait_for(self._future(uri, self.versions[uri]), 60)

    async def again(self, path: Path, rule: str) -> None:
        """Until something is no longer shown for a file that was not changed itself."""
        while rule in {d.code for d in self.last[path.as_uri()]}:
            self.news.clear()
            await self.news.wait()

    def open(self, path: Path, text: str | None = None) -> None:
        uri = path.as_uri()
        self.texts[uri], self.versions[uri] = text or path.read_text(), 1
        item = types.TextDocumentItem(uri, "python", 1, self.texts[uri])
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def type(self, path: Path, old: str, new: str) -> None:
        """Type over a piece of one line."""
        uri = path.as_uri()
        before = self.texts[uri].split(old, 1)[0]
        line, column = before.count("\n"), len(before.rpartition("\n")[2])
        where = types.Range(types.Position(line, column), types.Position(line, column + len(old)))
        self.versions[uri] += 1
        self.texts[uri] = self.texts[uri].replace(old, new, 1)
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(self.versions[uri], uri),
                [types.TextDocumentContentChangePartial(where, new)],
            )
        )

    async def actions(self, path: Path, where: Any, only: Any = None) -> list[Any]:
        return await self.client.text_document_code_action_async(
            types.CodeActionParams(
                types.TextDocumentIdentifier(path.as_uri()),
                where,
                types.CodeActionContext([], only=only),
            )
        )

    async def apply(self, action: Any) -> dict[str, str]:
        """The texts after an action, which is resolved first."""
        done = await self.client.code_action_resolve_async(action)
        texts = dict(self.texts)
        for change in done.edit.document_changes:
            uri = change.text_document.uri
            text = texts.get(uri) or Path(uri.removeprefix("file://")).read_text()
            assert change.text_document.version == self.versions.get(uri)
            texts[uri] = edited(text, change.edits)
        return texts


def edited(text: str, edits: list[Any]) -> str:
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(position: Any) -> int:
        return starts[position.line] + position.character

    for edit in sorted(edits, key=lambda e: offset(e.range.start), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


def editing(root: Path, work: Callable[[Editor], Awaitable[None]], lazily: bool = True) -> None:
    """Start the server as an editor does, do ``work``, and say goodbye."""

    async def session() -> None:
        client = LanguageClient("test", "1")
        editor = Editor(client)
        await client.start_io(sys.executable, "-m", "autofast", "server", "--delay", "0")
        support = types.ClientCodeActionResolveOptions(["edit"]) if lazily else None
        action = types.CodeActionClientCapabilities(resolve_support=support)
        capabilities = types.ClientCapabilities(
            text_document=types.TextDocumentClientCapabilities(code_action=action)
        )
        await client.initialize_async(types.InitializeParams(capabilities, root_uri=root.as_uri()))
        client.initialized(types.InitializedParams())
        try:
            await work(editor)
        finally:
            await client.shutdown_async(None)
            client.exit(None)
            await client.stop()

    asyncio.run(session())


def at(diagnostics: list[Any], rule: str) -> Any:
    return next(d for d in diagnostics if d.code == rule)


# --------------------------------------------------------------------------------------- over stdio
def test_typing_hovering_and_mending(project: Path) -> None:
    train = project / "train.py"
    expected = {
        (line.split(":")[1], line.split(": ")[1].split(" ")[0])
        for line in autofast("check", "--output-format", "concise").text.splitlines()
        if line.startswith("train.py:")
    }

    async def work(editor: Editor) -> None:
        editor.open(train)
        found = await editor.found(train)
        assert found and {(str(d.range.start.line + 1), d.code) for d in found} == expected
        fused = at(found, "fused-optimizer")
        assert fused.severity == types.DiagnosticSeverity.Information  # rounding
        assert at(found, "no-grad-eval").severity == types.DiagnosticSeverity.Warning  # exact
        place = fused.range
        assert SCRIPT.splitlines()[place.start.line][
            place.start.character : place.end.character
        ].startswith("torch.optim.Adam(")

        hover = await editor.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(train.as_uri()), place.start)
        )
        assert hover.contents.value.startswith("**fused-optimizer** [rounding] runs the update")
        assert "fused=" in hover.contents.value  # the card
        nothing = types.HoverParams(
            types.TextDocumentIdentifier(train.as_uri()), types.Position(3, 0)
        )
        assert await editor.client.text_document_hover_async(nothing) is None

        # One finding, alone.
        actions = await editor.actions(train, place)
        one = next(a for a in actions if "fused-optimizer: " in a.title and a.diagnostics)
        assert one.edit is None
        text = (await editor.apply(one))[train.as_uri()]
        changed = set(text.splitlines()) ^ set(SCRIPT.splitlines())
        assert len(changed) == 4 and any("fused=" in line for line in changed)

        # Typed, not saved: an emoji before the place counts as two units.
        editor.type(train, "lr=1e-3)", "lr=1e-3, fused=True)")
        assert "fused-optimizer" not in {d.code for d in await editor.found(train)}
        editor.type(train, "loader = DataLoader(", '"😋"; loader = DataLoader(')
        moved = at(await editor.found(train), "gpu-data")
        line = editor.texts[train.as_uri()].splitlines()[moved.range.start.line]
        units = line[: line.index("DataLoader")].encode("utf-16-le")
        assert moved.range.start.character == len(units) // 2

        # A line that is not finished yet; then the whole file.
        editor.type(train, "torch.manual_seed(0)", "torch.manual_seed(")
        assert not await editor.found(train)
        editor.type(train, "torch.manual_seed(", "torch.manual_seed(0)")
        assert await editor.found(train)
        (whole,) = await editor.actions(train, place, ["source.fixAll"])
        assert whole.kind == "source.fixAll.autofast"
        text = (await editor.apply(whole))[train.as_uri()]
        train.write_text(editor.texts[train.as_uri()])
        assert autofast("rewrite", "train.py", "-o", "-").text == text
        assert train.read_text() != text

    editing(project, work)


def test_a_fix_of_two_files_in_an_editor_without_resolve(project: Path) -> None:
    train, engine = project / "train.py", project / "engine.py"
    step = "".join(SCRIPT.splitlines(keepends=True)[25:29])
    assert step.strip().startswith("optimizer.zero_grad()")
    head = "from torch import nn\n\n\ndef learn(model, optimizer, x, y):\n"
    engine.write_text(head + step.replace(" " * 12, " " * 4))
    text = SCRIPT.replace(step, f"{' ' * 12}learn(model, optimizer, x, y)\n")
    train.write_text(f"from engine import learn\n{text}")
    (project / "pyproject.toml").write_text(
        "[tool.autofast]\nexhaustive = true\nprecision = 'either'\n"
    )

    async def work(editor: Editor) -> None:
        editor.open(train)  # the other one is read from the disk
        place = at(await editor.found(train), "grad-scaler").range
        actions = await editor.actions(train, place)
        assert all(action.edit is not None for action in actions)
        one = next(a for a in actions if a.diagnostics and "grad-scaler" in a.title)
        changes = {c.text_document.uri: c for c in one.edit.document_changes}
        assert set(changes) == {train.as_uri(), engine.as_uri()}
        text = edited(engine.read_text(), changes[engine.as_uri()].edits)
        assert "scaler.step(optimizer)" in text and "autocast" in text  # which it needs
        # What is typed in one file changes what is known of the other.
        editor.open(engine)
        assert await editor.found(engine)
        editor.type(engine, "loss.backward()", "loss.detach()")
        await asyncio.wait_for(editor.again(train, "grad-scaler"), 60)

    editing(project, work, lazily=False)


def test_what_cannot_be_read(project: Path) -> None:
    binary, letter = project / "binary.py", project / "letter.py"
    binary.write_bytes(b"\x7fELF\x00\xff")
    (project / "pyproject.toml").write_text("[tool.autofast]\nselekt = ['tf32']\n")

    async def work(editor: Editor) -> None:
        editor.open(binary, "\x7fELF\x00")
        assert not await editor.found(binary)
        editor.open(letter, "Dear reader, this is no script.\n")
        assert not await editor.found(letter)
        assert any("pyproject.toml:2: unknown key 'selekt'" in m for m in editor.messages)
        (project / "pyproject.toml").unlink()
        editor.client.text_document_did_close(
            types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(binary.as_uri()))
        )
        editor.open(project / "train.py")
        assert await editor.found(project / "train.py")
        for message in ("untitled:one", "vscode-notebook-cell:/x/y.ipynb#1"):
            item = types.TextDocumentItem(message, "python", 1, SCRIPT)
            editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
            where = types.Range(types.Position(0, 0), types.Position(9, 0))
            params = types.CodeActionParams(
                types.TextDocumentIdentifier(message), where, types.CodeActionContext([])
            )
            assert await editor.client.text_document_code_action_async(params) in ((), [])

    editing(project, work)


def test_pygls_is_not_installed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.startswith("autofast.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    assert fault(autofast("server")) == (
        "the server needs pygls: pip install 'autofast-torch[server]'"
    )
