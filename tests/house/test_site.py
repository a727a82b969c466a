"""The pages of docs/ as a site: every page is in its index, and every link and anchor leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.thorough


def test_it_is_built_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    for path, text in pages.items():
        assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:js|css|woff2?)"', text) == [], path
        if path.name != "404.html":
            assert list(missing(path, text)) == [], path


def missing(page: Path, text: str) -> list[str]:
    """Files that a page links to and that are not there: those of hack/site.py, which MkDocs knows nothing of, among them."""
    links = (unquote(unescape(link)) for link in re.findall(r'(?:src|href)="([^"#?]+)', text))
    return [link for link in links if ":" not in link and not (page.parent / link).exists()]
