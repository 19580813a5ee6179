"""Which lines of the project ran (record.Record.lines), worker processes that were forked included.

A byte for each line, in memory that forked processes share, found by a digest of file and number. From Python 3.12 on by
``sys.monitoring``, which looks at every line once; before by a trace function, for frames of the project alone.
"""

from __future__ import annotations

import dis
import mmap
import os
import sys
import threading
import zlib
from typing import Any

SIZE = 1 << 20


class Lines:
    """``folders``: a file under one of them is of the project."""

    def __init__(self, folders: tuple[str, ...], start: str) -> None:
        self.folders = tuple(folder.rstrip(os.sep) + os.sep for folder in folders if folder)
        self.start = start
        self.marks = mmap.mmap(-1, SIZE)
        self.files: dict[str, str] = {}
        self.stopped = False
        if sys.version_info >= (3, 12):
            self.monitor()
        elif sys.gettrace() is None:
            sys.settrace(self.call)
            threading.settrace(self.call)
        else:
            self.stopped = True  # a debugger, a coverage tool

    def name(self, file: str) -> str:
        """Relative to the script's folder; empty for what is none of the project's."""
        known = self.files.get(file)
        if known is None:
            real = os.path.realpath(file) if not file.startswith("<") else ""
            inside = real.startswith(self.folders) and f"{os.sep}site-packages{os.sep}" not in real
            known = self.files[file] = os.path.relpath(real, self.start) if inside else ""
        return known

    def mark(self, name: str, line: int) -> None:
        self.marks[zlib.crc32(f"{name}:{line}".encode()) % SIZE] = 1

    # ------------------------------------------------------------------------------------------------ before Python 3.12
    def call(self, frame: Any, event: str, argument: Any) -> Any:
        name = self.name(frame.f_code.co_filename)
        if not name:
            return None
        self.mark(name, frame.f_lineno)

        def line(frame: Any, event: str, argument: Any) -> Any:
            if event == "line":
                self.mark(name, frame.f_lineno)
            return line

        return line

    # ------------------------------------------------------------------------------------------------ from Python 3.12 on
    def monitor(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        try:
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "autofast")
        except ValueError:
            self.stopped = True
            return

        def line(code: Any, number: int) -> Any:
            name = self.name(code.co_filename)
            if name:
                self.mark(name, number)
            return monitoring.DISABLE

        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    # ------------------------------------------------------------------------------------------------ at the end
    def stop(self) -> None:
        """What is compiled by torch.compile from here on is not looked at, and must not be disturbed."""
        self.stopped = True
        if sys.version_info < (3, 12):
            sys.settrace(None)
            threading.settrace(None)

    def found(self) -> dict[str, Any]:
        """File -> lines that hold code, and those of them that ran; nothing where not all was seen."""
        if self.stopped:
            return {}
        result = {}
        for file, name in list(self.files.items()):
            if not name or not os.path.isfile(file):
                continue
            try:
                with open(file, "rb") as opened:
                    code = compile(opened.read(), file, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, OSError):
                continue
            numbers = sorted(executable(code))
            ran = [n for n in numbers if self.marks[zlib.crc32(f"{name}:{n}".encode()) % SIZE]]
            result[name] = {"code": numbers, "ran": ran}
        return result


def executable(code: Any) -> set[int]:
    lines = {line for _, line in dis.findlinestarts(code) if line}
    for constant in code.co_consts:
        if hasattr(constant, "co_consts"):
            lines |= executable(constant)
    return lines
