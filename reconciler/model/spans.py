"""Spans of time as people read them, in at most two units."""

from __future__ import annotations

_UNITS_S = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def span(milliseconds: int) -> str:
    """Like `3d4h`, `12m` or `0s`: the largest unit and, below it, the next where there is something of it."""
    left_s = max(0, milliseconds) // 1_000
    for place, (unit, size_s) in enumerate(_UNITS_S):
        if left_s >= size_s:
            count, rest_s = divmod(left_s, size_s)
            below = _UNITS_S[place + 1 : place + 2]
            return f"{count}{unit}" + "".join(f"{rest_s // size}{name}" for name, size in below if rest_s >= size)
    return "0s"
