"""Times as people read them: the local zone with its offset; beside spans, which every command writes alike."""

from __future__ import annotations

from datetime import UTC, datetime

from reconciler.model.spans import span
from solver.model.quantities import Instant

__all__ = ["local", "span"]


def local(instant: Instant) -> str:
    """Like `2026-11-20 09:00:00 +01:00`."""
    moment = datetime.fromtimestamp(int(instant) // 1_000, UTC).astimezone()
    offset = moment.strftime("%z")
    return f"{moment:%Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]}"
