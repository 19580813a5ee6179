"""Which lines of the project ran (record.Record.lines), worker processes that were forked included.

A worker writes each line that is new to it to a file beside the record. From Python 3.12 on by
``sys.monitoring``, which looks at every line once; before by a trace function, for frames of the
project alone.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
from typing import Any

from .core import Data

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Files:
    """The files of the project, which lie under one of ``folders``."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self.folders = tuple(folder.rstrip(os.sep) + os.sep for folder in folders if folder)
        self.known: dict[str, str] = {}

    def path(self, file: str) -> str:
        """The file of a code object without links; empty for what is none of the project's."""
        known = self.known.get(file)
        if known is None:
            real = os.path.realpath(file) if not file.startswith("<") else ""
            ours = real.startswith(self.folders) and not real.startswith(HERE)
            ours = ours and f"{os.sep}site-packages{os.sep}" not in real
            known = self.known[file] = real if ours else ""
        return known


class Lines:
    """``folders``: a file under one of them is of the project; ``journal``: the file that workers
    write to, a path and a number a line.
    """

    def __init__(self, folders: tuple[str, ...], start: str, journal: str) -> None:
        self.path = Files(folders).path
        self.start = start
        self.journal = journal
        self.process = os.getpid()
        self.seen: set[tuple[str, int]] = set()
        self.stopped = False
        if sys.version_info >= (3, 12):
            self.monitor()
        elif sys.gettrace() is None:
            sys.settrace(self.call)
            threading.settrace(self.call)
        else:
            self.stopped = True  # a debugger, a coverage tool

    def mark(self, path: str, line: int) -> None:
        if (path, line) not in self.seen:
            self.seen.add((path, line))
            if os.getpid() != self.process:
                self.report(path, line)

    def report(self, path: str, line: int) -> None:
        """Opened for each line: a descriptor that is kept may be closed by a worker, and given to a
        file of the script's.
        """
        try:
            file = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(file, f"{line} {path}\n".encode(errors="surrogateescape"))
            os.close(file)
        except OSError:
            pass  # a worker that may write nothing

    # --------------------------------------------------------------------------- before Python 3.12
    def call(self, frame: Any, event: str, argument: Any) -> Any:
        path = self.path(frame.f_code.co_filename)
        if not path:
            return None
        self.mark(path, frame.f_lineno)

        def line(frame: Any, event: str, argument: Any) -> Any:
            if event == "line":
                self.mark(path, frame.f_lineno)
            return line

        return line

    # -------------------------------------------------------------------------- from Python 3.12 on
    def monitor(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        try:
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "autofast")
        except ValueError:
            self.stopped = True
            return

        def line(code: Any, number: int) -> Any:
            path = self.path(code.co_filename)
            if path:
                self.mark(path, number)
            return monitoring.DISABLE

        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    # ----------------------------------------------------------------------------------- at the end
    def stop(self) -> None:
        """Before torch.compile, which must not be disturbed: what runs from here on is not seen, so
        that nothing is said of this run's lines.
        """
        self.stopped = True
        if sys.version_info < (3, 12):
            sys.settrace(None)
            threading.settrace(None)

    def found(self) -> Data:
        """File -> lines that hold code, and those of them that ran; nothing where not all was
        seen.
        """
        if self.stopped:
            return {}
        ran = self.seen | self.reported()
        result = {}
        for path in sorted({path for path, _ in ran}):
            try:
                with open(path, "rb") as opened:
                    code = compile(opened.read(), path, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, OSError):
                continue
            numbers = sorted(executable(code))
            name = os.path.relpath(path, self.start)
            result[name] = {"code": numbers, "ran": [n for n in numbers if (path, n) in ran]}
        return result

    def reported(self) -> set[tuple[str, int]]:
        """What workers wrote."""
        try:
            with open(self.journal, "rb") as file:
                entries = [line.decode(errors="surrogateescape").split(" ", 1) for line in file]
            os.remove(self.journal)
        except OSError:
            return set()
        return {(path.rstrip("\n"), int(line)) for line, path in entries}


def executable(code: Any) -> set[int]:
    lines = {line for _, line in dis.findlinestarts(code) if line}
    for constant in code.co_consts:
        if hasattr(constant, "co_consts"):
            lines |= executable(constant)
    return lines
