"""Tables that benchmarks write into docs/verify-evidence.md, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "verify-evidence.md"


def put(name: str, lines: Sequence[str], page: Path = PAGE) -> None:
    """Replace what stands between ``<!-- name: ... -->`` and ``<!-- /name -->``."""
    text = page.read_text()
    start = text.index("-->", text.index(f"<!-- {name}:")) + len("-->")
    page.write_text(
        text[:start] + "\n" + "\n".join(lines) + "\n" + text[text.index(f"<!-- /{name} -->") :]
    )
