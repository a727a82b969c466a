"""Hooks of MkDocs for `make docs`: what pages link to outside docs/ becomes part of the site, so that each link leads somewhere.

The README is its first page. Other pages of the root are pages, too; scenarios, manifests and schemas are files below `files/`,
folders lists of what is in them. Links in Markdown stay as a reader of the repository needs them, and are rewritten for the site.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {
    "README.md": "index.md",
    **{name: name.lower() for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
"""Pages of the root, and where they are on the site."""

_LINK: Final = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/."""
    for name, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text("utf-8")))
    sources = [*PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages() if file.abs_src_path)]
    linked = {target for source in sources for target in _targets(source)}
    for target in sorted(linked):
        if (ROOT / target).is_dir():
            files.append(File.generated(config, _place(target), content=_listing(target)))
        elif _is_outside(target) and (ROOT / target).is_file():
            files.append(File.generated(config, _place(target), content=(ROOT / target).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The same page with links as they are on the site."""
    del config, files
    at = page.file.src_uri
    source = next((name for name, place in PAGES.items() if place == at), f"docs/{at}")
    if at.startswith("files/"):
        return markdown

    def rewritten(link: re.Match[str]) -> str:
        place = _place(_resolved(source, link[1]))
        return f"]({os.path.relpath(place, PurePosixPath(at).parent)}{link[2] or ''})"

    return _LINK.sub(rewritten, markdown)


def _targets(source: str) -> Iterator[str]:
    """The repository's paths that a page links to."""
    for link in _LINK.finditer((ROOT / source).read_text("utf-8")):
        yield _resolved(source, link[1])


def _resolved(source: str, written: str) -> str:
    return os.path.normpath(PurePosixPath(source).parent / written)


def _is_outside(target: str) -> bool:
    return not target.startswith("docs/") and target not in PAGES


def _place(target: str) -> str:
    """Where a path of the repository is on the site."""
    if (ROOT / target).is_dir():
        return f"files/{target}/index.md"
    return PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else f"files/{target}")


def _listing(folder: str) -> str:
    names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in (ROOT / folder).iterdir())
    return "\n".join([f"# {folder}", "", *(f"- `{name}`" for name in names if not name.startswith((".", "__")))])
