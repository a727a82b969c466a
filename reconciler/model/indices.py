"""The indices of a job array as people write them: `0-99`, `1,3,7-9`, `0-20:5`."""

from __future__ import annotations

import re

ELEMENTS_MAX = 10_000
INDEX_MAX = 999_999

_PART = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")


def read_indices(written: str) -> tuple[int, ...]:
    """The indices in ascending order. Raises ValueError where they are not written so, are too many, or one is said twice."""
    found: set[int] = set()
    for part in written.split(","):
        span = _span(part)
        if len(span) + len(found) > ELEMENTS_MAX:
            raise ValueError(f"{written}: an array has at most {ELEMENTS_MAX} elements")
        twice = found.intersection(span)
        if twice:
            raise ValueError(f"{written}: the index {min(twice)} is there twice")
        found.update(span)
    return tuple(sorted(found))


def _span(part: str) -> range:
    matched = _PART.fullmatch(part)
    if matched is None:
        raise ValueError(f"{part!r} is no index and no range such as 0-99 or 0-20:5")
    first, last, step = int(matched[1]), int(matched[2] or matched[1]), int(matched[3] or 1)
    if last < first:
        raise ValueError(f"{part}: the range ends before it begins")
    if step == 0:
        raise ValueError(f"{part}: a step is at least 1")
    if last > INDEX_MAX:
        raise ValueError(f"{part}: an index is at most {INDEX_MAX}")
    return range(first, last + 1, step)
