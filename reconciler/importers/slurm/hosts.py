"""Host lists of Slurm, `n[001-016,019],m7`, as names of nodes (slurm.conf(5), NodeName)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

HOSTS_MAX: Final = 200_000
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def hosts(written: str) -> list[str]:
    """The names, in order. Raises ValueError for what is no host list, or is one of more than HOSTS_MAX names."""
    found = list[str]()
    for part in split_list(written):
        for name in _expanded(part):
            found.append(name)
            if len(found) > HOSTS_MAX:
                raise ValueError(f"{written[:40]!r} names more than {HOSTS_MAX} nodes")
    return found


def split_list(written: str) -> list[str]:
    """The parts of a list at its commas, but for those in brackets."""
    parts, depth = [""], 0
    for character in written:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _expanded(part: str) -> Iterator[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        yield part
        return
    inside, closed, after = rest.partition("]")
    if not closed:
        raise ValueError(f"{part!r} has no closing bracket")
    for number in _numbers(inside, part):
        for end in _expanded(after):
            yield f"{before}{number}{end}"


def _numbers(inside: str, part: str) -> Iterator[str]:
    for piece in inside.split(","):
        matched = _RANGE.fullmatch(piece.strip())
        if matched is None:
            raise ValueError(f"{part!r}: {piece!r} is no range of numbers such as 001-016")
        first, last = matched[1], matched[2] or matched[1]
        if int(last) - int(first) > HOSTS_MAX:
            raise ValueError(f"{part[:40]!r} names more than {HOSTS_MAX} nodes")
        yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
