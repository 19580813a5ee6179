"""The part of the documentation's site that is not written by hand: a page for each rule from its
card, and the table of all rules (a hook of mkdocs).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from autofast.report.rules import markdown

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
CARDS = sorted((ROOT / "rules").glob("*.md"))
INDEX = "# Rules\n\nWhat each may change is its effect: see [getting started](../getting-started.md#2-look).\n\n"


def pages() -> dict[str, str]:
    """Path in the site -> Markdown."""
    cards = {f"rules/{path.name}": path.read_text(encoding="utf-8") for path in CARDS}
    return {**cards, "rules/index.md": INDEX + markdown().replace("(rules/", "(")}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """All rules in the navigation, by their names."""
    rules = [{path.stem.replace("_", "-"): f"rules/{path.name}"} for path in CARDS]
    config.nav = [
        {"Rules": ["rules/index.md", *rules]} if "Rules" in entry else entry
        for entry in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In the repository, cards lie beside docs/; in the site, below it. What else lies outside is
    shown by its path alone.
    """
    text = re.sub(r"\]\(\.\./rules/?\)", "](rules/index.md)", markdown)
    text = text.replace("](../rules/", "](rules/")
    if page.file.src_uri.startswith("rules/"):
        return text.replace("](../docs/", "](../")
    return re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", text)
