"""The notes of a release: its section of CHANGELOG.md, for pages that lie elsewhere."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from hack.supply_chain.problem import ProblemError

CHANGELOG: Final = "CHANGELOG.md"
_HEADING: Final = re.compile(r"^## \[?([^\]\s]+)\]?(?: - (\S+))?$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)]+)\)")


def notes(changelog: str, version: str) -> str:
    """Markdown. Raises ProblemError where the version has no section, no date, or nothing in it."""
    headings = list(_HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading[1] == version:
            text = changelog[heading.end() : following.start() if following else None].strip()
            _check(version, heading[2] or "", text)
            return f"# Quorate {version}, {heading[2]}\n\n{_without_links(text)}\n"
    fix = f"Cut it: put `## [{version}] - {date.today().isoformat()}` above what it brings, and leave `## [Unreleased]` on top."
    raise ProblemError(CHANGELOG, f"there is no section {version}", fix)


def _check(version: str, day: str, text: str) -> None:
    try:
        date.fromisoformat(day)
    except ValueError:
        fix = f"Write `## [{version}] - {date.today().isoformat()}`."
        raise ProblemError(CHANGELOG, f"the section {version} has no date", fix) from None
    if not text:
        raise ProblemError(CHANGELOG, f"the section {version} is empty", "Say what is new, or release nothing.")


def _without_links(text: str) -> str:
    """Links into the repository lead nowhere from other pages: the paths stay, as text."""

    def told(link: re.Match[str]) -> str:
        return f"`{link[2]}`" if link[2].startswith(link[1].strip("`")) else f"{link[1]} (`{link[2]}`)"

    return _LINK.sub(told, text)
