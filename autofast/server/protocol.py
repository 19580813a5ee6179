"""The Language Server Protocol: what editors say and are told. Positions are counted in the units
that the editor wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer
from pygls.workspace import PositionCodec

from autofast import __version__
from autofast.registry import all_rules, card_section
from autofast.report.diff import FileDiff
from autofast.report.record import Record
from autofast.report.style import expected
from autofast.rule import Effect
from autofast.server.session import Session, Wish

T = TypeVar("T")
SHOWN = ("fix", "advice")
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.autofast"
_SEVERITY = {
    Effect.EXACT: types.DiagnosticSeverity.Warning,
    Effect.ROUNDING: types.DiagnosticSeverity.Information,
    Effect.SAMPLING: types.DiagnosticSeverity.Information,
    Effect.RECIPE: types.DiagnosticSeverity.Hint,
}
_STATUS = {
    "fix": "fix",
    "advice": "advice",
    "refused": "left alone",
    "small": "fix, not worth its lines",
}


class Server(LanguageServer):
    """``delay`` are the seconds for which nothing is typed before it is read."""

    def __init__(self, delay: float):
        super().__init__("autofast", __version__)
        self.delay = delay
        self.session = Session()
        self.open: dict[Path, str] = {}  # real path -> the URI that the editor has for it
        self.versions: dict[str, int] = {}
        self._pending: asyncio.Task[None] | None = None
        self._told: dict[str, str] = {}  # errors that were shown, by file
        self._thread = ThreadPoolExecutor(1)  # readings share what numbers their things

    async def ask(self, question: Callable[..., T], *given: Any) -> T:
        """Ask the session, in its own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, question, *given)

    # ---------------------------------------------------------------------------------------- texts
    def file_of(self, uri: str) -> Path | None:
        """The real path of a document; None for what is no file (a cell of a notebook, the text of
        a commit)."""
        path = uris.to_fs_path(uri) if uri.startswith("file:") else None
        return Path(path).resolve() if path else None

    async def take(self, uri: str) -> None:
        """The document is open, or its text has changed."""
        if file := self.file_of(uri):
            document = self.workspace.get_text_document(uri)
            self.open[file] = uri
            self.versions[uri] = document.version or 0
            await self.ask(self.session.put, file, document.source)

    async def drop(self, uri: str) -> None:
        """The document was closed: what was found in it is the editor's no longer."""
        if (file := self.file_of(uri)) and self.open.pop(file, ""):
            await self.ask(self.session.close, file)
            self._publish(uri, [])

    # ---------------------------------------------------------------------------------- diagnostics
    def soon(self) -> None:
        """Look at all open files once nothing has been typed for a while."""
        if self._pending is not None:
            self._pending.cancel()
        self._pending = asyncio.create_task(self._after_a_while())

    async def _after_a_while(self) -> None:
        await asyncio.sleep(self.delay)
        await self.look()

    async def look(self) -> None:
        """Tell the editor what is found in each open file. Only those whose scripts have changed
        are read."""
        for file, uri in list(self.open.items()):
            version = self.versions.get(uri)
            known = await self.ask(self.session.analysis, file)
            if self.versions.get(uri) != version or file not in self.open:
                continue  # another look is on its way
            self._tell(uri, known.error if known else "")
            records = known.of(file) if known else []
            self._publish(uri, [r for r in records if r.status in SHOWN])

    def _tell(self, uri: str, error: str) -> None:
        """Say why nothing is known of a file: once, where an editor shows no box for it."""
        if error and self._told.get(uri) != error:
            self.window_log_message(types.LogMessageParams(types.MessageType.Warning, error))
        self._told[uri] = error

    def _publish(self, uri: str, records: Sequence[Record]) -> None:
        found = list(self._diagnostics(uri, records))
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, found, self.versions.get(uri))
        )

    def _diagnostics(self, uri: str, records: Sequence[Record]) -> Iterator[types.Diagnostic]:
        for record in records:
            effect = Effect[record.effect.upper()]
            advice = record.status == "advice"
            yield types.Diagnostic(
                range=self.range_of(uri, record),
                message=_message(record),
                severity=types.DiagnosticSeverity.Hint if advice else _SEVERITY[effect],
                code=record.rule,
                source="autofast",
                data={"place": list(record.place), "effect": record.effect},
            )

    def range_of(self, uri: str, record: Record) -> types.Range:
        """The place of a finding, in the units of the editor: of a loop or a long call its first
        line."""
        lines = self.workspace.get_text_document(uri).lines
        start = types.Position(record.line - 1, record.column - 1)
        several = record.end_line > record.line
        stop = len(record.code.rstrip()) if several else record.end_column - 1
        end = types.Position(record.line - 1, stop)
        return self._codec.range_to_client_units(lines, types.Range(start, end))

    @property
    def _codec(self) -> PositionCodec:
        return self.workspace.position_codec

    # -------------------------------------------------------------------------------- what is asked
    async def records_at(self, uri: str, where: types.Range) -> list[tuple[Record, types.Range]]:
        """The findings that a range touches."""
        file = self.file_of(uri)
        known = await self.ask(self.session.analysis, file) if file in self.open else None
        if known is None or file is None:
            return []
        placed = [(record, self.range_of(uri, record)) for record in known.of(file)]
        return [(r, here) for r, here in placed if _touch(here, where)]

    async def edit(self, uri: str, wish: Wish) -> types.WorkspaceEdit | None:
        """What a wish changes; where that is nothing, the editor shows the reason."""
        change = await self.ask(self.session.change, wish)
        if not change.diffs:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Info, change.why))
            return None
        return types.WorkspaceEdit(
            document_changes=[self._document_edit(diff) for diff in change.diffs]
        )

    def _document_edit(self, diff: FileDiff) -> types.TextDocumentEdit:
        path = diff.source.path
        uri = self.open.get(path, path.as_uri())
        version = self.versions.get(uri) if path in self.open else None
        named = types.OptionalVersionedTextDocumentIdentifier(uri, version)
        return types.TextDocumentEdit(named, list(_text_edits(diff, self._codec)))

    def lazily(self) -> bool:
        """Whether the editor asks for the changes of an action only once that is chosen."""
        of = self.client_capabilities.text_document
        action = of.code_action if of else None
        support = action.resolve_support if action else None
        return bool(support and "edit" in support.properties)


