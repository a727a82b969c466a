"""Commits that nobody who counts has signed, each pushed to a branch that is followed: none may come into force."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hack.hostile.origin import QUEUE, Origin
from hack.hostile.signed import FOLLOWED, REFUSED, People, Site


class Figures(msgspec.Struct, kw_only=True):
    """What came of them. `last_good_kept`: of those tried, after how many the policy from before was in force.

    `followed` of `countable`: with signatures that count. Without them, refusing everything would look as good.
    """

    tried: int = 0
    unsigned_accepted: int = 0
    last_good_kept: int = 0
    countable: int = 0
    followed: int = 0
    tracebacks: int = 0
    first_fault: str = ""


def try_signatures(
    folder: Path, refused: Sequence[str] = tuple(REFUSED), followed: Sequence[str] = tuple(FOLLOWED)
) -> Figures:
    """Each in a repository of its own, with real keys of ssh-keygen and gpg; raises `RuntimeError` where these are missing."""
    missing = [program for program in ("ssh-keygen", "gpg") if shutil.which(program) is None]
    if missing:
        raise RuntimeError(f"signatures can't be tried without {' and '.join(missing)}")
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="k-", ignore_cleanup_errors=True) as keys:
        people = People(Path(keys))
        try:
            for number, name in enumerate((*refused, *followed)):
                site = _site(folder / f"signed-{number}", people)
                _follow(site, name, figures, counts=number >= len(refused))
        finally:
            people.close()
    return figures


def _site(folder: Path, people: People) -> Site:
    folder.mkdir()
    origin = Origin(folder / "origin")
    origin.commit({"policies/team.yaml": QUEUE % 1})
    return Site(folder, origin, people)


def _follow(site: Site, name: str, figures: Figures, *, counts: bool) -> None:
    standing = site.required()
    before = standing.current()
    (FOLLOWED[name] if counts else REFUSED[name][0])(site)
    try:
        applied = standing.reconcile().truth.reason == "Applied"
    except Exception as error:  # noqa: BLE001 - whatever is raised is what is looked for
        figures.tracebacks += 1
        figures.first_fault = figures.first_fault or f"{name}: {type(error).__name__}: {error}"
        applied = False
    if counts:
        figures.countable += 1
        figures.followed += applied
    else:
        figures.tried += 1
        figures.unsigned_accepted += applied
        figures.last_good_kept += standing.current() == before
    if applied is not counts:
        figures.first_fault = figures.first_fault or f"{name}: {standing.status().truth.message}"
