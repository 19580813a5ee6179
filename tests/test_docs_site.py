"""The documentation builds as a site: every page is reached, every link and anchor leads somewhere
(mkdocs is strict about both).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autofast import registry

ROOT = Path(__file__).parents[1]


def test_the_site_builds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for rule in registry.all_rules():
        page = tmp_path / "rules" / rule.replace("-", "_") / "index.html"
        assert f'<h1 id="{rule}">' in page.read_text(encoding="utf-8")
