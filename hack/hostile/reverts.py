"""Random edits of a policy repository, then `git revert`: what is compiled must be the same again, byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from hack.hostile.origin import Origin
from reconciler.documents.files import read_folder
from reconciler.documents.repository import Compiled, read_repository
from reconciler.documents.schemas import data_folder
from reconciler.gitops.review.meaning import documents_of
from reconciler.gitops.source.tree import read_revision
from solver.model.document import encode


class Figures(msgspec.Struct, kw_only=True):
    """What came of reverting. `changed`: edits that made the compiled policy another one, or no policy at all."""

    tried: int = 0
    changed: int = 0
    invalid: int = 0
    identical: int = 0
    first_fault: str = ""


def try_reverts(folder: Path, seed: int, count: int) -> Figures:
    """Start from the shipped example; each edit is committed, and taken back by `git revert`."""
    drawn, figures = random.Random(seed), Figures()
    home = folder / "reverted"
    good = read_folder(data_folder("policies").parent).contents
    origin = Origin(home)
    for path, content in good.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(content)
    origin.commit()
    before = _bytes_of(_compiled(home))
    for number in range(count):
        # A digit may be drawn in its own place, and Git reverts no commit that changes nothing.
        while not origin.git("status", "--porcelain"):
            _edit(home, drawn, sorted(path for path in good if path.endswith(".yaml") and "/tests/" not in path))
        origin.commit()
        after = _compiled(home)
        figures.tried += 1
        figures.invalid += after is None
        figures.changed += _bytes_of(after) != before
        origin.git("revert", "--no-edit", "HEAD")
        same = _bytes_of(_compiled(home)) == before
        figures.identical += same
        if not same:
            figures.first_fault = figures.first_fault or f"edit {number}"
    return figures


def _compiled(home: Path) -> Compiled | None:
    return read_repository(read_revision(home, "HEAD").files).compiled


def _bytes_of(compiled: Compiled | None) -> bytes:
    """Policy, nodes, and whatever else documents say."""
    if compiled is None:
        return b""
    said = msgspec.json.encode({name: dict(fields) for name, fields in documents_of(compiled).items()}, order="sorted")
    return b"\n".join((encode(compiled.policy), *map(encode, compiled.nodes), said))


def _edit(home: Path, drawn: random.Random, paths: list[str]) -> None:
    """Numbers are changed, lines go, files go, come or move."""
    path = home / drawn.choice(paths)
    lines = path.read_text().splitlines(keepends=True)
    match drawn.choice(["number", "number", "number", "line", "gone", "moved", "twice"]):
        case "number":
            places = [(row, at) for row, line in enumerate(lines) for at, sign in enumerate(line) if sign.isdigit()]
            if places:
                row, at = drawn.choice(places)
                lines[row] = lines[row][:at] + str(drawn.randrange(10)) + lines[row][at + 1 :]
            path.write_text("".join(lines))
        case "line":
            del lines[drawn.randrange(len(lines))]
            path.write_text("".join(lines))
        case "gone":
            path.unlink()
        case "moved":
            path.rename(path.with_name(f"moved-{path.name}"))
        case _:
            path.with_name(f"copy-{path.name}").write_text("".join(lines))
