"""Names in the order in which people count: b2 before b10."""

from __future__ import annotations

import re
from typing import Final

_RUNS: Final = re.compile(r"[0-9]+|[^0-9]+")


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """What to sort by: numbers by their value, and before words."""
    return tuple((0, int(run), "") if run.isascii() and run.isdigit() else (1, 0, run) for run in _RUNS.findall(name))