def _touch(one: types.Range, other: types.Range) -> bool:
    def key(position: types.Position) -> tuple[int, int]:
        return position.line, position.character

    return key(one.start) <= key(other.end) and key(other.start) <= key(one.end)


def _message(record: Record) -> str:
    """What was found, and what follows: the advice, or what a fix is expected to gain."""
    more = record.reason or expected(record.gain)
    return f"{record.message} [{record.effect}]" + (f"\n{more}" if more else "")


def _text_edits(diff: FileDiff, codec: PositionCodec) -> Iterator[types.TextEdit]:
    """Whole lines for whole lines. A last line may have no end: then the end before it goes with
    it."""
    source, new = diff.source, diff.text.split("\n")
    lines = source.text.split("\n")
    for change in diff.changes:
        (first, end), text = change.old, "\n".join(new[slice(*change.new)])
        if end < len(lines):
            stop = types.Position(end, 0)
            text += "\n" * (change.new[1] > change.new[0])
        else:
            stop = types.Position(len(lines) - 1, codec.client_num_units(lines[-1]))
        yield types.TextEdit(
            types.Range(types.Position(first, 0), stop), text.replace("\n", source.newline)
        )


def hover_text(records: Sequence[Record]) -> str:
    """What is known of a place, in Markdown: each finding with its reason, then what its rule
    does."""
    parts = []
    for record in sorted(records, key=lambda r: list(_STATUS).index(r.status)):
        more = record.reason or expected(record.gain)
        said = f"{_STATUS[record.status]}{f': {more}' if more else ''}"
        parts.append(
            f"**{record.rule}** [{record.effect}] {record.message} ({said})\n\n{card_section(record.rule)}"
        )
    return "\n\n---\n\n".join(dict.fromkeys(parts))


# --------------------------------------------------------------------------------------- the server
def serve(delay: float) -> None:
    """Speak with an editor over standard input and output until it says goodbye."""
    made(delay).start_io()


def made(delay: float) -> Server:
    """The server, with all that it answers to."""
    server = Server(delay)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        await server.take(params.text_document.uri)
        server.soon()

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        await server.take(params.text_document.uri)
        server.soon()

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(_params: types.DidSaveTextDocumentParams) -> None:
        await server.ask(server.session.forget)
        server.soon()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def watched(_params: types.DidChangeWatchedFilesParams) -> None:
        await server.ask(server.session.forget)
        server.soon()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        await server.drop(params.text_document.uri)
        server.soon()

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        uri, at = params.text_document.uri, params.position
        found = await server.records_at(uri, types.Range(at, at))
        if not found:
            return None
        text = hover_text([record for record, _ in found])
        smallest = min((here for _, here in found), key=_length)
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), smallest)

    kinds = [types.CodeActionKind.QuickFix, FIX_ALL]
    options = types.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        file = server.file_of(uri)
        if file is None or file not in server.open:
            return []
        found = [
            action
            for action in await _actions(server, uri, file, params.range)
            if _is_wanted(_word(action.kind), params.context.only)
        ]
        return found if server.lazily() else [await resolve(action) for action in found]

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        data = action.data or {}
        uri = data.get("uri", "")
        if (file := server.file_of(uri)) is not None:
            wish = Wish(file, tuple(data.get("place", ())), data.get("rule", ""))
            action.edit = await server.edit(uri, wish)
        return action

    return server


async def _actions(
    server: Server, uri: str, file: Path, where: types.Range
) -> list[types.CodeAction]:
    """An action for each fix in the range, one for all places of its rule, and one for all of the
    file."""
    found = []
    known = await server.ask(server.session.analysis, file)
    fixes = [r for r in (known.records if known else ()) if r.status == "fix"]
    rules = []
    for record, _ in await server.records_at(uri, where):
        if record.status == "fix":
            title = f"autofast: {record.rule}: {all_rules()[record.rule].summary}"
            quick = types.CodeAction(
                title.rstrip("."),
                kind=types.CodeActionKind.QuickFix,
                diagnostics=list(server._diagnostics(uri, [record])),
                data={"uri": uri, "place": list(record.place)},
            )
            found.append(quick)
            rules.append(record.rule)
    for rule in dict.fromkeys(rules):
        if (number := sum(1 for r in fixes if r.rule == rule)) > 1:
            found.append(
                types.CodeAction(
                    f"autofast: {rule}: all {number} places of the script",
                    kind=types.CodeActionKind.QuickFix,
                    data={"uri": uri, "rule": rule},
                )
            )
    if any(r.file == file for r in fixes):
        title = "autofast: all fixes of this file"
        found.append(types.CodeAction(title, kind=FIX_ALL, data={"uri": uri}))
    return found


def _is_wanted(kind: str, only: Sequence[str] | None) -> bool:
    """Whether an editor that asks for some kinds of action alone asks for this one."""
    return not only or any(f"{kind}.".startswith(f"{_word(wanted)}.") for wanted in only)


def _word(kind: Any) -> str:
    return str(getattr(kind, "value", kind))


def _length(where: types.Range) -> tuple[int, int]:
    return where.end.line - where.start.line, where.end.character - where.start.character
