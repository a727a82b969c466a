"""Whether a job may end after its `finishBy`, if it takes the whole of its time limit; and how that is said."""

from __future__ import annotations

from solver.model.quantities import Duration, Instant


def late_run(by: Instant | None, start: Instant | None, limit: Duration | None, *, runs: bool) -> str:
    """`it could start at 12:00, and may run for 2h`, where that ends too late; "" where it does not, or nothing is known.

    `start`: when it started, or the earliest that it may. `limit` None: it has none, and is taken to end at once.
    """
    if by is None or start is None or start.after(limit or 0) <= by:
        return ""
    return f"it {'runs since' if runs else 'could start at'} {start}{f', and may run for {limit}' if limit else ''}"
